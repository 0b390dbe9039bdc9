"""Whether a run that nothing befalls is left alone: 2,000 steps on a machine that others use too.

The real stack trains the demo's model with every detector at its default, while a process beside it
eats a core, on and off. Every incident, restart and drain is a false alarm. Run:
``make bench NAME=calm``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from benchmarks.contestants.ours import ENDED, Stack
from benchmarks.support import figures
from benchmarks.support.processes import end_in_order, say, wait_for
from benchmarks.workload.corpus import make_corpus
from benchmarks.workload.job import job_spec
from benchmarks.workload.training import DEMO

STEPS: Final = 2_000
RUN_S: Final = 7_200.0
TELL_S: Final = 30.0
# Long enough for a window of 40 steps to lie within either, short enough for many of both.
EATS_S: Final = 20.0
RESTS_S: Final = 25.0
EATER: Final = f"""
import time
while True:
    until = time.monotonic() + {EATS_S}
    while time.monotonic() < until:
        sum(range(1_000))
    time.sleep({RESTS_S})
"""


def main() -> None:
    """Run once, and print what was said about it."""
    parser = argparse.ArgumentParser(prog="benchmarks.calm", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    end_in_order()
    before = figures.machine()
    directory = Path(tempfile.mkdtemp(prefix="everstep-bench-"))
    try:
        corpus = make_corpus(directory)
        with Stack(directory / "stack", corpus) as stack, _eater():
            notes = directory / "notes"
            notes.mkdir()
            result = _run(stack, job_spec(DEMO, notes, corpus, steps=options.steps))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures.save(
        "calm",
        {
            **result,
            "eater_s": {"eats": EATS_S, "rests": RESTS_S},
            "versions": figures.versions(("everstep", "torch")),
            "machine": before,
        },
        keep=options.steps >= STEPS,
    )


def _run(stack: Stack, spec: dict[str, Any]) -> dict[str, Any]:
    del spec["env"]  # the probe's notes are of no use here
    spec["entry"] = "everstep.models.pretrain:main"
    del spec["args"]["sequence_tokens"]
    job_id = stack.submit(spec)
    busy: list[float] = []
    told_at = time.monotonic()

    def ended() -> dict[str, Any] | None:
        nonlocal told_at
        job = stack.client.job(job_id)
        if time.monotonic() - told_at >= TELL_S:
            told_at = time.monotonic()
            busy.append(psutil.getloadavg()[0])
            alarms = len(stack.client.incidents(job_id))
            say(f"{_step(stack, job_id)}, load {busy[-1]:.1f}, false alarms so far: {alarms}")
        return job if job["phase"] in ENDED else None

    job = wait_for(ended, RUN_S, f"the end of {job_id}")
    incidents = stack.client.incidents(job_id)
    points = stack.client.metrics(job_id)
    times = [one["step_time_ms"] for one in points]
    return {
        "steps": job["step"],
        "phase": job["phase"],
        "false_alarms": len(incidents),
        "false_alarms_by_kind": dict(sorted(Counter(one["kind"] for one in incidents).items())),
        "reasons": [one["reason"] for one in incidents],
        "generations": len(job["recoveries"]),
        "step_ms": figures.summary(times, 1),
        "step_ms_at_the_end": figures.summary(times[-100:], 1),
        "load_1_min": figures.summary(busy, 1),
    }


def _step(stack: Stack, job_id: str) -> str:
    newest = stack.client.metrics(job_id)[-1:]
    return f"step {newest[0]['step']}" if newest else "no step yet"


@contextmanager
def _eater() -> Iterator[None]:
    eater = subprocess.Popen([sys.executable, "-c", EATER])
    try:
        yield
    finally:
        eater.kill()
        eater.wait()


if __name__ == "__main__":
    main()
