"""Says what a job that is not running yet waits for: which stage, since when, for whom.

A pure reading of the job's state and of the times of its generation's events. The one thing that
is not stored is why an action is tried again: only the process that tries knows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from everstep.controller.state import COMING_UP, MOVES, Job, Phase

NAMED_MAX: Final = 8  # hosts in one sentence


class Stage(StrEnum):
    """The stages of a generation, as in the API's ``stages_ms``."""

    FENCE = "fence"
    PLACE = "place"
    PLAN = "plan"
    START = "start"
    FIRST_STEP = "first_step"


class Awaited(StrEnum):
    """Who has to do something next."""

    HOSTS = "hosts"  # they have to answer
    SPARE = "spare"  # somebody has to add, start or uncordon a host
    INVENTORY = "host_inventory"
    REGISTRY = "checkpoint_registry"
    OBJECT_STORE = "object_store"  # some ranks load from it
    RANKS = "ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an action is being tried again, since when [ms since epoch], and in which generation."""

    action: str
    generation: int
    why: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a job waits for; ``trouble`` is what was answered to the newest try, "" if nothing."""

    stage: Stage
    since_ms: int
    awaited: Awaited
    why: str
    trouble: str = ""
    trouble_since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """How many ranks load from where."""

    own_memory: int = 0
    peer_memory: int = 0
    object_store: int = 0


def waits(
    job: Job,
    times: Mapping[str, int | None],
    sources: Sources,
    troubles: Mapping[str, Trouble],
) -> Waits | None:
    """Say what a job waits for; None if nothing is under way.

    Args:
        job: as its events make it.
        times: of its generation's events: ``begun_at_ms``, ``fenced_at_ms``, ... [ms since epoch].
        sources: of its restore, once there is one.
        troubles: what the newest try of an action came to, where it did not work.
    """
    if job.phase not in COMING_UP | {Phase.PAUSING, Phase.STOPPING}:
        return None
    found = _waits(job, times, sources)
    trouble = troubles.get(found.stage)
    if trouble is None or trouble.generation != job.generation:
        return found
    return replace(found, trouble=trouble.why, trouble_since_ms=trouble.since_ms)


def _waits(job: Job, times: Mapping[str, int | None], sources: Sources) -> Waits:
    begun = times.get("begun_at_ms") or 0
    if job.phase is Phase.WAITING_FOR_HOSTS:
        return Waits(
            stage=Stage.PLACE,
            since_ms=times.get("short_at_ms") or begun,
            awaited=Awaited.SPARE,
            why=f"{_count(job.missing, 'more host')}: add, start or uncordon some",
        )
    if not job.fenced:
        last = ", after a last common step" if job.cause in MOVES | {"pause", "stop"} else ""
        last += " that is stored when an earlier upload is over" if job.cause == "stop" else ""
        return Waits(
            stage=Stage.FENCE,
            since_ms=begun,
            awaited=Awaited.HOSTS,
            why=f"{_named(job.hosts_to_fence)} to end the ranks of the generation before{last}",
        )
    if not job.placed:
        return Waits(
            stage=Stage.PLACE,
            since_ms=begun,
            awaited=Awaited.INVENTORY,
            why="the inventory to give it hosts",
        )
    if job.restore_step is None:
        ready = (times.get("fenced_at_ms"), times.get("placed_at_ms"))
        return Waits(
            stage=Stage.PLAN,
            since_ms=max((at for at in ready if at), default=begun),
            awaited=Awaited.REGISTRY,
            why="the registry to say which step it goes on from",
        )
    if not job.started:
        hosts = job.placement.host_ids if job.placement is not None else ()
        return Waits(
            stage=Stage.START,
            since_ms=times.get("planned_at_ms") or begun,
            awaited=Awaited.HOSTS,
            why=f"{_named(hosts)} to start their ranks",
        )
    return Waits(
        stage=Stage.FIRST_STEP,
        since_ms=times.get("started_at_ms") or begun,
        awaited=Awaited.OBJECT_STORE if sources.object_store else Awaited.RANKS,
        why=_loading(job.restore_step, sources),
    )


def _loading(step: int, sources: Sources) -> str:
    if step < 0:
        return "the ranks to make their first step"
    counts = {
        "own memory": sources.own_memory,
        "a peer's memory": sources.peer_memory,
        "the object store": sources.object_store,
    }
    where = ", ".join(f"{count} from {name}" for name, count in counts.items() if count)
    slow = "; a store that does not answer is asked again" if sources.object_store else ""
    step_from = f"step {step} ({where})" if where else f"step {step}"
    return f"the ranks to load {step_from} and to make their first step{slow}"


def _named(hosts: tuple[str, ...]) -> str:
    left = len(hosts) - NAMED_MAX
    return ", ".join(hosts[:NAMED_MAX]) + (f" and {left} more" if left > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
