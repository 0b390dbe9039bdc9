import math

import pytest

from everstep.planner.spares import Workshop, spare_row, spares_needed

DAY_S = 86_400.0


def _workshop(rate_spread: float, repair_spread: float = 1.2, repair_s: float = DAY_S) -> Workshop:
    return Workshop(
        losses_per_s=8 / DAY_S,
        rate_spread=rate_spread,
        repair_s=repair_s,
        repair_spread=repair_spread,
    )


def _poisson_quantile(mean: float, share: float) -> int:
    count, term = 0, math.exp(-mean)
    total = term
    while total < share:
        count += 1
        term *= mean / count
        total += term
    return count


@pytest.mark.parametrize("repair_spread", [0.0, 1.2])
def test_spares_under_a_steady_rate_are_poisson_and_one(repair_spread):
    """Hosts out at a loss are Poisson for any repair times, and the lost host itself is one."""
    shares = (0.5, 0.9, 0.99)
    got = spares_needed(_workshop(0, repair_spread), shares)
    wanted = [_poisson_quantile(8, share) + 1 for share in shares]
    assert all(abs(a - b) <= 1 for a, b in zip(got, wanted, strict=True)), (got, wanted)


def test_spares_under_recorded_variation_are_more_than_poisson_says():
    """LANL-like rates: 18 to 54 hosts, as recorded, where Poisson says 15."""
    (steady,) = spares_needed(_workshop(0), (0.99,))
    (mild,) = spares_needed(_workshop(0.54), (0.99,))
    (wild,) = spares_needed(_workshop(1.37, 1.13), (0.99,))
    assert 18 <= mild < wild <= 54
    assert steady < mild


def test_spares_for_more_patience_or_shorter_repairs_are_fewer():
    """Hosts that come back within the patience need no spare."""
    shares = (0.99,)
    hasty = spares_needed(_workshop(0.5), shares)
    assert spares_needed(_workshop(0.5), shares, 6 * 3_600) < hasty
    assert spares_needed(_workshop(0.5, repair_s=3_600), shares) < hasty
    assert spares_needed(_workshop(0.5, 0.0), shares, DAY_S) == (0,)


def test_spares_of_a_fleet_that_never_fails_are_none():
    """And nothing loops for ever to find that out."""
    workshop = Workshop(losses_per_s=0.0, rate_spread=0.5, repair_s=DAY_S, repair_spread=1.2)
    assert spares_needed(workshop, (0.5, 0.99)) == (0, 0)
    row = spare_row(workshop, 0)
    assert (row.wait_s, row.training) == (0, 1)


def test_job_without_spares_waits_for_every_repair():
    """Training an eighth of a day, then a day of repair: one ninth of the time is left."""
    row = spare_row(_workshop(0, 0.0), 0)
    assert row.enough == 0
    assert row.wait_s == pytest.approx(DAY_S)
    assert row.training == pytest.approx(1 / 9, rel=0.03)


def test_more_spares_never_make_a_job_wait_longer():
    """At the 99 % quantile hardly any time is lost."""
    workshop = _workshop(0.5)
    (enough,) = spares_needed(workshop, (0.99,))
    rows = [spare_row(workshop, spares) for spares in (0, 5, 10, enough)]
    waits = [row.wait_s for row in rows]
    assert waits == sorted(waits, reverse=True)
    assert rows[-1].training > 0.99
    assert rows[-1].enough > 0.98
