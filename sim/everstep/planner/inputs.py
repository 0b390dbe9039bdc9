"""What a plan starts from: the run, the cluster, how it fails and how it saves; and the presets.

One table describes every input once, for the command line's options, for sweeps and for reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.planner.quantities import BYTES, COUNT, RATE, SHARE, TIME, Dimension

HOURS_S: Final = 3600.0
DAYS_S: Final = 24 * HOURS_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All inputs in base units: seconds, bytes, bytes per second, shares of 1.

    Defaults that the preset `mission` does not give are chosen, not measured, unless a source is
    named; ``PARAMETERS`` says what each means. ``None`` is derived from the others.
    """

    params: float
    tokens: float
    chips: float
    chip_flops: float
    mfu: float
    chip_mtbf: float
    stall: float
    restart: float
    detection: float = 0.0
    interval: float | None = None
    chips_per_host: float = 8
    bytes_per_param: float = 16.0  # bf16 weights, fp32 master weights, two fp32 Adam moments
    copy_bandwidth: float = 10e9  # a chip's share of a PCIe 5 link with eight chips copying at once
    upload_bandwidth: float = 500e9
    upload_slowdown: float = 0.0
    uploads_at_once: float = 1
    memory_loss: float = 0.02
    object_stall: float | None = None
    object_restart: float | None = None
    slow: float = 0.0
    replay: float = 0.0
    rollback: float = 0.0
    silent_mtbf: float | None = None
    verification: float = 1.0
    host_loss: float = 1.0
    repair: float = DAYS_S
    repair_spread: float = 1.2  # LANL systems 18 and 20: 1.22 and 1.13
    rate_spread: float = 0.5  # LANL systems 18 and 20 over their whole life: 0.54 and 1.37
    patience: float = 0.0
    quantile: float = 0.99

    @property
    def hosts(self) -> int:
        """Hosts that train; the last one may be partly used."""
        return -int(-self.chips // self.chips_per_host)


# Spares are counted from 20,000 simulated lost hosts: beyond it a quantile is decided by ten.
QUANTILE_MAX: Final = 0.9995
SPREAD_MAX: Final = 3.0  # recorded ones are 0.5 to 1.4; from 4 on, most draws miss what the mean is


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """How one input is written, and what it means."""

    dimension: Dimension
    help: str
    whole: bool = False
    positive: bool = True


def _time(text: str, *, positive: bool = False) -> Parameter:
    return Parameter(dimension=TIME, help=text, positive=positive)


def _share(text: str, *, positive: bool = False) -> Parameter:
    return Parameter(dimension=SHARE, help=text, positive=positive)


def _spread(text: str) -> Parameter:
    return Parameter(dimension=COUNT, help=text, positive=False)


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "params": Parameter(dimension=COUNT, help="Parameters of the model."),
    "tokens": Parameter(dimension=COUNT, help="Tokens to train on."),
    "chips": Parameter(dimension=COUNT, help="Accelerators that train.", whole=True),
    "chip_flops": Parameter(dimension=COUNT, help="Peak FLOP/s of one chip."),
    "mfu": _share("Model FLOPs utilization: share of the peak that is reached.", positive=True),
    "chip_mtbf": _time(
        "Mean time between failures of one chip with its share of host, network and memory.",
        positive=True,
    ),
    "stall": _time("Training stands still so long for each save.", positive=True),
    "restart": _time("From the decision to restart until training goes on."),
    "detection": _time("From a failure to that decision; 0 if it is part of the restart."),
    "interval": _time("Useful work between two saves; the best one if not given.", positive=True),
    "chips_per_host": Parameter(dimension=COUNT, help="Accelerators of a host.", whole=True),
    "bytes_per_param": Parameter(dimension=BYTES, help="Bytes of training state a parameter."),
    "copy_bandwidth": Parameter(dimension=RATE, help="Device to host memory, a chip."),
    "upload_bandwidth": Parameter(dimension=RATE, help="To the object store, all hosts together."),
    "upload_slowdown": _share("Share by which an upload slows training."),
    "uploads_at_once": Parameter(dimension=COUNT, help="Uploads in flight at most.", whole=True),
    "memory_loss": _share("Share of failures that no copy in host memory survives.", positive=True),
    "object_stall": _time("Stall of a save to the object store; --stall if not given."),
    "object_restart": _time(
        "Restart from the object store; --restart and the download if not given."
    ),
    "slow": _share("Share of time that stragglers cost."),
    "replay": _share("Share of steps run twice to find silent corruption."),
    "rollback": _share("Share of time lost to roll-backs after loss spikes."),
    "silent_mtbf": _time("Mean time between silent corruptions of the whole job.", positive=True),
    "verification": _time("Time to verify the state before a save."),
    "host_loss": _share("Share of failures that take their host out until it is repaired."),
    "repair": _time("Mean time until a lost host is back.", positive=True),
    "repair_spread": _spread("Spread of the log-normal repair times: sigma of their logarithm."),
    "rate_spread": _spread(
        "Spread of the failure rate from day to day: standard deviation over mean; 0 is Poisson."
    ),
    "patience": _time("How long a restart may wait for a spare."),
    "quantile": _share("Share of lost hosts for which the spares shall suffice.", positive=True),
}

MISSION: Final = Inputs(
    params=400e9,
    tokens=15e12,
    chips=16_384,
    chip_flops=1e15,
    mfu=0.4,
    chip_mtbf=50_000 * HOURS_S,
    stall=5.0,
    restart=120.0,
)
LLAMA3_405B: Final = Inputs(
    params=405e9,
    tokens=15.6e12,
    chips=16_384,
    chip_flops=989e12,  # H100 SXM, bf16 without sparsity
    mfu=0.41,  # table 4: 16,384 GPUs at 8k tokens a sequence
    chip_mtbf=54 * DAYS_S * 16_384 / 419,  # 419 unexpected interruptions in 54 days
    stall=5.0,  # not published; chosen
    restart=768.0,  # not published; a requeue of 16,384 GPUs in ByteRobust, arXiv:2509.16293
    upload_bandwidth=2e12,  # section 3.3.1: the storage sustains 2 TB/s
    silent_mtbf=54 * DAYS_S / 6,  # 6 of the 419 were silent corruptions
    host_loss=0.78,  # table 5: the share of hardware
)
LAB_64: Final = Inputs(
    params=7e9,
    tokens=300e9,
    chips=64,
    chip_flops=989e12,
    mfu=0.4,
    chip_mtbf=50_000 * HOURS_S,
    stall=2.0,
    restart=180.0,
    upload_bandwidth=2e9,  # one NFS or S3 server on 25 Gbit/s, less than its line rate
    repair=3 * DAYS_S,  # nobody is on duty at the weekend
)
PRESETS: Final[Mapping[str, Inputs]] = {
    "mission": MISSION,
    "llama3-405b": LLAMA3_405B,
    "lab-64": LAB_64,
}


def changed(base: Inputs, given: Mapping[str, float | None]) -> Inputs:
    """Return the inputs with some of them replaced; ``None`` leaves one as it is.

    Raises:
        InvalidInput: when they make no sense, with one sentence.
    """
    inputs = replace(base, **{name: value for name, value in given.items() if value is not None})
    for name, parameter in PARAMETERS.items():
        value = getattr(inputs, name)
        if value is None:
            continue
        if parameter.positive and value == 0:
            raise InvalidInput(f"{option(name)} is 0: it must be greater than 0")
        if parameter.whole and value != int(value):
            raise InvalidInput(f"{option(name)} is {value:g}: it must be a whole number")
    if inputs.replay + inputs.rollback >= 1 or inputs.slow == 1:
        raise InvalidInput("nothing is left to train with: lower --slow, --replay or --rollback")
    if inputs.quantile == 1:
        raise InvalidInput("no number of spares always suffices: give a --quantile below 1")
    if inputs.quantile > QUANTILE_MAX:
        raise InvalidInput(
            f"--quantile {inputs.quantile:.10g} asks for the worst of more lost hosts than are "
            f"simulated: {QUANTILE_MAX:g} at most"
        )
    for name in ("repair_spread", "rate_spread"):
        if getattr(inputs, name) > SPREAD_MAX:
            raise InvalidInput(
                f"{option(name)} is {getattr(inputs, name):g}: beyond {SPREAD_MAX:g} all that "
                "happens is too rare to be met in a simulation; LANL's systems have 0.5 to 1.4"
            )
    return inputs


def option(name: str) -> str:
    """Return an input's option."""
    return f"--{name.replace('_', '-')}"


def as_text(name: str, value: float | None) -> str:
    """Return an input's value as a person writes it; "" for one that is derived."""
    return "" if value is None else PARAMETERS[name].dimension.text(value)
