"""``python -m everstep.fleet``: one or more seeds of a scenario, on the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from everstep.core.errors import InvalidInput
from everstep.fleet.report import text_report
from everstep.fleet.scenario import FOLDER, Scenario, load
from everstep.fleet.simulate import Outcome, Progress, SimulationFailedError, simulate

QUIET_S: Final = 2.0  # what is over sooner needs no progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.days <= 0 or options.runs < 1:
        parser.error("--days and --runs must be above 0")
    try:
        scenario = load(options.scenario) if options.scenario else Scenario()
    except InvalidInput as error:
        parser.error(str(error))
    outcomes = []
    for seed in range(options.seed, options.seed + options.runs):
        try:
            outcomes.append(_one(scenario, seed, options))
        except SimulationFailedError as error:
            chosen = f" --scenario {options.scenario}" if options.scenario else ""
            sys.stderr.write(
                f"seed {seed} failed: {error}\n"
                f"replay: python -m everstep.fleet --seed {seed} --days {options.days:g}{chosen} "
                "--trace trace.txt\n"
            )
            return 1
    if options.json:
        out = [outcome.as_json() for outcome in outcomes]
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(out)) + b"\n")
    else:
        sys.stdout.write(text_report(scenario, outcomes))
    return 0


def _one(scenario: Scenario, seed: int, options: argparse.Namespace) -> Outcome:
    progress = _progress(seed)
    if not options.trace:
        return simulate(scenario, seed=seed, days=options.days, progress=progress)
    with Path(options.trace).open("w") as trace:
        return simulate(scenario, seed=seed, days=options.days, trace=trace, progress=progress)


def _progress(seed: int) -> Progress:
    """Tell on standard error how far a seed is, once it has taken a while."""
    begun_s = time.monotonic()
    told_s = begun_s

    def tell(done_days: float, days: float) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - begun_s > QUIET_S and now_s - told_s > QUIET_S:
            told_s = now_s
            sys.stderr.write(f"seed {seed}: day {done_days:.0f} of {days:g}\n")

    return tell


def _parser() -> argparse.ArgumentParser:
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
    parser = argparse.ArgumentParser(
        prog="python -m everstep.fleet",
        description="Simulate weeks of a fleet with the services' own decisions.",
    )
    parser.add_argument("--seed", type=int, default=1, help="root of all randomness (1)")
    parser.add_argument("--runs", type=int, default=1, help="so many seeds, from --seed on (1)")
    parser.add_argument("--days", type=float, default=64, help="simulated days (64)")
    parser.add_argument("--scenario", default="", help=f"PATH.toml, or one of: {known}")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--trace", default="", help="write every event to this file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
