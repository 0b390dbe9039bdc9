from everstep.wire.v1 import checkpoints_pb2 as _checkpoints_pb2
from everstep.wire.v1 import hosts_pb2 as _hosts_pb2
from everstep.wire.v1 import incidents_pb2 as _incidents_pb2
from everstep.wire.v1 import jobs_pb2 as _jobs_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventEnvelope(_message.Message):
    __slots__ = ("event_id", "service", "stream", "version", "position", "type", "recorded_at_ms", "traceparent", "host_joined", "host_left", "host_cordoned", "host_uncordoned", "host_errors_counted", "job_placed", "job_released", "host_returning", "host_probed", "maintenance_planned", "maintenance_ended", "job_submitted", "generation_begun", "hosts_fenced", "placement_decided", "hosts_short", "restore_decided", "ranks_started", "job_running", "pause_requested", "job_paused", "stop_requested", "checkpoint_requested", "job_succeeded", "job_failed", "job_stopped", "interval_changed", "interval_in_force", "drain_requested", "shards_stored", "shards_refused", "checkpoint_completed", "checkpoint_deleted", "restore_planned", "checkpoints_suspected", "suspicion_ended", "trust_decided", "checkpoint_pinned", "checkpoint_unpinned", "incident_opened", "incident_recovered", "generation_progressed", "run_finished", "rank_ended", "job_marked", "source_refused", "incident_closed", "stray_found", "tie_found")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    HOST_JOINED_FIELD_NUMBER: _ClassVar[int]
    HOST_LEFT_FIELD_NUMBER: _ClassVar[int]
    HOST_CORDONED_FIELD_NUMBER: _ClassVar[int]
    HOST_UNCORDONED_FIELD_NUMBER: _ClassVar[int]
    HOST_ERRORS_COUNTED_FIELD_NUMBER: _ClassVar[int]
    JOB_PLACED_FIELD_NUMBER: _ClassVar[int]
    JOB_RELEASED_FIELD_NUMBER: _ClassVar[int]
    HOST_RETURNING_FIELD_NUMBER: _ClassVar[int]
    HOST_PROBED_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_PLANNED_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_ENDED_FIELD_NUMBER: _ClassVar[int]
    JOB_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_BEGUN_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FENCED_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_DECIDED_FIELD_NUMBER: _ClassVar[int]
    HOSTS_SHORT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_DECIDED_FIELD_NUMBER: _ClassVar[int]
    RANKS_STARTED_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    JOB_PAUSED_FIELD_NUMBER: _ClassVar[int]
    STOP_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    JOB_SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    JOB_FAILED_FIELD_NUMBER: _ClassVar[int]
    JOB_STOPPED_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_CHANGED_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_STORED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_DELETED_FIELD_NUMBER: _ClassVar[int]
    RESTORE_PLANNED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_SUSPECTED_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_ENDED_FIELD_NUMBER: _ClassVar[int]
    TRUST_DECIDED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_PINNED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_UNPINNED_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_OPENED_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_RECOVERED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_PROGRESSED_FIELD_NUMBER: _ClassVar[int]
    RUN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    RANK_ENDED_FIELD_NUMBER: _ClassVar[int]
    JOB_MARKED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REFUSED_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_CLOSED_FIELD_NUMBER: _ClassVar[int]
    STRAY_FOUND_FIELD_NUMBER: _ClassVar[int]
    TIE_FOUND_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    service: str
    stream: str
    version: int
    position: int
    type: str
    recorded_at_ms: int
    traceparent: str
    host_joined: _hosts_pb2.HostJoined
    host_left: _hosts_pb2.HostLeft
    host_cordoned: _hosts_pb2.HostCordoned
    host_uncordoned: _hosts_pb2.HostUncordoned
    host_errors_counted: _hosts_pb2.HostErrorsCounted
    job_placed: _hosts_pb2.JobPlaced
    job_released: _hosts_pb2.JobReleased
    host_returning: _hosts_pb2.HostReturning
    host_probed: _hosts_pb2.HostProbed
    maintenance_planned: _hosts_pb2.MaintenancePlanned
    maintenance_ended: _hosts_pb2.MaintenanceEnded
    job_submitted: _jobs_pb2.JobSubmitted
    generation_begun: _jobs_pb2.GenerationBegun
    hosts_fenced: _jobs_pb2.HostsFenced
    placement_decided: _jobs_pb2.PlacementDecided
    hosts_short: _jobs_pb2.HostsShort
    restore_decided: _jobs_pb2.RestoreDecided
    ranks_started: _jobs_pb2.RanksStarted
    job_running: _jobs_pb2.JobRunning
    pause_requested: _jobs_pb2.PauseRequested
    job_paused: _jobs_pb2.JobPaused
    stop_requested: _jobs_pb2.StopRequested
    checkpoint_requested: _jobs_pb2.CheckpointRequested
    job_succeeded: _jobs_pb2.JobSucceeded
    job_failed: _jobs_pb2.JobFailed
    job_stopped: _jobs_pb2.JobStopped
    interval_changed: _jobs_pb2.IntervalChanged
    interval_in_force: _jobs_pb2.IntervalInForce
    drain_requested: _jobs_pb2.DrainRequested
    shards_stored: _checkpoints_pb2.ShardsStored
    shards_refused: _checkpoints_pb2.ShardsRefused
    checkpoint_completed: _checkpoints_pb2.CheckpointCompleted
    checkpoint_deleted: _checkpoints_pb2.CheckpointDeleted
    restore_planned: _checkpoints_pb2.RestorePlanned
    checkpoints_suspected: _checkpoints_pb2.CheckpointsSuspected
    suspicion_ended: _checkpoints_pb2.SuspicionEnded
    trust_decided: _checkpoints_pb2.TrustDecided
    checkpoint_pinned: _checkpoints_pb2.CheckpointPinned
    checkpoint_unpinned: _checkpoints_pb2.CheckpointUnpinned
    incident_opened: _incidents_pb2.IncidentOpened
    incident_recovered: _incidents_pb2.IncidentRecovered
    generation_progressed: _incidents_pb2.GenerationProgressed
    run_finished: _incidents_pb2.RunFinished
    rank_ended: _incidents_pb2.RankEnded
    job_marked: _incidents_pb2.JobMarked
    source_refused: _incidents_pb2.SourceRefused
    incident_closed: _incidents_pb2.IncidentClosed
    stray_found: _incidents_pb2.StrayFound
    tie_found: _incidents_pb2.TieFound
    def __init__(self, event_id: _Optional[str] = ..., service: _Optional[str] = ..., stream: _Optional[str] = ..., version: _Optional[int] = ..., position: _Optional[int] = ..., type: _Optional[str] = ..., recorded_at_ms: _Optional[int] = ..., traceparent: _Optional[str] = ..., host_joined: _Optional[_Union[_hosts_pb2.HostJoined, _Mapping]] = ..., host_left: _Optional[_Union[_hosts_pb2.HostLeft, _Mapping]] = ..., host_cordoned: _Optional[_Union[_hosts_pb2.HostCordoned, _Mapping]] = ..., host_uncordoned: _Optional[_Union[_hosts_pb2.HostUncordoned, _Mapping]] = ..., host_errors_counted: _Optional[_Union[_hosts_pb2.HostErrorsCounted, _Mapping]] = ..., job_placed: _Optional[_Union[_hosts_pb2.JobPlaced, _Mapping]] = ..., job_released: _Optional[_Union[_hosts_pb2.JobReleased, _Mapping]] = ..., host_returning: _Optional[_Union[_hosts_pb2.HostReturning, _Mapping]] = ..., host_probed: _Optional[_Union[_hosts_pb2.HostProbed, _Mapping]] = ..., maintenance_planned: _Optional[_Union[_hosts_pb2.MaintenancePlanned, _Mapping]] = ..., maintenance_ended: _Optional[_Union[_hosts_pb2.MaintenanceEnded, _Mapping]] = ..., job_submitted: _Optional[_Union[_jobs_pb2.JobSubmitted, _Mapping]] = ..., generation_begun: _Optional[_Union[_jobs_pb2.GenerationBegun, _Mapping]] = ..., hosts_fenced: _Optional[_Union[_jobs_pb2.HostsFenced, _Mapping]] = ..., placement_decided: _Optional[_Union[_jobs_pb2.PlacementDecided, _Mapping]] = ..., hosts_short: _Optional[_Union[_jobs_pb2.HostsShort, _Mapping]] = ..., restore_decided: _Optional[_Union[_jobs_pb2.RestoreDecided, _Mapping]] = ..., ranks_started: _Optional[_Union[_jobs_pb2.RanksStarted, _Mapping]] = ..., job_running: _Optional[_Union[_jobs_pb2.JobRunning, _Mapping]] = ..., pause_requested: _Optional[_Union[_jobs_pb2.PauseRequested, _Mapping]] = ..., job_paused: _Optional[_Union[_jobs_pb2.JobPaused, _Mapping]] = ..., stop_requested: _Optional[_Union[_jobs_pb2.StopRequested, _Mapping]] = ..., checkpoint_requested: _Optional[_Union[_jobs_pb2.CheckpointRequested, _Mapping]] = ..., job_succeeded: _Optional[_Union[_jobs_pb2.JobSucceeded, _Mapping]] = ..., job_failed: _Optional[_Union[_jobs_pb2.JobFailed, _Mapping]] = ..., job_stopped: _Optional[_Union[_jobs_pb2.JobStopped, _Mapping]] = ..., interval_changed: _Optional[_Union[_jobs_pb2.IntervalChanged, _Mapping]] = ..., interval_in_force: _Optional[_Union[_jobs_pb2.IntervalInForce, _Mapping]] = ..., drain_requested: _Optional[_Union[_jobs_pb2.DrainRequested, _Mapping]] = ..., shards_stored: _Optional[_Union[_checkpoints_pb2.ShardsStored, _Mapping]] = ..., shards_refused: _Optional[_Union[_checkpoints_pb2.ShardsRefused, _Mapping]] = ..., checkpoint_completed: _Optional[_Union[_checkpoints_pb2.CheckpointCompleted, _Mapping]] = ..., checkpoint_deleted: _Optional[_Union[_checkpoints_pb2.CheckpointDeleted, _Mapping]] = ..., restore_planned: _Optional[_Union[_checkpoints_pb2.RestorePlanned, _Mapping]] = ..., checkpoints_suspected: _Optional[_Union[_checkpoints_pb2.CheckpointsSuspected, _Mapping]] = ..., suspicion_ended: _Optional[_Union[_checkpoints_pb2.SuspicionEnded, _Mapping]] = ..., trust_decided: _Optional[_Union[_checkpoints_pb2.TrustDecided, _Mapping]] = ..., checkpoint_pinned: _Optional[_Union[_checkpoints_pb2.CheckpointPinned, _Mapping]] = ..., checkpoint_unpinned: _Optional[_Union[_checkpoints_pb2.CheckpointUnpinned, _Mapping]] = ..., incident_opened: _Optional[_Union[_incidents_pb2.IncidentOpened, _Mapping]] = ..., incident_recovered: _Optional[_Union[_incidents_pb2.IncidentRecovered, _Mapping]] = ..., generation_progressed: _Optional[_Union[_incidents_pb2.GenerationProgressed, _Mapping]] = ..., run_finished: _Optional[_Union[_incidents_pb2.RunFinished, _Mapping]] = ..., rank_ended: _Optional[_Union[_incidents_pb2.RankEnded, _Mapping]] = ..., job_marked: _Optional[_Union[_incidents_pb2.JobMarked, _Mapping]] = ..., source_refused: _Optional[_Union[_incidents_pb2.SourceRefused, _Mapping]] = ..., incident_closed: _Optional[_Union[_incidents_pb2.IncidentClosed, _Mapping]] = ..., stray_found: _Optional[_Union[_incidents_pb2.StrayFound, _Mapping]] = ..., tie_found: _Optional[_Union[_incidents_pb2.TieFound, _Mapping]] = ...) -> None: ...
