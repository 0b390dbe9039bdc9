"""How job events are stored: type name and version -> class."""

from __future__ import annotations

from typing import Final

from everstep.controller import events as e
from everstep.controller.commands import Command
from everstep.controller.decider import decide
from everstep.controller.state import Job, evolve
from everstep.eventstore.codec import EventCodec
from everstep.service.handler import Aggregate

CODEC: Final[EventCodec[e.Event]] = EventCodec(
    {
        "job_submitted.v1": e.JobSubmitted,
        "generation_begun.v1": e.GenerationBegun,
        "hosts_fenced.v1": e.HostsFenced,
        "placement_decided.v1": e.PlacementDecided,
        "hosts_short.v1": e.HostsShort,
        "restore_decided.v1": e.RestoreDecided,
        "ranks_started.v1": e.RanksStarted,
        "job_running.v1": e.JobRunning,
        "pause_requested.v1": e.PauseRequested,
        "drain_requested.v1": e.DrainRequested,
        "job_paused.v1": e.JobPaused,
        "stop_requested.v1": e.StopRequested,
        "checkpoint_requested.v1": e.CheckpointRequested,
        "job_succeeded.v1": e.JobSucceeded,
        "job_failed.v1": e.JobFailed,
        "job_stopped.v1": e.JobStopped,
        "incident_noted.v1": e.IncidentNoted,
        "interval_changed.v1": e.IntervalChanged,
        "interval_in_force.v1": e.IntervalInForce,
    }
)

STREAM_PREFIX: Final = "job-"


def stream_of(command: Command) -> str:
    """Return the stream that ``command`` addresses."""
    return STREAM_PREFIX + command.job_id


AGGREGATE: Final[Aggregate[Command, Job, e.Event]] = Aggregate(
    name="job", stream_of=stream_of, initial=Job, decide=decide, evolve=evolve, codec=CODEC
)
