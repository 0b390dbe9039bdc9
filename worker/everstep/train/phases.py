"""Notes where in a step this rank is, for who looks at a run that stands still.

A stack tells what a rank does, not whether it may: user code that sleeps for a minute between two
steps evaluates or saves something, the same in the middle of a step is a hang. So the run notes it,
with one store into the memory that rank and agent share.
"""

from __future__ import annotations

from everstep.memory.control import Control, Phase
from everstep.memory.layout import control_path, rank_dir
from everstep.train.environment import RankEnvironment


class PhaseNote:
    """Says the phase to whoever looks; to nobody in a bare run.

    Args:
        environment: who this rank is.
    """

    def __init__(self, environment: RankEnvironment) -> None:
        self._control: Control | None = None
        if environment.memory_dir is not None:
            directory = rank_dir(environment.memory_dir, environment.job_id, environment.rank)
            self._control = Control(control_path(directory))

    def enter(self, phase: Phase) -> None:
        """Note that the rank is in another phase now."""
        if self._control is not None:
            self._control.phase = phase
