"""Campaign files: which faults, when, and whom they meet. Pure.

::

    version: 1
    name: two-deaths
    seed: 7                  # of everything that is random here
    window: [5, 40]          # steps between which random moments lie
    faults:
      - {kind: kill_rank, rank: 3, at_step: 8}
      - {kind: isolate_agent, host: random, after_s: 20, for_s: 15, peers: false}
      - {kind: stop_service, service: nats, at_step: random}
    random: {count: 5, kinds: [kill_rank, kill_host]}

A fault's host is one of the hosts that the job has when it strikes: a name, ``random``, or the one
of ``rank``. The same file and seed give the same plan for a job of as many ranks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from everstep.chaos.kinds import KINDS, SERVERS, SERVICES, By, Kind, Whom
from everstep.core.errors import InvalidInput
from everstep.faults.chance import seeded
from everstep.faults.kinds import Fault

VERSION: Final = 1
RANDOM: Final = "random"
FAULTS_MAX: Final = 10_000  # a campaign of a day with a fault every ten seconds
_COMMON: Final = {"kind", "rank", "host", "service", "at_step", "after_s", "for_s"}


class _Draw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults that are drawn: how many, of which kinds."""

    count: int
    kinds: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as it is written."""

    version: int
    name: str = "campaign"
    seed: int = 0
    window: tuple[int, int] = (5, 30)
    faults: tuple[dict[str, Any], ...] = ()
    random: _Draw | None = None


class _When(msgspec.Struct, frozen=True, kw_only=True):
    """The common part of a fault."""

    kind: str
    rank: int | Literal["random"] | None = None
    host: str = ""
    service: str = ""
    at_step: int | Literal["random"] | None = None
    after_s: float | None = None
    for_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault, with everything decided that can be before the job is placed.

    ``at_step`` or ``after_s`` (of the first step) is -1. ``rank`` is -1 where none is meant, then
    the host is ``host`` or, where that is "", the one of number ``seat`` modulo the hosts of the
    placement.
    """

    number: int
    kind: Kind
    at_step: int = -1
    after_s: float = -1.0
    for_s: float = 0.0
    rank: int = -1
    host: str = ""
    seat: int = 0
    service: str = ""
    options: dict[str, Any]

    def as_fault(self) -> Fault:
        """Return what the rank is to do. Only of kinds that ranks carry out themselves."""
        assert self.kind.make is not None, "the stack carries it out"
        return self.kind.make(self.rank, self.at_step, self.options)

    def __str__(self) -> str:
        when = f"at step {self.at_step}" if self.at_step >= 0 else f"after {self.after_s:g} s"
        lasts = f" for {self.for_s:g} s" if self.for_s else ""
        options = "".join(
            f", {name} {value}"
            for name, value in self.options.items()
            if value != self.kind.options[name]
        )
        return f"{when}: {self.kind.name} of {self._whom()}{lasts}{options}"

    def _whom(self) -> str:
        match self.kind.whom:
            case Whom.RANK:
                return f"rank {self.rank}"
            case Whom.SERVICE:
                return self.service
            case Whom.JOB:
                return "all ranks"
            case Whom.HOST if self.rank >= 0:
                return f"the host of rank {self.rank}"
            case Whom.HOST:
                return f"host {self.host}" if self.host else f"the job's host number {self.seat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """All that will be done."""

    name: str
    seed: int
    faults: tuple[Planned, ...]


def parse_campaign(document: Any, *, world_size: int) -> Campaign:
    """Check a campaign and decide what is random in it.

    Args:
        document: as read from YAML.
        world_size: ranks of the job.

    Raises:
        InvalidInput: it is none; the message says which fault and what would do.
    """
    if not isinstance(document, dict):
        raise InvalidInput("a campaign is a mapping with version, seed and faults")
    file = _converted(document, _File, "campaign")
    if file.version != VERSION:
        raise InvalidInput(f"campaign version {file.version} is not known: this is {VERSION}")
    first, last = file.window
    if not 0 <= first <= last:
        raise InvalidInput(f"window [{first}, {last}] is no range of steps")
    chance = seeded(f"{file.seed} {file.name}")
    entries = [*file.faults, *_drawn(file.random, chance)]
    if not entries:
        raise InvalidInput("the campaign has no faults: give `faults`, or `random`")
    if len(entries) > FAULTS_MAX:
        raise InvalidInput(f"{len(entries)} faults are more than {FAULTS_MAX}")
    planned = tuple(
        _planned(number, entry, file.window, world_size, chance)
        for number, entry in enumerate(entries)
    )
    return Campaign(name=file.name, seed=file.seed, faults=planned)


def _drawn(draw: _Draw | None, chance: random.Random) -> list[dict[str, Any]]:
    if draw is None:
        return []
    if draw.count < 1 or not draw.kinds:
        raise InvalidInput("random: give a count of at least 1, and the kinds to choose from")
    found = []
    for _ in range(draw.count):
        name = chance.choice(draw.kinds)
        entry = {"kind": name, "at_step": RANDOM}
        kind = KINDS.get(name)
        if kind is not None and kind.whom is Whom.SERVICE:
            entry["service"] = chance.choice([*SERVERS, *SERVICES])
        elif kind is not None and kind.whom is not Whom.JOB:
            entry[kind.whom.value] = RANDOM
        found.append(entry)
    return found


def _planned(
    number: int,
    entry: dict[str, Any],
    window: tuple[int, int],
    world_size: int,
    chance: random.Random,
) -> Planned:
    where = f"faults[{number}]"
    common = {name: value for name, value in entry.items() if name in _COMMON}
    when = _converted(common, _When, where)
    kind = KINDS.get(when.kind)
    if kind is None:
        known = ", ".join(KINDS)
        raise InvalidInput(f"{where}: there is no kind {when.kind!r}; there are {known}")
    where = f"{where} ({kind.name})"
    options = _options(kind, {n: v for n, v in entry.items() if n not in _COMMON}, where)
    # All are drawn for every fault, so that one that is written out changes no other.
    steps, ranks, seats = (
        chance.randint(*window), chance.randrange(world_size), chance.randrange(1 << 16)
    )  # fmt: skip
    at_step = steps if when.at_step == RANDOM else when.at_step
    if (at_step is None) == (when.after_s is None):
        raise InvalidInput(f"{where}: say when it strikes: at_step or after_s, one of them")
    if at_step is None and kind.by is By.RANK:
        raise InvalidInput(f"{where}: ranks know steps, not times: say at_step")
    if when.for_s is not None and not kind.lasts_s:
        raise InvalidInput(f"{where}: it is a moment and takes no for_s")
    if min(at_step or 0, when.after_s or 0, when.for_s or 0) < 0:
        raise InvalidInput(f"{where}: moments and lengths are not negative")
    rank = ranks if when.rank == RANDOM else when.rank
    _check_whom(kind, when, rank, world_size, where)
    return Planned(
        number=number,
        kind=kind,
        at_step=-1 if at_step is None else int(at_step),
        after_s=-1.0 if when.after_s is None else when.after_s,
        for_s=kind.lasts_s if when.for_s is None else when.for_s,
        rank=-1 if rank is None else int(rank),
        host="" if when.host == RANDOM else when.host,
        seat=seats,
        service=when.service.replace("-", "_"),
        options=options,
    )


def _check_whom(kind: Kind, when: _When, rank: Any, world_size: int, where: str) -> None:
    match kind.whom:
        case Whom.RANK if rank is None:
            raise InvalidInput(f"{where}: say which rank: a number, or random")
        case Whom.HOST if (rank is None) == (not when.host):
            raise InvalidInput(f"{where}: say which host: a name, random, or the rank it serves")
        case Whom.SERVICE if when.service.replace("-", "_") not in (*SERVERS, *SERVICES):
            known = ", ".join((*SERVERS, *SERVICES))
            raise InvalidInput(f"{where}: service {when.service!r} is none of {known}")
        case _:
            pass
    if rank is not None and not 0 <= rank < world_size:
        raise InvalidInput(f"{where}: rank {rank} is none of the job's {world_size} ranks")


def _options(kind: Kind, given: dict[str, Any], where: str) -> dict[str, Any]:
    unknown = sorted(given.keys() - kind.options.keys())
    if unknown:
        known = ", ".join(sorted(kind.options)) or "no options"
        raise InvalidInput(f"{where}: does not take {', '.join(unknown)}; it takes {known}")
    found = dict(kind.options)
    for name, value in given.items():
        wanted = type(kind.options[name])
        fits = isinstance(value, wanted) or (wanted is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and wanted is not bool):
            raise InvalidInput(f"{where}: {name} is {value!r}, expected {wanted.__name__}")
        found[name] = wanted(value)
    return found


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where}: {error}") from None
