"""The floor: how fast 8 fresh ranks can make a step when there is no control plane at all.

Four fork servers of the project's own, one for each host of the run, warm as they are after a host
was lost. The clock starts when they are asked to fork and stops when the last rank has made the
next step: fork, rendezvous, groups, model, load from shared memory, first step.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.contestants import floor_rank
from benchmarks.contestants.fork_servers import ForkServers
from benchmarks.support.processes import wait_for
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO

STEPS_BEFORE: Final = 3  # of the run whose state is then loaded again and again
RUN_S: Final = 90.0


class Floor:
    """The warm servers and the state in shared memory.

    Args:
        directory: for sockets, logs and the probe.
        corpus: token shards.
    """

    def __init__(self, directory: Path, corpus: Path) -> None:
        self._directory = directory
        self._corpus = corpus
        self._state = Path("/dev/shm") / f"everstep-bench-floor-{directory.parent.name}"
        self._servers = ForkServers(directory, "benchmarks.contestants.floor_rank:run")
        self._runs = 0

    def __enter__(self) -> Self:
        self._servers.__enter__()
        try:
            self._state.mkdir()
            self._run(first=1, last=STEPS_BEFORE, save=True)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._servers.__exit__(kind, error, trace)
        shutil.rmtree(self._state, ignore_errors=True)

    def measure(self) -> probe.Recovery:
        """Fork 8 ranks from the warm servers and return what they took to make the next step."""
        return self._run(first=STEPS_BEFORE + 1, last=STEPS_BEFORE + 1, save=False)

    def _run(self, *, first: int, last: int, save: bool) -> probe.Recovery:
        self._runs += 1
        notes = self._directory / f"probe-{self._runs}"
        notes.mkdir()
        environment = {
            "BENCH_CORPUS": str(self._corpus),
            probe.DIRECTORY_VARIABLE: str(notes),
            floor_rank.STATE_VARIABLE: str(self._state),
            floor_rank.STEPS_VARIABLE: str(last - first + 1),
            floor_rank.SAVE_VARIABLE: str(int(save)),
        }
        asked_at = time.time()
        self._servers.fork(environment)

        def done() -> probe.Recovery | None:
            return probe.recovery(probe.read(notes, DEMO.world_size), asked_at, last - 1)

        found = wait_for(done, RUN_S, f"the floor's ranks (logs in {self._directory})")
        self._servers.wait_for_ends(RUN_S)
        return found
