"""Reads who worked how long out of a recorded run, and looks for stragglers in it.

The format is that of the traces that ByteDance has published with "Understanding Stragglers in
Large Model Training Using What-if Analysis" (Lin et al., OSDI 2025): a Parquet file with a row for
each operation of each worker. A worker's own time of a step is the sum of its forward and backward
compute: the other operations wait for others. Who is slow is judged by what runs live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from everstep.core.errors import InvalidInput
from everstep.monitor.detectors.straggler import (
    UNKNOWN,
    Crew,
    Judgement,
    Limits,
    Part,
    judge,
    middle,
    relative,
)

COMPUTE: Final = ("forward-compute", "backward-compute")
COLUMNS: Final = ("rank", "stage", "step", "optype", "duration")
# A window of fewer steps says little about persistence; a shorter recording is refused.
STEPS_MIN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """Own times of a run; in the unit of the recording, since only ratios are used.

    Args:
        stages: of each rank that was recorded.
        own: of each step, in order: rank -> own time.
    """

    stages: Mapping[int, str]
    own: Mapping[int, Mapping[int, float]]

    def crew(self) -> Crew:
        """Return who does the same work; ranks that were not recorded are alone."""
        size = max(self.stages) + 1
        roles = [f"stage {self.stages[r]}" if r in self.stages else "none" for r in range(size)]
        return Crew(roles, [f"worker-{rank}" for rank in range(size)])


def read_trace(path: Path) -> RecordedSteps:
    """Read a trace.

    Raises:
        InvalidInput: it is no such trace.
        OSError: it cannot be read.
        ModuleNotFoundError: pyarrow is not installed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    with path.open("rb") as file:
        try:
            found = parquet.ParquetFile(file)
            missing = [name for name in COLUMNS if name not in found.schema_arrow.names]
            if missing:
                raise InvalidInput(
                    f"{path} has no column {', '.join(missing)}: expected a row for each operation "
                    f"with {', '.join(COLUMNS)}"
                )
            table = found.read(columns=list(COLUMNS))
        except pa.ArrowException as error:
            raise InvalidInput(f"{path} is no Parquet file: {error}") from None
    table = table.set_column(
        table.schema.get_field_index("optype"), "optype", table["optype"].cast(pa.string())
    )
    table = table.filter(pc.is_in(table["optype"], pa.array(COMPUTE)))
    sums = table.group_by(["step", "rank"]).aggregate([("duration", "sum")]).to_pylist()
    stages = table.group_by(["rank", "stage"]).aggregate([]).to_pylist()
    return _recorded(path, sums, stages)


def _recorded(
    path: Path, sums: list[dict[str, Any]], stages: list[dict[str, Any]]
) -> RecordedSteps:
    own: dict[int, dict[int, float]] = {}
    for row in sums:
        own.setdefault(row["step"], {})[row["rank"]] = row["duration_sum"] or 0.0
    if len(own) < STEPS_MIN:
        raise InvalidInput(
            f"{path} has {' and '.join(COMPUTE)} of {len(own)} steps: at least {STEPS_MIN} are "
            "needed to tell what persists"
        )
    of_rank: dict[int, list[str]] = {}
    for row in stages:
        of_rank.setdefault(row["rank"], []).append(str(row["stage"]))
    return RecordedSteps(
        stages={rank: "+".join(sorted(of_rank[rank])) for rank in sorted(of_rank)},
        own={step: own[step] for step in sorted(own)},
    )


def judgements(recorded: RecordedSteps, limits: Limits) -> Iterator[Judgement]:
    """Judge every window; a recording that is shorter than one is cut into shorter parts."""
    crew = recorded.crew()
    sizes = [window.parts for window in limits.windows]
    part_steps = max(1, min(limits.part_steps, len(recorded.own) // max(sizes)))
    steps = list(recorded.own)
    parts = []
    for begin in range(0, len(steps) - part_steps + 1, part_steps):
        within = steps[begin : begin + part_steps]
        rows = [
            relative([recorded.own[step].get(r, UNKNOWN) for r in range(len(crew.hosts))], crew)
            for step in within
        ]
        parts.append(Part(first_step=within[0], last_step=within[-1], ratios=middle(rows)))
    fitting = tuple(
        replace(window, parts=min(window.parts, len(parts))) for window in limits.windows
    )
    for end in range(min(window.parts for window in fitting), len(parts) + 1):
        kept = parts[max(0, end - max(sizes)) : end]
        yield judge(kept, crew, replace(limits, windows=fitting))
