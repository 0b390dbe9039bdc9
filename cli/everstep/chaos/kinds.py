"""Which faults there are, whom they meet, and what a control plane must make of them. Pure.

A kind whose ``by`` is RANK is carried out within the rank (``everstep.faults.kinds``), all others
from outside by the supervisor. ``Right`` is what counts as a right answer to a fault: which
incidents, and who is blamed. Some faults must come to nothing at all, which is an answer too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from everstep.faults.kinds import EVERY_RANK, Fault, How, Part, at


class By(StrEnum):
    """Who carries a fault out."""

    RANK = "rank"
    STACK = "stack"


class Whom(StrEnum):
    """Whom a fault meets."""

    RANK = "rank"
    HOST = "host"
    SERVICE = "service"
    JOB = "job"


class Blamed(StrEnum):
    """Who must be named."""

    RANK = "rank"  # the rank, and the host that it was on
    AMONG = "among"  # the rank is one of those named, and none of them is taken out
    HOST = "host"  # the host, with whatever ranks
    NOBODY = "nobody"  # the incident names no host
    NO_INCIDENT = "no_incident"  # nothing happens to the run


class Equal(StrEnum):
    """What the end state must be equal to."""

    UNDISTURBED = "undisturbed"  # the run without faults
    SKIPPED = "skipped"  # the run that never saw the batches that were left out
    NOTHING = "nothing"  # no run that we could make


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What is right.

    Args:
        blamed: who must be named.
        incidents: kinds of which one must come; () with NO_INCIDENT.
        equal: what the end state must be equal to.
        refused: whether a copy of the state must have been refused by its checksum.
        named_later: whether a second incident must name the host alone, where the first could only
            say that it is among several.
    """

    blamed: Blamed
    incidents: tuple[str, ...] = ()
    equal: Equal = Equal.UNDISTURBED
    refused: bool = False
    named_later: bool = False


Make = Callable[[int, int, Mapping[str, Any]], Fault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault.

    Args:
        name: in campaigns.
        about: what is done, in one line.
        whom: it meets.
        right: what counts as right.
        options: with their defaults; a value in a campaign must be of the same type.
        lasts_s: how long it lasts unless the campaign says; 0: it is a moment.
        make: the rank's fault of (rank, step, options); None: the stack carries it out.
    """

    name: str
    about: str
    whom: Whom
    right: Right
    options: Mapping[str, Any] = field(default_factory=dict)
    lasts_s: float = 0.0
    make: Make | None = None

    @property
    def by(self) -> By:
        """Who carries it out."""
        return By.STACK if self.make is None else By.RANK


SERVERS: Final = ("nats", "postgres", "s3")
SERVICES: Final = ("controller", "monitor", "checkpoint_registry", "host_inventory")
_CORRUPT: Final = Right(blamed=Blamed.RANK, incidents=("silent_corruption",))
_LOST: Final = Right(blamed=Blamed.HOST, incidents=("host_lost",))
_NOTHING: Final = Right(blamed=Blamed.NO_INCIDENT)
_KILLED: Final = Right(blamed=Blamed.RANK, incidents=("rank_killed",))
_STOPPED: Final = Right(blamed=Blamed.RANK, incidents=("rank_stopped",))
# All ranks of a tensor-parallel group, which are of one host, get what a wrong activation leads to.
_CORRUPT_HOST: Final = Right(blamed=Blamed.HOST, incidents=("silent_corruption",))
_TIED: Final = Right(blamed=Blamed.AMONG, incidents=("silent_corruption",), named_later=True)
_FLIP: Final = {"tensor": "", "element": -1, "bit": -1}
FAULTY_STEPS: Final = 12  # as many as make groups compare with more than one other


def _flip(part: Part) -> Make:
    return lambda rank, step, options: at(rank=rank, step=step).flip(part, **options)


def _flips() -> tuple[Kind, ...]:
    kept = {  # each rank's copy stays wrong, and says so at each comparison
        Part.PARAMETER: "a bit of a parameter is flipped, behind an update",
        Part.MOMENT: "a bit of an optimizer's moment is flipped, behind an update",
        Part.REDUCED_GRADIENT: "a bit of a reduced gradient is flipped, on one rank",
    }
    shared = {  # all get the same wrong sum
        Part.GRADIENT: "a bit of a rank's gradient, before it is reduced, is flipped",
        Part.ACTIVATION: "a bit of an activation in a forward pass is flipped",
    }
    return (
        *(_one_flip(f"flip_{part}", text, part, _CORRUPT, 1) for part, text in kept.items()),
        *(
            _one_flip(f"flip_{part}", f"{text}, step after step", part, right, FAULTY_STEPS)
            for (part, text), right in zip(shared.items(), (_CORRUPT, _CORRUPT_HOST), strict=True)
        ),
        # It takes two to compare: who was wrong once shows when the step is made again.
        *(
            _one_flip(f"flip_{part}_once", f"{text}, once", part, _TIED, 1)
            for part, text in shared.items()
        ),
    )


def _one_flip(name: str, about: str, part: Part, right: Right, steps: int) -> Kind:
    options = {**_FLIP, "steps": steps}
    return Kind(
        name=name, about=about, whom=Whom.RANK, right=right, options=options, make=_flip(part)
    )


_RANK_KINDS: Final = (
    Kind(
        name="kill", about="a rank ends itself by SIGKILL within a step", whom=Whom.RANK,
        right=_KILLED, make=lambda rank, step, _: at(rank=rank, step=step).kill(),
    ),
    Kind(
        name="stop", about="a rank stops itself by SIGSTOP within a step", whom=Whom.RANK,
        right=_STOPPED, make=lambda rank, step, _: at(rank=rank, step=step).stop(),
    ),
    Kind(
        name="spin", about="a rank computes without end", whom=Whom.RANK,
        right=Right(blamed=Blamed.RANK, incidents=("rank_spinning",)),
        make=lambda rank, step, _: at(rank=rank, step=step).spin(),
    ),
    Kind(
        name="block_loader", about="a rank's batch does not come", whom=Whom.RANK,
        right=Right(blamed=Blamed.RANK, incidents=("loader_blocked",)),
        make=lambda rank, step, _: at(rank=rank, step=step).block_loader(),
    ),
    Kind(
        name="raise", about="user code raises on a rank, once", whom=Whom.RANK,
        right=Right(blamed=Blamed.RANK, incidents=("user_error",)),
        options={"message": "injected"},
        make=lambda rank, step, options: at(rank=rank, step=step).raise_error(options["message"]),
    ),
    Kind(
        name="slow", about="a rank takes more time than it needs", whom=Whom.RANK,
        right=Right(blamed=Blamed.RANK, incidents=("straggler",)),
        options={"percent": 50.0, "sleep": False},
        make=lambda rank, step, options: at(rank=rank, step=step).slow(
            percent=options["percent"],
            how=How.SLEEP if options["sleep"] else How.COMPUTE,
            stays=True,
        ),
    ),
    Kind(
        name="nan_gradient", about="a rank's gradient is not finite", whom=Whom.RANK,
        right=Right(
            blamed=Blamed.RANK, incidents=("step_skipped",), equal=Equal.NOTHING
        ),
        make=lambda rank, step, _: at(rank=rank, step=step).nan_gradient(),
    ),
    Kind(
        name="poisoned_batch", about="targets of a data-parallel group are garbage", whom=Whom.RANK,
        right=Right(blamed=Blamed.NOBODY, incidents=("loss_spike",), equal=Equal.SKIPPED),
        options={"batches": 3},
        make=lambda rank, step, options: at(rank=rank, step=step).poisoned_batch(
            batches=options["batches"]
        ),
    ),
    Kind(
        name="loss_spike", about="an update wrecks the parameters on all ranks", whom=Whom.JOB,
        right=Right(blamed=Blamed.NOBODY, incidents=("loss_spike",), equal=Equal.SKIPPED),
        options={"factor": -6.0},
        make=lambda _, step, options: at(rank=EVERY_RANK, step=step).loss_spike(
            factor=options["factor"]
        ),
    ),
    *_flips(),
)  # fmt: skip

_STACK_KINDS: Final = (
    Kind(name="kill_rank", about="SIGKILL to a rank", whom=Whom.RANK, right=_KILLED),
    Kind(name="stop_rank", about="SIGSTOP to a rank", whom=Whom.RANK, right=_STOPPED),
    Kind(
        name="kill_host", about="a host with all its processes and memory is gone",
        whom=Whom.HOST, right=_LOST,
    ),
    Kind(
        name="stop_host", about="SIGSTOP to everything of a host, for a while", whom=Whom.HOST,
        right=Right(blamed=Blamed.HOST, incidents=("host_lost", "rank_stopped")), lasts_s=30.0,
    ),
    Kind(
        name="slow_host", about="a host's processes are stopped now and then", whom=Whom.HOST,
        right=Right(blamed=Blamed.HOST, incidents=("straggler",)),
        options={"percent": 50.0}, lasts_s=600.0,
    ),
    Kind(
        name="flaky_host", about="a host is gone, comes back, and is gone again", whom=Whom.HOST,
        right=_LOST, lasts_s=10.0,
    ),
    Kind(
        name="partition_host", about="nothing of a host is heard by others, nor hears them: its "
        "agent's connections are held, and its ranks, whose own cannot be, stopped",
        whom=Whom.HOST, right=Right(blamed=Blamed.HOST, incidents=("host_lost", "partitioned")),
        options={"cut": False}, lasts_s=30.0,
    ),
    Kind(
        name="isolate_agent", about="a host's agent is cut off, its ranks train on",
        whom=Whom.HOST, right=_NOTHING,
        options={"nats": True, "peers": True, "cut": False}, lasts_s=20.0,
    ),
    Kind(
        name="kill_agent", about="SIGKILL to a host's agent alone", whom=Whom.HOST, right=_NOTHING,
    ),
    Kind(
        name="kill_service", about="SIGKILL to a server or service, which is started again",
        whom=Whom.SERVICE, right=_NOTHING,
    ),
    Kind(
        name="stop_service", about="a server or service is down for a while", whom=Whom.SERVICE,
        right=_NOTHING, lasts_s=5.0,
    ),
    Kind(
        name="freeze_service", about="SIGSTOP to a server or service, for a while",
        whom=Whom.SERVICE, right=_NOTHING, lasts_s=5.0,
    ),
    Kind(
        name="s3_errors", about="the object store answers a host's agent with errors",
        whom=Whom.HOST, right=_NOTHING, options={"share": 0.5}, lasts_s=10.0,
    ),
    Kind(
        name="drop_messages", about="messages that a host's agent publishes are lost",
        whom=Whom.HOST, right=_NOTHING, options={"share": 0.2}, lasts_s=10.0,
    ),
    Kind(
        name="duplicate_messages", about="messages that a host's agent publishes come twice",
        whom=Whom.HOST, right=_NOTHING, options={"share": 0.5}, lasts_s=10.0,
    ),
    Kind(
        name="delay_messages", about="a host's agent hears and is heard later",
        whom=Whom.HOST, right=_NOTHING, options={"delay_ms": 300}, lasts_s=10.0,
    ),
    Kind(
        name="damage_snapshot", about="a bit of a rank's newest snapshot is flipped; then it dies",
        whom=Whom.RANK, options={"tensor": ""},
        right=Right(blamed=Blamed.RANK, incidents=("rank_killed",), refused=True),
    ),
    Kind(
        name="damage_object", about="a bit of a rank's newest stored shard is flipped; then its "
        "host and the host with the copies are gone",
        whom=Whom.RANK, right=Right(blamed=Blamed.HOST, incidents=("host_lost",), refused=True),
    ),
)  # fmt: skip

KINDS: Final[Mapping[str, Kind]] = {one.name: one for one in (*_RANK_KINDS, *_STACK_KINDS)}
