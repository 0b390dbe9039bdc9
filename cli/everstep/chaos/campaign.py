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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from everstep.chaos.document import CAMPAIGN, COMMON, DRAWN, OPTIONS, RANDOM, read_fields
from everstep.chaos.kinds import KINDS, SERVERS, SERVICES, By, Kind, Whom
from everstep.core.errors import InvalidInput
from everstep.faults.chance import seeded
from everstep.faults.kinds import Fault

VERSION: Final = 1
WINDOW: Final = (5, 30)  # past the first steps, which compile, and before a short job's end
# What a fault says of whom it meets, and who that is in words.
MEETS: Final[Mapping[Whom, tuple[str, ...]]] = {
    Whom.RANK: ("rank",), Whom.HOST: ("host", "rank"), Whom.SERVICE: ("service",), Whom.JOB: (),
}  # fmt: skip
MET: Final[Mapping[Whom, str]] = {
    Whom.RANK: "a rank, on whatever host", Whom.HOST: "a host", Whom.SERVICE: "a service",
    Whom.JOB: "all ranks of the job",
}  # fmt: skip
LINES: Final = frozenset({"nats", "peers"})  # options that say which connections a fault cuts
FAULTS_MAX: Final = 10_000  # a campaign of a day with a fault every ten seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _When:
    """The common part of a fault; its fields have been checked."""

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
    placement; ``job_hosts`` is how many those are, as far as is known (else 0).
    """

    number: int
    kind: Kind
    at_step: int = -1
    after_s: float = -1.0
    for_s: float = 0.0
    rank: int = -1
    host: str = ""
    seat: int = 0
    job_hosts: int = 0
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
                return f"host {self.host}" if self.host else self._drawn_host()

    def _drawn_host(self) -> str:
        if not self.job_hosts:
            return "one of the job's hosts (the seed says which, by how many there are)"
        number = self.seat % self.job_hosts + 1
        return f"host {number} of the job's {self.job_hosts}, in the order of their names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """All that will be done."""

    name: str
    seed: int
    faults: tuple[Planned, ...]

    def on_hosts(self, count: int) -> Campaign:
        """Return it for a job of so many hosts; 0: nobody knows."""
        faults = tuple(replace(one, job_hosts=count) for one in self.faults)
        return replace(self, faults=faults)


def parse_campaign(document: Any, *, world_size: int) -> Campaign:
    """Check a campaign and decide what is random in it.

    Args:
        document: as read from YAML.
        world_size: ranks of the job.

    Raises:
        InvalidInput: it is none; the message says which fault and what would do.
    """
    file = read_fields(document, CAMPAIGN, "", required=("version",))
    if file["version"] != VERSION:
        raise InvalidInput(f"version: expected {VERSION}, got {file['version']}")
    name, seed, window = file.get("name", "campaign"), file.get("seed", 0), file.get("window")
    chance = seeded(f"{seed} {name}")
    entries = [*file.get("faults", ()), *_drawn(file.get("random"), chance)]
    if not entries:
        raise InvalidInput("the campaign has no faults: give `faults`, or `random`")
    if len(entries) > FAULTS_MAX:
        raise InvalidInput(f"{len(entries)} faults are more than {FAULTS_MAX}")
    first, last = WINDOW if window is None else window
    planned = tuple(
        _planned(number, entry, (first, last), world_size, chance)
        for number, entry in enumerate(entries)
    )
    return Campaign(name=name, seed=seed, faults=planned)


def _drawn(given: Any, chance: random.Random) -> list[dict[str, Any]]:
    if given is None:
        return []
    draw = read_fields(given, DRAWN, "random", required=("count", "kinds"))
    if draw["count"] > FAULTS_MAX:
        raise InvalidInput(f"random.count: {draw['count']} faults are more than {FAULTS_MAX}")
    found = []
    for _ in range(draw["count"]):
        name = chance.choice(draw["kinds"])
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
    entry: Any,
    window: tuple[int, int],
    world_size: int,
    chance: random.Random,
) -> Planned:
    where = f"faults[{number}]"
    kind = _kind(entry, where)
    fields = {**COMMON, **{name: OPTIONS[name] for name in kind.options}}
    named = f"{where} ({kind.name})"
    given = read_fields(entry, fields, named)
    when = _When(**{name: value for name, value in given.items() if name in COMMON})
    options = {
        name: type(default)(given.get(name, default)) for name, default in kind.options.items()
    }
    where = named
    lines = options.keys() & LINES
    if lines and not any(options[line] for line in lines):
        raise InvalidInput(f"{where}: nothing is cut: let {' or '.join(sorted(lines))} be true")
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


def _kind(entry: Any, where: str) -> Kind:
    """Return a fault's kind; what else it may say depends on it."""
    told = entry.get("kind") if isinstance(entry, Mapping) else None
    if not isinstance(told, str):
        read_fields(entry, COMMON, where, required=("kind",))
    kind = KINDS.get(str(told))
    if kind is None:
        raise InvalidInput(f"{where}: there is no kind {told!r}; there are {', '.join(KINDS)}")
    return kind


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
    told = {"rank": rank is not None, "host": bool(when.host), "service": bool(when.service)}
    for name in (name for name, given in told.items() if given and name not in MEETS[kind.whom]):
        raise InvalidInput(f"{where}: {name} has no meaning here: it meets {MET[kind.whom]}")
    if rank is not None and not 0 <= rank < world_size:
        raise InvalidInput(f"{where}: rank {rank} is none of the job's {world_size} ranks")
