"""A rank without torch: speaks the channel, writes real snapshots, obeys, or misbehaves as told.

The spec's ``args`` steer it: ``step_ms`` (pace), ``bytes`` (state size), ``patient`` (waits for
its copy before each snapshot, so that it has one of every step), ``fail_at`` with ``fail``
(``raise``, ``said``, ``collective``, ``exit``, ``segfault``, ``orphan``, ``hold`` there for ever,
``empty`` to announce a durable snapshot that is not there), ``every`` (durable snapshots),
``stores_last`` (waits when it is stopped until its last durable snapshot has room).
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from everstep.agent import framing
from everstep.agent.exits import EXIT_CODES, ExitClass
from everstep.core.errors import CorruptData, NotFoundError
from everstep.memory import layout
from everstep.memory.control import NO_STEP, Control, Phase
from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner, SlotWriter, TensorSpec


class Channel:
    """Blocking to write, polled to read, connects again when the agent is new."""

    def __init__(self) -> None:
        self.path = os.environ["EVERSTEP_AGENT_SOCKET"]
        self.step = 0
        self.socket: socket.socket | None = None
        self.decoder = framing.FrameDecoder()

    def connect(self) -> None:
        while self.socket is None:
            candidate = socket.socket(socket.AF_UNIX)
            try:
                candidate.connect(self.path)
            except OSError:
                candidate.close()
                time.sleep(0.02)
                continue
            self.socket = candidate
            self.decoder = framing.FrameDecoder()
            framing.send(
                candidate,
                {
                    "kind": "hello",
                    "job_id": os.environ["EVERSTEP_JOB_ID"],
                    "generation": int(os.environ["EVERSTEP_GENERATION"]),
                    "rank": int(os.environ["RANK"]),
                    "pid": os.getpid(),
                    "step": self.step,
                },
            )

    def say(self, kind: str, **fields: Any) -> None:
        while True:
            self.connect()
            assert self.socket is not None
            try:
                framing.send(self.socket, {"kind": kind, **fields})
            except OSError:
                self.socket = None
                continue
            return

    def poll(self, timeout_s: float) -> list[framing.Frame]:
        self.connect()
        assert self.socket is not None
        readable, _, _ = select.select([self.socket], [], [], timeout_s)
        if not readable:
            return []
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.socket = None
            return []
        return self.decoder.feed(data)


class Memory:
    """Two slots, a durable one, and the two-slot rule for this rank alone."""

    def __init__(self, size: int) -> None:
        job_id, rank = os.environ["EVERSTEP_JOB_ID"], int(os.environ["RANK"])
        self.directory = _directory()
        owner = Owner(
            job_id=job_id,
            rank=rank,
            world_size=int(os.environ["WORLD_SIZE"]),
            generation=int(os.environ["EVERSTEP_GENERATION"]),
        )
        specs = [
            TensorSpec(name="weights", dtype="uint8", shape=(size,), bytes=size),
            TensorSpec(name="moments", dtype="uint8", shape=(32,), bytes=32),
        ]
        paths = [layout.slot_path(self.directory, slot) for slot in (0, 1)]
        paths.append(layout.durable_path(self.directory))
        self.writers = [SlotWriter(path, owner, specs) for path in paths]
        self.control = Control(layout.control_path(self.directory))
        self.size = size
        self.held_slot, self.held_step = 1, NO_STEP

    def write(self, index: int, step: int, digest: bytes) -> None:
        writer = self.writers[index]
        writer.begin()
        writer.buffers["weights"][:] = (digest * (self.size // 32 + 1))[: self.size]
        writer.buffers["moments"][:] = digest
        writer.commit(step=step, data_state={"position": step}, objects={})

    @property
    def replicated(self) -> bool:
        control = self.control
        held = self.held_step
        return held == NO_STEP or control.replication_off or control.replicated_step >= held

    def snapshot(self, step: int, digest: bytes, *, patient: bool) -> int:
        while patient and not self.replicated:
            time.sleep(0.002)
        if not self.replicated:
            return -1
        slot = 1 - self.held_slot
        self.write(slot, step, digest)
        self.held_slot, self.held_step = slot, step
        return slot

    def durable(self, step: int, digest: bytes) -> bool:
        if self.control.durable_busy:
            return False
        self.write(2, step, digest)
        self.control.durable_busy = True
        return True


def run() -> int:
    """Train: the state is a hash chain, so that any wrong restore shows in the last state."""
    spec = json.loads(os.environ["EVERSTEP_SPEC"])
    args, steps = spec["args"], spec["steps"]
    sys.stdout.write(f"rank {os.environ['RANK']} in {Path.cwd()} runs {sys.argv}\n")
    channel = Channel()
    answer, step, digest = _restored(channel)
    if answer["kind"] == "restore_failed":
        channel.say("failed", exit_class="RESTORE_FAILED", error="no source", traceback="", step=-1)
        return EXIT_CODES[ExitClass.RESTORE_FAILED]
    memory = Memory(int(args.get("bytes", 4096)))
    if answer["kind"] == "slot_ready":
        memory.held_slot, memory.held_step = answer["slot"], step
    elif answer["kind"] == "slots_ready":
        memory.control.replicated_step = step  # it is in the old ranks' slots
    channel.say(
        "ready",
        restored_step=step,
        source_kind=answer.get("source_kind") or "fresh",
        problems=list(answer.get("problems", ())),
    )
    first, save, stop = True, False, False
    version = json.loads(os.environ.get("EVERSTEP_SCHEDULE", "{}")).get("version", 0)
    while step < steps and not stop:
        for frame in channel.poll(args.get("step_ms", 5) / 1_000):
            save |= frame.get("what") == "save"
            stop |= frame.get("what") == "stop"
            if frame["kind"] == "schedule":
                version = frame["schedule"]["version"]
        step += 1
        if step == args.get("fail_at", -1):
            if args["fail"] == "empty":
                memory.control.durable_busy = True
                channel.say("step", **_report(step, first, -1, True, digest))
                continue
            code = _fail(channel, args["fail"], step)
            if code is not None:
                return code
        digest = hashlib.sha256(digest + str(step).encode()).digest()
        slot = memory.snapshot(step, digest, patient=args.get("patient", False))
        while stop and args.get("stores_last") and memory.control.durable_busy:
            memory.control.phase = Phase.SNAPSHOTTING
            time.sleep(0.01)
        due = save or stop or (args.get("every") and step % args["every"] == 0) or step == steps
        durable = bool(due) and memory.durable(step, digest)
        save &= not durable
        channel.step = step
        report = _report(step, first, slot, durable, digest)
        channel.say("step", **report, schedule_version=version)
        first = False
    channel.say("finished", exit_class="STOPPED" if stop else "FINISHED", step=step)
    return EXIT_CODES[ExitClass.STOPPED if stop else ExitClass.FINISHED]


def _directory() -> Path:
    job_id, rank = os.environ["EVERSTEP_JOB_ID"], int(os.environ["RANK"])
    return layout.rank_dir(Path(os.environ["EVERSTEP_MEMORY_DIR"]), job_id, rank)


def _restored(channel: Channel) -> tuple[framing.Frame, int, bytes]:
    """Ask until there is an answer that is of use; returns it, the step and the state."""
    while (answer := _answer(channel))["kind"] in {"slot_ready", "slots_ready"}:
        digest, problem = b"", ""
        for path, name in _paths(answer):
            try:
                digest = _read(path)
            except (CorruptData, NotFoundError) as error:
                problem = str(error)
                channel.say("slot_bad", **name, step=answer["step"], problem=problem)
                break
        if not problem:
            return answer, answer["step"], digest
    return answer, 0, b"\0" * 32


def _paths(answer: framing.Frame) -> list[tuple[Path, dict[str, Any]]]:
    """Return the slots to restore from, and how each one would be called bad."""
    if answer["kind"] == "slot_ready":
        return [(layout.slot_path(_directory(), answer["slot"]), {"slot": answer["slot"]})]
    return [(Path(one["path"]), {"slot": 1, "old_rank": one["rank"]}) for one in answer["slots"]]


def _read(path: Path) -> bytes:
    with SlotReader(path) as reader:
        reader.verify()
        entry = reader.entry("moments")
        assert entry is not None
        return bytes(reader.tensor(entry))


def _answer(channel: Channel) -> framing.Frame:
    while True:
        for frame in channel.poll(0.5):
            if frame["kind"] in {"fresh", "slot_ready", "slots_ready", "restore_failed"}:
                return frame


def _report(step: int, first: bool, slot: int, durable: bool, digest: bytes) -> dict[str, Any]:
    return {
        "step": step,
        "step_time_ms": 5.0,
        "blocked_ms": 1.0,
        "data_wait_ms": 0.5,
        "stall_ms": 0.25,
        "loss": float(int.from_bytes(digest[:4], "little")),
        "grad_norm": 1.0,
        "tokens": 64,
        "health": "ok",
        "completed_at_ms": time.time_ns() // 1_000_000,
        "first": first,
        "snapshot_slot": slot,
        "durable": durable,
    }


def _fail(channel: Channel, how: str, step: int) -> int | None:
    match how:
        case "raise":
            raise ValueError("the user's mistake")
        case "said":
            channel.say(
                "failed",
                exit_class="USER_ERROR",
                error="ValueError: x",
                traceback="T",
                step=step - 1,
            )
            return EXIT_CODES[ExitClass.USER_ERROR]
        case "collective":
            channel.say(
                "failed", exit_class="COLLECTIVE", error="peer closed", traceback="", step=step
            )
            signal.pause()
        case "hold":
            signal.pause()
        case "exit":
            os._exit(7)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "orphan":
            child = subprocess.Popen(["sleep", "600"])
            sys.stdout.write(f"orphan {child.pid}\n")
            os._exit(9)
    return None
