"""A scenario: the fleet, the job, what goes wrong and how fast it is put right, as a TOML file.

Every field has a default, so a scenario says what is special about it. The defaults are the
project's target: 16,384 chips that fail like Llama 3's, a restart of 60 s, the memory tier.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from everstep.core.elastic import groups_of
from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.fleet.cadence import Cadence

FOLDER: Final = Path(__file__).resolve().parents[2] / "scenarios"

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrNone = Annotated[int, msgspec.Meta(ge=0)]


class FleetPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines. ``hosts`` train, ``spares`` stand by; pods share power, switches a network.

    ``topology`` is a recorded network (``topologies/`` by name, or PATH.csv): then its aggregation
    blocks are the pods and its access switches the switches, and ``hosts_per_*`` stay as they are.
    """

    hosts: Count = 2_048
    spares: CountOrNone = 41  # 2 %
    hosts_per_pod: Count = 128
    hosts_per_switch: Count = 32
    topology: str = ""


class JobPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run. Ranks are ``pp x dp_shard x tp``, and ``tp`` chips are a host.

    ``no_spare`` and ``dp_min`` are the job spec's: whether the job waits for a host or goes on with
    fewer data-parallel groups, and with how many at the least.
    """

    pp: Count = 16
    dp_shard: Count = 128
    tp: Count = 8
    # Llama 3 405B (arXiv:2407.21783): 6 x 405e9 x 16.8e6 tokens a batch, 400 TFLOP/s a chip.
    step_s: Positive = 6.2
    restarts_per_hour_max: CountOrNone = 30
    no_spare: Literal["wait", "elastic"] = "wait"
    dp_min: Count = 1


class CheckpointPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What saving costs. ``state_gb`` goes out to the object store at ``store_gb_per_s`` in all.

    ``memory_every`` and ``object_every`` are steps between saves, 0 for never. With ``interval``
    auto they are what the job begins with, and the controller changes them, believing at first what
    the last two fields say of failures.
    """

    interval: Literal["steps", "auto"] = "steps"

    memory_every: CountOrNone = 1
    memory_stall_s: NotNegative = 0.02  # ByteRobust, arXiv:2509.16293, at 16,384 GPUs
    replicate_s: NotNegative = 2.0
    object_every: CountOrNone = 60
    object_stall_s: NotNegative = 0.0
    state_gb: NotNegative = 5_670.0  # 405e9 parameters x 14 bytes
    store_gb_per_s: Positive = 50.0
    keep_last: Count = 3
    believed_chip_mtbf_h: Positive = 50_000.0
    believed_memory_lost_share: Share = 0.02


class FailurePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often something breaks.

    ``job_mtbf_h`` is the mean time between failures of all training hosts together. Of the
    failures, ``rank_share`` end only a process, and ``sick_share`` are hosts that still answer
    probes while every process on them dies.
    """

    kind: Literal["exponential", "weibull", "trace"] = "exponential"
    job_mtbf_h: Positive = 3.05
    shape: Positive = 0.8
    trace: str = "lanl-18"
    rank_share: Share = 0.0
    sick_share: Share = 0.0
    infant_share: Share = 0.0  # of repaired hosts, these fail again after about infant_h
    infant_h: Positive = 6.0
    lemon_share: Share = 0.0  # of hosts, these fail lemon_factor times as often
    lemon_factor: Positive = 20.0
    pod_power_per_year: NotNegative = 0.0  # of one pod
    switch_per_year: NotNegative = 0.0  # of one switch
    group_down_h: Positive = 1.0


class DetectionPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From the failure to the verdict; ``probe_s`` of it is one round of probes."""

    host_s: NotNegative = 5.0
    rank_s: NotNegative = 1.0
    probe_s: NotNegative = 0.4
    false_alarms_per_day: NotNegative = 0.0
    false_alarm_checked_h: Positive = 1.0


class RestartPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From the verdict to training: the control plane's answers, then the ranks.

    ``ranks_s`` is the mean from the start commands to training; with ``spread`` each restart is
    drawn from what was measured, scaled to that mean.
    """

    fence_s: NotNegative = 0.2
    place_s: NotNegative = 0.1
    plan_s: NotNegative = 0.2
    start_s: NotNegative = 0.2
    ranks_s: NotNegative = 59.3
    spread: bool = True


class RepairPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log-normal: half of the hosts are back after ``median_h``."""

    median_h: Positive = 6.0
    sigma: NotNegative = 1.0


class NumericsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shows in the numbers of single steps: stragglers, loss spikes, silent corruption.

    They are modelled as an operator who restarts the job by the controller's own commands.
    """

    stragglers_per_day: NotNegative = 0.0
    straggler_factor: Annotated[float, msgspec.Meta(ge=1)] = 1.3
    straggler_found_s: NotNegative = 600.0
    straggler_heals_h: Positive = 4.0  # if no spare can take over
    spikes_per_day: NotNegative = 0.0
    spike_back_steps: CountOrNone = 100
    corruptions_per_day: NotNegative = 0.0
    corruption_found_h: NotNegative = 2.0


class AwayPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times without a control plane, and planned maintenance of training hosts."""

    control_per_day: NotNegative = 0.0
    control_min: Positive = 10.0
    maintenance_every_days: NotNegative = 0.0
    maintenance_hosts: CountOrNone = 8
    maintenance_h: Positive = 4.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a run of the simulation depends on, but for its seed and its length."""

    name: str = "default"
    about: str = ""
    fleet: FleetPart = FleetPart()
    job: JobPart = JobPart()
    checkpoint: CheckpointPart = CheckpointPart()
    failures: FailurePart = FailurePart()
    detection: DetectionPart = DetectionPart()
    restart: RestartPart = RestartPart()
    repair: RepairPart = RepairPart()
    numerics: NumericsPart = NumericsPart()
    away: AwayPart = AwayPart()

    @property
    def layout(self) -> Layout:
        """Return the job's layout."""
        return Layout(pp=self.job.pp, dp_shard=self.job.dp_shard, tp=self.job.tp)

    @property
    def upload_s(self) -> float:
        """Return how long a checkpoint takes to the object store, and a restore from it."""
        return self.checkpoint.state_gb / self.checkpoint.store_gb_per_s

    def cadence(
        self,
        layout: Layout | None = None,
        *,
        memory_every: int | None = None,
        object_every: int | None = None,
    ) -> Cadence:
        """Return when steps and saves happen, by default as often as the scenario says.

        Under a smaller ``layout`` the groups that remain do the work of those that are missing, so
        a step takes as much longer as there are fewer.

        One upload runs at a time, because all share one way out, and a slot is not overwritten
        before the peer has the copy: saves that would begin earlier are left out.
        """
        part = self.checkpoint
        whole_ms = round(self.job.step_s * 1e3)
        groups = self.job.dp_shard if layout is None else groups_of(layout)
        step_ms = round(self.job.step_s * 1e3 * self.job.dp_shard / groups)
        upload_ms, replicate_ms = round(self.upload_s * 1e3), round(part.replicate_s * 1e3)
        return Cadence(
            step_ms=step_ms,
            degraded_ms=step_ms - whole_ms,
            memory_every=_spaced(
                part.memory_every if memory_every is None else memory_every, step_ms, replicate_ms
            ),
            memory_stall_ms=round(part.memory_stall_s * 1e3),
            replicate_ms=replicate_ms,
            object_every=_spaced(
                part.object_every if object_every is None else object_every, step_ms, upload_ms
            ),
            object_stall_ms=round(part.object_stall_s * 1e3),
            upload_ms=upload_ms,
        )


def load(name: str) -> Scenario:
    """Read a scenario: a file, or one of ``sim/scenarios`` by its name.

    Raises:
        InvalidInput: there is no such file, or a field of it is wrong.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml"))) or "none"
        raise InvalidInput(
            f"there is no scenario {name!r}: expected a path that ends in .toml, or one of {known}"
        )
    return parse(path.read_text(), source=str(path))


def named() -> tuple[Scenario, ...]:
    """Return the scenarios of ``sim/scenarios``, by name."""
    return tuple(load(path.stem) for path in sorted(FOLDER.glob("*.toml")))


def parse(text: str, *, source: str = "the scenario") -> Scenario:
    """Check the text of a scenario. Raises InvalidInput, which names the field."""
    try:
        scenario = msgspec.convert(tomllib.loads(text), Scenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"{source}: {error}") from error
    return checked(scenario, source=source)


def checked(scenario: Scenario, *, source: str = "the scenario") -> Scenario:
    """Return the scenario if its fields fit together. Raises InvalidInput."""
    job, fleet = scenario.job, scenario.fleet
    if job.pp * job.dp_shard != fleet.hosts:
        raise InvalidInput(
            f"{source}: the layout needs pp x dp_shard = {job.pp * job.dp_shard} hosts and "
            f"fleet.hosts is {fleet.hosts}: make them equal"
        )
    even = FleetPart(hosts_per_pod=fleet.hosts_per_pod, hosts_per_switch=fleet.hosts_per_switch)
    if fleet.topology and even != FleetPart():
        raise InvalidInput(
            f"{source}: fleet.topology {fleet.topology!r} says what hangs together: leave out "
            "fleet.hosts_per_pod and fleet.hosts_per_switch"
        )
    if not scenario.checkpoint.memory_every and not scenario.checkpoint.object_every:
        raise InvalidInput(f"{source}: nothing is ever saved: set checkpoint.object_every")
    if scenario.checkpoint.interval == "auto" and not scenario.checkpoint.memory_every:
        raise InvalidInput(
            f"{source}: checkpoint.interval auto has a memory tier: set checkpoint.memory_every "
            "to at least 1, or the interval to steps"
        )
    return scenario


def _spaced(every: int, step_ms: int, takes_ms: int) -> int:
    """Return the smallest multiple of ``every`` steps that takes at least ``takes_ms``."""
    return every * max(-(-takes_ms // (every * step_ms)), 1) if every else 0
