"""How the monitor's events are stored: type name and version -> class."""

from __future__ import annotations

from typing import Final

from everstep.eventstore.codec import EventCodec
from everstep.monitor import events as e
from everstep.monitor.commands import CloseHostIncident, Command, OpenIncident
from everstep.monitor.decider import decide
from everstep.monitor.state import Watch, evolve
from everstep.service.handler import Aggregate

CODEC: Final[EventCodec[e.Event]] = EventCodec(
    {
        "job_marked.v1": e.JobMarked,
        "source_refused.v1": e.SourceRefused,
        "rank_ended.v1": e.RankEnded,
        "incident_opened.v1": e.IncidentOpened,
        "tie_found.v1": e.TieFound,
        "step_audited.v1": e.StepAudited,
        "incident_recovered.v1": e.IncidentRecovered,
        "incident_closed.v1": e.IncidentClosed,
        "stray_found.v1": e.StrayFound,
        "generation_progressed.v1": e.GenerationProgressed,
        "run_finished.v1": e.RunFinished,
    }
)

WATCH_PREFIX: Final = "watch-"
HOST_PREFIX: Final = "host-"


def watch_stream(job_id: str) -> str:
    """Return the stream of a job's watch."""
    return WATCH_PREFIX + job_id


def stream_of(command: Command) -> str:
    """Return the stream that ``command`` addresses: a job's watch or an idle host's."""
    if isinstance(command, CloseHostIncident):
        return HOST_PREFIX + command.host_id
    if isinstance(command, OpenIncident) and not command.job_id:
        return HOST_PREFIX + command.hosts[0]
    return watch_stream(command.job_id)


AGGREGATE: Final[Aggregate[Command, Watch, e.Event]] = Aggregate(
    name="watch", stream_of=stream_of, initial=Watch, decide=decide, evolve=evolve, codec=CODEC
)
