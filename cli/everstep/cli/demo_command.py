"""``demo``: a training run loses a host, recovers, and ends exactly as it would have anyway."""

from __future__ import annotations

import asyncio
import json
import secrets
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from everstep.cli import demo_plan
from everstep.cli.client import Client
from everstep.cli.demo_plan import DemoPlan
from everstep.cli.demo_report import Kill, Run, States, make_report, report_lines
from everstep.cli.follow import Follower, Seen
from everstep.cli.live import LineView
from everstep.cli.options import register, session_of
from everstep.cli.output import OUT, ranges
from everstep.cli.progress import UpProgress
from everstep.core.errors import Unavailable
from everstep.local import launch, wiping
from everstep.local.state import SERVICES, Stack, StatePaths

POLL_S: Final = 0.2  # steps take about a second: the kill is within the step that was drawn
JOB_TIMEOUT_S: Final = 240.0  # one run of 60 steps takes about one minute on two cores
STEP_TIMEOUT_S: Final = 4.0  # of each step: as long for many as for those
LINES_EVERY_STEPS: Final = 5  # of progress; a line a step would scroll the incident away
CORPUS_EXCLUDED: Final = ("__pycache__", "site-packages", "dist-packages", "test", "tests")


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack up afterwards.")] = False,
    seed: Annotated[
        int, typer.Option("--seed", min=-1, help="Draws model, victim and step; -1: a new one.")
    ] = -1,
    steps: Annotated[
        int, typer.Option("--steps", min=demo_plan.STEPS_MIN, help="Length of each run.")
    ] = 60,
) -> None:
    """Prove a recovery, bit for bit.

    Trains, kills a whole host, recovers, and compares the end state with that of an undisturbed
    run. Uses a stack of its own in the directory `demo` of the stack's directory, where it also
    writes report.json. Exit code 0 only if everything held.

    Examples:
      everstep demo
      everstep demo --seed 7 --keep
    """
    started_s = time.monotonic()
    paths = StatePaths(root=session_of(context).paths.root / "demo")
    chosen = seed if seed >= 0 else secrets.randbelow(demo_plan.SEED_MAX)
    plan = demo_plan.draw(chosen, steps)
    OUT.print(f"seed {plan.seed}: a host dies at step {plan.kill_step} of {plan.steps}")
    target = paths.root / "report.json"
    wiping.refuse_strange(paths)
    target.unlink(missing_ok=True)
    launch.down(paths, wipe=True)  # whatever an earlier demo has left
    with _taken_down_afterwards(paths, keep=keep):
        report = _perform(paths, plan, started_s)
        target.write_text(json.dumps(report, indent=2) + "\n")
    for line in report_lines(report):
        OUT.print(line, markup=False)
    OUT.print(f"report: {target} ({report['wall_s']:.0f} s)", markup=False)
    if not report["ok"]:
        OUT.print(f"logs: {paths.logs}", markup=False)
    if keep:
        OUT.print(f"the stack is still up: everstep --state {paths.root} status", markup=False)
    raise typer.Exit(0 if report["ok"] else 1)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    register(app, demo)


@contextmanager
def _taken_down_afterwards(paths: StatePaths, *, keep: bool) -> Iterator[None]:
    """End the stack whatever happens, unless it is to be kept and all went well; logs stay."""
    done = False
    try:
        yield
        done = True
    finally:
        if not (keep and done):
            launch.down(paths, wipe=False)
        if not done:
            OUT.print(f"the demo was cut short; logs: {paths.logs}", markup=False)


def _perform(paths: StatePaths, plan: DemoPlan, started_s: float) -> dict[str, Any]:
    from everstep.cli.demo_state import wait_durable  # numpy: only where it is needed

    corpus = _prepare_corpus(paths)
    stack = _bring_up(paths)
    with Client({name: stack.url(name) for name in SERVICES}) as client:
        OUT.print("\nfirst run: it will lose a host")
        killer = Killer(paths=paths, plan=plan)
        run = _train(client, plan, "demo", corpus, killer)
        OUT.print("\nsecond run: the same, undisturbed")
        reference = _train(client, plan, "demo-reference", corpus, None)
        checkpoints = [
            wait_durable(client, one.job["job_id"], plan.steps)
            for one in (run, reference)
            if one.job["phase"] == "succeeded"
        ]
    states = _compare(stack, checkpoints, paths.root / "compare")
    return make_report(
        plan=plan,
        kill=killer.kill,
        run=run,
        reference=reference,
        states=states,
        wall_s=time.monotonic() - started_s,
    )


def _prepare_corpus(paths: StatePaths) -> Path:
    from everstep.data.prepare import prepare

    paths.create()
    library = Path(sysconfig.get_path("stdlib"))
    made = prepare([library], paths.root / "corpus", suffixes=(".py",), exclude=CORPUS_EXCLUDED)
    OUT.print(
        f"corpus: {made.tokens:,} tokens of {made.documents} source files of Python's library"
    )
    return made.directory


def _bring_up(paths: StatePaths) -> Stack:
    wanted = launch.Plan(
        hosts=demo_plan.HOSTS,
        spares=demo_plan.SPARES,
        chips=demo_plan.CHIPS,
        pods=demo_plan.PODS,
    )
    with UpProgress() as progress:
        stack = launch.up(paths, wanted, progress.show).stack
    OUT.print(
        f"stack: PostgreSQL, NATS, S3, four services, {demo_plan.HOSTS} hosts of "
        f"{demo_plan.CHIPS} chips and {demo_plan.SPARES} spare"
    )
    return stack


def _train(client: Client, plan: DemoPlan, name: str, corpus: Path, killer: Killer | None) -> Run:
    spec = demo_plan.job_spec(plan, name=name, corpus=str(corpus), cwd=str(corpus.parent))
    job_id = str(client.submit(spec)["job_id"])
    job = Follower(client, job_id, poll_s=POLL_S).follow(
        DemoView(killer=killer, limit_s=max(JOB_TIMEOUT_S, plan.steps * STEP_TIMEOUT_S))
    )
    return Run(
        job=job,
        points=client.metrics(job_id),
        incidents=client.incidents(job_id),
        goodput=client.goodput(job_id),
    )


def _compare(stack: Stack, checkpoints: list[dict[str, Any]], directory: Path) -> States:
    from everstep.cli.demo_state import compare_states, open_store

    if len(checkpoints) != 2:
        return States(equal=False, tensors_compared=0, run_checksum="", reference_checksum="")

    async def work() -> States:
        async with open_store(stack)() as store:
            found = await compare_states(store, checkpoints[0], checkpoints[1], directory)
        return States(
            equal=found.equal,
            tensors_compared=found.tensors_compared,
            run_checksum=found.checksum_a,
            reference_checksum=found.checksum_b,
            differences=found.differences,
        )

    OUT.print("\ncomparing the final states, every tensor of every rank")
    return asyncio.run(work())


@dataclass(slots=True, kw_only=True)
class Killer:
    """Kills the drawn host once, when the drawn step has been seen."""

    paths: StatePaths
    plan: DemoPlan
    kill: Kill | None = None

    def look(self, seen: Seen) -> None:
        """Kill if it is time."""
        last = seen.last
        if self.kill is not None or last is None or last["step"] < self.plan.kill_step:
            return
        victim: Mapping[str, Any] = seen.job["placement"]["hosts"][self.plan.kill_seat]
        request = {"command": "kill", "what": "host", "name": victim["host_id"]}
        done = launch.order(self.paths, request)
        self.kill = Kill(
            host=victim["host_id"],
            ranks=tuple(victim["ranks"]),
            at_step=last["step"],
            at_ms=done["at_ms"],
        )
        OUT.print(
            f"killed host {self.kill.host}: agent, ranks {ranges(self.kill.ranks)} and its memory",
            style="bold red",
        )


@dataclass(slots=True, kw_only=True)
class DemoView:
    """Shows some of the steps and all of the rest, and lets the killer look."""

    killer: Killer | None
    limit_s: float
    lines: LineView = field(default_factory=lambda: LineView(OUT))
    started_s: float = field(default_factory=time.monotonic)
    shown_step: int = -LINES_EVERY_STEPS

    def show(self, seen: Seen) -> None:
        """Print what is worth a line.

        Raises:
            Unavailable: the run takes too long.
        """
        last = seen.last
        if last is not None and not seen.ended:
            if last["step"] - self.shown_step < LINES_EVERY_STEPS:
                seen.fresh = []
            elif seen.fresh:
                self.shown_step = last["step"]
        self.lines.show(seen)
        if self.killer is not None:
            self.killer.look(seen)
        if time.monotonic() - self.started_s > self.limit_s:
            raise Unavailable(f"job {seen.job['job_id']} did not end within {self.limit_s:.0f} s")
