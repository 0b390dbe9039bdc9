"""The fault matrix: each kind of fault against a live run, and whether it is answered rightly.

Every row launches a small job on a stack of this machine, injects one fault through ``everstep
chaos``, and holds what the control plane made of it against what was done: found, blamed on the
rank and host that it met, put right without a person, the end state equal bit for bit to that of
the run that did not meet it, every second accounted for. A row that fails says so and the next one
runs. Rows are kept one by one, so some may be run again: ``--only KIND``. Run:
``make bench NAME=faults``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.support import figures
from benchmarks.support.processes import end_in_order, say
from benchmarks.workload.corpus import make_corpus

from everstep.chaos import fleet, perform
from everstep.chaos.campaign import parse_campaign
from everstep.chaos.kinds import Equal
from everstep.chaos.outcome import wanted_equal
from everstep.chaos.run import marks_of, with_faults
from everstep.cli.client import Client
from everstep.core.errors import EverstepError
from everstep.core.system import SystemClock
from everstep.local import launch
from everstep.local.state import SERVERS, SERVICES, StatePaths

Json = dict[str, Any]

HOSTS, SPARES, CHIPS, PODS = 4, 2, 2, 2
STEPS: Final = 24
STRIKE_AT: Final = 9  # behind the first stored checkpoint
VICTIM: Final = 3
TIMEOUT_S: Final = 200.0  # a run takes 20 s; ten times that on a busy machine is a failure
OUT: Final = figures.RESULTS / "faults.json"
# Three replicas, so that one that is wrong is outvoted; no pipeline, so that six ranks are enough.
REPLICAS: Final[Json] = {
    "layout": {"dp_replicate": 3, "tp": 2},
    "data": {"global_batch": 12},
}
SPIKES: Final[Json] = {
    "numerics": {"window_steps": 64, "window_steps_min": 8},
    "checkpoint": {"object_every_steps": 4, "keep_last": 24},
}
# Where the loss has come to fall slowly: half a batch of garbage then stands out.
SPIKES_LATER: Final[Json] = {
    **SPIKES,
    "steps": 48,
    "numerics": {"window_steps": 16, "window_steps_min": 8},
}
EXPONENT: Final = 27  # of float32: the value becomes 2^16 times what it was, or as much less


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault, and what is special about its job."""

    name: str
    fault: Json
    spec: Json = field(default_factory=dict)


def rows() -> list[Row]:
    """Return the matrix."""
    return [*_on_ranks(), *_in_numbers(), *_on_hosts(), *_on_services()]


def _on_ranks() -> list[Row]:
    plain = ("kill", "stop", "spin", "block_loader", "raise", "kill_rank", "stop_rank")
    return [
        *(Row(name=kind, fault={"kind": kind, "rank": VICTIM}) for kind in plain),
        Row(name="damage_snapshot", fault={"kind": "damage_snapshot", "rank": VICTIM}),
        Row(
            name="damage_object", fault={"kind": "damage_object", "rank": VICTIM, "at_step": 19},
        ),
        Row(
            name="slow", fault={"kind": "slow", "rank": VICTIM, "percent": 50.0},
            spec={"steps": 250},
        ),
    ]  # fmt: skip


def _in_numbers() -> list[Row]:
    recomputed = {**REPLICAS, "corruption": {"recompute_every_steps": 1}}
    return [
        Row(name="nan_gradient", fault={"kind": "nan_gradient", "rank": VICTIM}),
        Row(
            name="poisoned_batch",
            fault={"kind": "poisoned_batch", "rank": VICTIM, "at_step": 32, "batches": 3},
            spec=SPIKES_LATER,
        ),
        Row(name="loss_spike", fault={"kind": "loss_spike", "at_step": 15}, spec=SPIKES),
        *(
            Row(
                name=f"flip_{part}",
                fault={"kind": f"flip_{part}", "rank": VICTIM, "bit": EXPONENT},
                spec=REPLICAS
                if part in {"parameter", "moment", "reduced_gradient"}
                else recomputed,
            )
            for part in (
                "parameter",
                "moment",
                "reduced_gradient",
                "gradient",
                "activation",
                "gradient_once",
                "activation_once",
            )
        ),
    ]


def _on_hosts() -> list[Row]:
    its = {"rank": VICTIM}
    long = {"steps": 60}
    return [
        Row(name="kill_host", fault={"kind": "kill_host", **its}),
        Row(name="stop_host", fault={"kind": "stop_host", **its, "for_s": 20}),
        Row(name="flaky_host", fault={"kind": "flaky_host", **its, "for_s": 8}, spec=long),
        Row(
            name="slow_host", fault={"kind": "slow_host", **its, "percent": 50.0},
            spec={"steps": 250},
        ),
        Row(name="kill_agent", fault={"kind": "kill_agent", **its}),
        Row(name="partition_host", fault={"kind": "partition_host", **its, "for_s": 20}, spec=long),
        Row(name="isolate_agent", fault={"kind": "isolate_agent", **its, "for_s": 12}, spec=long),
        Row(
            name="isolate_agent_from_peers",
            fault={"kind": "isolate_agent", **its, "for_s": 12, "nats": False},
            spec=long,
        ),
        *(
            Row(name=kind, fault={"kind": kind, **its, "for_s": 8})
            for kind in ("drop_messages", "duplicate_messages", "delay_messages", "s3_errors")
        ),
    ]  # fmt: skip


def _on_services() -> list[Row]:
    return [
        *(
            Row(
                name=f"stop_service_{name}",
                fault={"kind": "stop_service", "service": name, "for_s": 4},
            )
            for name in (*SERVERS, *SERVICES)
        ),
        Row(name="kill_service_nats", fault={"kind": "kill_service", "service": "nats"}),
        Row(
            name="freeze_service_nats",
            fault={"kind": "freeze_service", "service": "nats", "for_s": 4},
        ),
    ]


class Matrix:
    """A stack, the undisturbed runs that were made on it, and the rows."""

    def __init__(self, paths: StatePaths, client: Client, corpus: Path) -> None:
        self._paths = paths
        self._client = client
        self._corpus = corpus
        self._references: dict[str, str] = {}
        self._stage = perform.Stage(
            paths=paths, client=client, clock=SystemClock(), say=say, timeout_s=TIMEOUT_S
        )

    def run(self, row: Row) -> Json:
        """Run one row; whatever goes wrong is its result."""
        try:
            fleet.heal(self._paths, self._client)
            return self._run(row)
        except EverstepError as error:
            return {"kind": row.name, "right": False, "why": str(error)}

    def _run(self, row: Row) -> Json:
        spec = self._spec(row)
        fault = {"at_step": STRIKE_AT, **row.fault}
        document = {"version": 1, "name": row.name, "faults": [fault]}
        campaign = parse_campaign(document, world_size=_world_size(spec))
        spiky = wanted_equal(campaign) is Equal.SKIPPED
        reference = "" if spiky else self._reference(row, spec, fault)
        fleet.heal(self._paths, self._client)
        report = perform.on_new_job(
            self._stage, campaign, spec, reference=reference, make_reference=spiky
        )
        return _told(row, report)

    def _spec(self, row: Row) -> Json:
        spec: Json = {
            "name": row.name.replace("_", "-"),
            "entry": "everstep.models.pretrain:main",
            "args": {
                "dim": 32, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 64,
                "vocab_size": 264, "dropout": 0.1, "lr": 3e-3, "warmup_steps": 5,
            },
            "layout": {"pp": 2, "dp_shard": 2, "tp": 2},
            "steps": STEPS,
            "seed": 20,
            "data": {
                "path": str(self._corpus), "sequence_tokens": 32, "global_batch": 8,
                "micro_batch": 2,
            },
            "checkpoint": {"object_every_steps": 8, "keep_last": 3},
            "cwd": str(self._corpus.parent),
        }  # fmt: skip
        data = {**spec["data"], **row.spec.get("data", {})}
        return {**spec, **row.spec, "data": data}

    def _reference(self, row: Row, spec: Json, fault: Json) -> str:
        """Return the undisturbed run; for a step that is left out, one that left it out too.

        Whose gradient was not finite must not matter: there it is another rank's.
        """
        if row.name == "nan_gradient":
            other = {**fault, "rank": VICTIM + 1}
            document = {"version": 1, "name": "other", "faults": [other]}
            campaign = parse_campaign(document, world_size=_world_size(spec))
            return perform.run_reference(
                self._stage, with_faults(spec, campaign, marks_of(self._paths))
            )
        key = json.dumps({**spec, "name": ""}, sort_keys=True)
        if key not in self._references:
            self._references[key] = perform.run_reference(self._stage, spec)
        return self._references[key]


def main() -> None:
    """Run the rows and keep each as it comes."""
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__)
    parser.add_argument(
        "--only", nargs="*", metavar="KIND", help="rows to run, in this order; others stay"
    )
    options = parser.parse_args()
    end_in_order()
    known = {row.name: row for row in rows()}
    unknown = [name for name in options.only or () if name not in known]
    if unknown:
        parser.error(f"no rows {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [known[name] for name in options.only or known]
    found = _kept()
    with _stack() as (paths, client, corpus):
        matrix = Matrix(paths, client, corpus)
        for number, row in enumerate(wanted, start=1):
            say(f"{number} of {len(wanted)}: {row.name}")
            told = matrix.run(row)
            told["date"] = datetime.now(UTC).isoformat(timespec="seconds")
            say(f"{row.name}: {'right' if told['right'] else 'WRONG: ' + told['why']}")
            found[row.name] = told
            _keep(found, made=wanted[:number])
    print(OUT.read_text())


def _told(row: Row, report: Json) -> Json:
    """Return a row of the table."""
    (fault,) = report["faults"]
    incident = fault.get("incident") or {}
    ledger, state = report["ledger"], report["state"]
    wrong = [
        fault["why"],
        "" if report["phase"] == "succeeded" else f"the job {report['phase']}",
        "the end state differs" if state["equal"] is False else "",
        "" if ledger["sums"] else f"{ledger['sum_ms']} of {ledger['wall_ms']} ms accounted for",
        *(f"false alarm: {one['kind']}: {one['reason']}" for one in report["false_alarms"]),
        *report["problems"],
    ]
    return {
        "kind": row.name,
        "injected_at": fault.get("injected_at_ms"),
        "detected_ms": fault.get("detected_ms"),
        "blamed": {"ranks": incident.get("ranks", []), "hosts": incident.get("hosts", [])},
        "right": report["ok"],
        "recovered_ms": fault.get("recovered_ms"),
        "lost_steps": fault.get("lost_steps"),
        "state_equal": state["equal"],
        "met": fault.get("to"),
        "incident": incident.get("kind"),
        "action": incident.get("action"),
        "reason": _without_paths(incident.get("reason")),
        "echoes": [one["kind"] for one in fault.get("echoes", [])],
        "ledger_sums": ledger["sums"],
        "what": fault["planned"],
        "why": "; ".join(part for part in wrong if part),
    }


def _without_paths(reason: str | None) -> str | None:
    """Leave out where this machine keeps the code that a stack trace names."""
    return re.sub(r"(?<![\w.])/[\w./-]*?/(?=everstep/|site-packages/)", "", reason or "") or None


def _kept() -> dict[str, Json]:
    if not OUT.exists():
        return {}
    return {row["kind"]: row for row in json.loads(OUT.read_text())["rows"]}


def _keep(found: dict[str, Json], made: Sequence[Row]) -> None:
    """Write the table; rows that this run has not made are older, as their dates say."""
    order = [row.name for row in rows()]
    kept = [found[name] for name in order if name in found]
    document = {
        "benchmark": "faults",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", "benchmarks.faults", *sys.argv[1:]]),
        "made_in_this_run": [row.name for row in made],
        "right": sum(bool(row["right"]) for row in kept),
        "of": len(order),
        "rows": kept,
        "machine": figures.machine(),
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(document, indent=2) + "\n")


def _world_size(spec: Json) -> int:
    size = 1
    for count in spec["layout"].values():
        size *= int(count)
    return size


@contextmanager
def _stack() -> Iterator[tuple[StatePaths, Client, Path]]:
    directory = Path(tempfile.mkdtemp(prefix="esf-"))  # short: sockets lie in it
    paths = StatePaths(root=directory / "s")
    plan = launch.Plan(hosts=HOSTS, spares=SPARES, chips=CHIPS, pods=PODS, chaos=True)
    try:
        stack = launch.up(paths, plan, lambda _: None).stack
        with Client({name: stack.url(name) for name in SERVICES}) as client:
            yield paths, client, make_corpus(directory)
    finally:
        launch.down(paths, wipe=True)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
