"""Which hosts are cut from their job, by what hosts say of their links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.monitor.detectors.links import (
    CONFIRM_MS_MAX,
    CONFIRM_MS_MIN,
    PEERS_MAX,
    LinkCheck,
    LinkLook,
    Sides,
    Standing,
    plan_checks,
    sides_of,
    standing_of,
)
from everstep.sim.seeds import Seeds

NOW = 1_000_000


def names(count: int, first: str = "h") -> tuple[str, ...]:
    """Hosts that sort by number."""
    return tuple(f"{first}{i:04d}" for i in range(count))


def look(
    hosts: tuple[str, ...],
    reaches=lambda source, target: True,
    *,
    referees: tuple[str, ...] = (),
    silent: frozenset[str] = frozenset(),
    at_ms: int = NOW,
    salt: str = "s",
) -> LinkLook:
    """What all hosts say that are not silent."""
    plan = plan_checks(hosts, referees, salt=salt)
    checks = tuple(
        LinkCheck(source=source, target=target, reached=reaches(source, target))
        for source, targets in plan.items()
        if source not in silent
        for target in targets
    )
    return LinkLook(at_ms=at_ms, hosts=hosts, checks=checks)


def without(*cut: str):
    """Nobody reaches these from outside, nor do they reach anybody outside."""
    return lambda source, target: (source in cut) == (target in cut)


def test_sound_links_name_nobody():
    """All twelve links of four hosts."""
    sides = sides_of(look(names(4)))
    assert sides == Sides(text="all 6 links between them that were checked are sound")


@pytest.mark.parametrize("count", [3, 4, 8, 100])
def test_host_that_is_cut_both_ways_is_named(count):
    """Its agent answers us as well as any other."""
    sides = sides_of(look(names(count), without("h0001")))
    assert (sides.cut, sides.partly, sides.tie) == (("h0001",), False, False)


def test_reason_counts_both_directions():
    """An operator can check the numbers by hand."""
    sides = sides_of(look(names(4), without("h0001")))
    assert sides.text == (
        "h0001 cut from the others: 0 of 3 checks from there and 0 of 3 to there succeeded, while "
        "the 3 other hosts of the job reach one another (3 sound links)"
    )


@pytest.mark.parametrize("way", ["in", "out"])
def test_one_way_cut_is_a_cut(way):
    """A collective needs both directions."""

    def reaches(source, target):
        return (target if way == "in" else source) != "h0002"

    assert sides_of(look(names(5), reaches)).cut == ("h0002",)


def test_host_that_says_nothing_is_judged_by_what_others_say_of_it():
    """Others do not reach it: enough. Others reach it: it is only slow to answer."""
    silent = frozenset({"h0003"})
    assert sides_of(look(names(5), without("h0003"), silent=silent)).cut == ("h0003",)
    assert sides_of(look(names(5), silent=silent)).cut == ()


def test_smaller_group_is_cut():
    """A rack whose switch is gone: its hosts reach one another, and nobody else."""
    rack = ("h0000", "h0001", "h0002")
    assert sides_of(look(names(7), without(*rack))).cut == rack
    assert sides_of(look(names(5), without(*rack))).cut == ("h0003", "h0004")


@pytest.mark.parametrize("count", [2, 4, 6])
def test_halves_are_a_tie(count):
    """Neither side is larger: nobody is named."""
    hosts = names(count)
    sides = sides_of(look(hosts, without(*hosts[: count // 2])))
    assert (sides.cut, sides.tie) == ((), True)


def test_nobody_reaches_anybody_is_a_tie():
    """The network is gone, not a host."""
    sides = sides_of(look(names(5), lambda *_: False))
    assert (sides.cut, sides.tie) == ((), True)


def test_largest_of_three_parts_must_be_more_than_the_rest():
    """Three hosts of seven are not the job."""
    parts = {host: min(i // 3, 2) if i < 6 else 2 for i, host in enumerate(names(7))}
    parts["h0005"] = 2
    sides = sides_of(look(names(7), lambda one, other: parts[one] == parts[other]))
    assert (sides.cut, sides.tie) == ((), True)


def test_referees_decide_between_two():
    """Hosts of no part in the job reach one of the two."""
    referees = names(3, "r")
    sides = sides_of(look(names(2), without("h0001"), referees=referees))
    assert (sides.cut, sides.tie) == (("h0001",), False)
    assert "with 3 hosts outside it" in sides.text


def test_referees_do_not_outvote_a_job():
    """A job that is whole is not cut because spares are away from it."""
    hosts, referees = names(3), names(3, "r")
    assert sides_of(look(hosts, without(*referees), referees=referees)) == Sides(
        text="9 of 15 links are broken (h0000-r0000, h0000-r0001, h0000-r0002, h0001-r0000, "
        "h0001-r0001, h0001-r0002, h0002-r0000, h0002-r0001 and 1 more), and they do not tell "
        "whose fault it is"
    )
    larger = sides_of(look(hosts, without("h0002", *referees), referees=referees))
    assert larger.cut == ("h0002",)


def test_one_broken_link_names_neither_end():
    """Both reach all others; nothing tells whose fault it is."""
    sides = sides_of(look(names(5), lambda *ends: set(ends) != {"h0000", "h0001"}))
    assert (sides.cut, sides.tie) == ((), False)
    assert "h0000-h0001" in sides.text


def test_host_that_explains_every_broken_link_is_named_as_partly_cut():
    """It still reaches one host, and the others all reach one another."""

    def reaches(*ends):
        return "h0000" not in ends or set(ends) == {"h0000", "h0004"}

    sides = sides_of(look(names(5), reaches))
    assert (sides.cut, sides.partly) == (("h0000",), True)


def test_few_broken_links_of_many_do_not_condemn_their_host():
    """Two of seven: a rail is bad, perhaps; the host is not cut."""

    def reaches(*ends):
        return "h0000" not in ends or not {"h0001", "h0002"} & set(ends)

    hosts = names(7)
    assert sides_of(look(hosts, reaches)).cut == ()


@pytest.mark.parametrize("salt", ["a", "b", "c"])
def test_one_cut_host_among_two_thousand_is_found_by_six_checks_each(salt):
    """And nobody else is named."""
    hosts = names(2_048)
    sound = look(hosts, without("h1234"), salt=salt)
    assert len(sound.checks) == 2_048 * PEERS_MAX
    assert sides_of(sound).cut == ("h1234",)


@pytest.mark.parametrize("salt", ["a", "b", "c"])
def test_cut_group_among_two_thousand_names_no_host_of_the_larger_side(salt):
    """Hosts that happen to have been checked with the other side only are not taken for cut."""
    hosts = names(2_048)
    away = frozenset(Seeds(7).of(salt).sample(hosts, 900))
    named = set(sides_of(look(hosts, without(*away), salt=salt)).cut)
    assert named <= away
    assert len(named) > 890


def test_plan_is_the_same_for_everybody_who_makes_it():
    """A monitor that starts anew asks the same."""
    hosts = names(40)
    assert plan_checks(hosts, (), salt="1") == plan_checks(tuple(reversed(hosts)), (), salt="1")
    assert plan_checks(hosts, (), salt="1") != plan_checks(hosts, (), salt="2")
    assert all(host not in targets for host, targets in plan_checks(hosts, (), salt="1").items())


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_order_of_what_is_told_changes_nothing(data):
    """Replies come as they come."""
    hosts = names(data.draw(st.integers(2, 12)))
    referees = names(data.draw(st.integers(0, 3)), "r")
    away = data.draw(st.sets(st.sampled_from([*hosts, *referees])))
    one = look(hosts, without(*away), referees=referees)
    shuffled = data.draw(st.permutations(one.checks))
    assert sides_of(one) == sides_of(LinkLook(at_ms=NOW, hosts=hosts, checks=tuple(shuffled)))


def test_silent_host_that_nobody_has_checked_is_on_neither_side():
    """Of two halves of seven one looked larger because nobody had drawn a silent host of the other.

    Found by the test below.
    """
    hosts, away = names(14), names(7)
    silent = frozenset(hosts[one] for one in (0, 7, 8, 11, 12, 13))
    sides = sides_of(look(hosts, without(*away), silent=silent))
    assert (sides.cut, sides.tie) == ((), True)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_named_hosts_are_always_cut_and_fewer_than_half(data):
    """Whatever is broken: nobody of the larger side is named."""
    hosts = names(data.draw(st.integers(2, 20)))
    away = data.draw(st.sets(st.sampled_from(hosts)))
    silent = frozenset(data.draw(st.sets(st.sampled_from(hosts))))
    sides = sides_of(look(hosts, without(*away), silent=silent))
    smaller = away if 2 * len(away) < len(hosts) else set(hosts) - away
    assert set(sides.cut) <= smaller
    if 2 * len(away) == len(hosts):
        assert sides.cut == ()


def looks(*shown: tuple[int, tuple[str, ...]]) -> list[LinkLook]:
    """Looks at five hosts, each so long ago, with these cut."""
    return [look(names(5), without(*cut), at_ms=NOW - ago_ms) for ago_ms, cut in shown]


def test_first_look_that_names_a_host_asks_for_another():
    """Links flap."""
    standing = standing_of(NOW, looks((0, ("h0001",))))
    assert (standing.cut, standing.look_again) == ((), True)


def test_second_look_confirms():
    """The same host, a second later."""
    standing = standing_of(NOW, looks((CONFIRM_MS_MIN, ("h0001",)), (0, ("h0001",))))
    assert (standing.cut, standing.look_again) == (("h0001",), False)
    assert standing.text.endswith("; seen 2 times")


def test_looks_that_are_too_close_are_one():
    """What is late for the one is late for the other."""
    close = looks((CONFIRM_MS_MIN - 1, ("h0001",)), (0, ("h0001",)))
    assert standing_of(NOW, close).look_again


def test_look_that_names_another_host_confirms_nobody():
    """Two hosts that were late once each."""
    standing = standing_of(NOW, looks((2_000, ("h0001",)), (0, ("h0002",))))
    assert (standing.cut, standing.look_again) == ((), True)


def test_link_that_has_healed_names_nobody_and_is_told():
    """The run starts again where it is; the reason says what was seen."""
    standing = standing_of(NOW, looks((2_000, ("h0001",)), (0, ())))
    assert (standing.cut, standing.look_again) == ((), False)
    assert "2000 ms ago h0001 cut from the others" in standing.text


def test_link_that_flaps_is_found_by_the_second_time_within_five_minutes():
    """In between everything was sound, and the run had been started again."""
    flapping = looks((200_000, ("h0001",)), (198_000, ()), (0, ("h0001",)))
    assert standing_of(NOW, flapping).cut == ("h0001",)
    rare = looks((CONFIRM_MS_MAX + 1, ("h0001",)), (0, ("h0001",)))
    assert standing_of(NOW, rare).cut == ()


def test_tie_asks_again():
    """And says so."""
    halves = [look(names(2), without("h0000"), at_ms=NOW)]
    standing = standing_of(NOW, halves)
    assert (standing.cut, standing.tie, standing.look_again) == ((), True, True)


def test_nothing_seen_yet_asks():
    """There is nothing to conclude from."""
    assert standing_of(NOW, []) == Standing(look_again=True)
