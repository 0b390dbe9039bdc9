"""What probes say of memory, links and cores that are wrong, and of sound ones."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from everstep.agent import framing
from everstep.core.probes import Depth, PartnerHost, Verdict
from everstep.core.system import SystemClock
from everstep.train.probes import memory, products
from everstep.train.probes.links import ECHO_BYTES, check_link
from everstep.train.probes.run import Request, run

CLOCK = SystemClock()
WORDS = 4_096


def once(repeats: int) -> bool:
    """Stop after the first repeat."""
    return repeats >= 1


class Stuck(np.ndarray):
    """Memory in which bit 5 of word 1,000 is always 1."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store, and let the bit have its way."""
        super().__setitem__(key, value)
        self.view(np.ndarray)[1_000] |= np.uint64(1 << 5)


class Aliased(np.ndarray):
    """Memory whose words 2,048 and up lie over the first ones."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store, and let the upper half overwrite the lower one."""
        super().__setitem__(key, value)
        plain = self.view(np.ndarray)
        plain[:2_048] = plain[2_048:]


def test_sound_memory_passes_every_pattern():
    """With how much was tested."""
    result = memory.check(memory.take(WORDS), CLOCK)
    assert (result.verdict, result.detail) == (Verdict.PASSED, "")
    assert {f.name: f.value for f in result.figures} == {"tested_bytes": WORDS * 8, "rounds": 1}


def test_stuck_bit_is_found_with_its_place():
    """In one of the patterns it should have been 0."""
    result = memory.check(np.zeros(WORDS, dtype=np.uint64).view(Stuck), CLOCK)
    assert result.verdict is Verdict.FAILED
    assert "1 words wrong in one block; word 1000 is 0x" in result.detail


def test_wrong_address_is_found():
    """Each word knows its place."""
    result = memory.check(np.zeros(WORDS, dtype=np.uint64).view(Aliased), CLOCK)
    assert "pattern address: 2048 words wrong in one block; word 0 is" in result.detail


def test_known_answer_is_the_one_that_is_written_down():
    """Made by integers alone, and small enough for any order of sums in bfloat16."""
    one = products.known()
    assert products.checksum(one.answer) == products.ANSWER_CHECKSUM
    assert products.check_integers(one, CLOCK).verdict is Verdict.PASSED
    assert set(one.a.unique().tolist()) == {-1, 0, 1}
    depth = one.a.shape[1]
    assert depth <= 256, "a sum of more ones than that is no bfloat16"


@pytest.mark.parametrize("name", sorted(products.DTYPES))
def test_product_is_exact_in_every_dtype(name):
    """Also bfloat16, bit for bit."""
    one, dtype = products.known(), products.DTYPES[name]
    assert torch.equal(torch.mm(one.a.to(dtype), one.b.to(dtype)), one.answer.to(dtype))


def test_sound_cores_pass():
    """One line for each product, for all cores together."""
    results = products.on_cores(products.known(), once, CLOCK)
    names = [*(f"product_{name}" for name in products.DTYPES), "product_seeded"]
    assert [(one.name, one.verdict, one.where) for one in results] == [
        (name, Verdict.PASSED, "") for name in names
    ]


def test_core_that_computes_other_bits_now_and_then_is_named(monkeypatch):
    """Its tanh differs in the last bit, every other time; the others outvote it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.fail("two cores are needed to compare them")
    right, odd, calls = torch.tanh, cores[-1], []

    def wrong(values: torch.Tensor) -> torch.Tensor:
        found = right(values)
        if os.sched_getaffinity(0) == {odd}:
            calls.append(odd)
            if len(calls) % 2:
                found[0, 0] = torch.nextafter(found[0, 0], torch.tensor(2.0))
        return found

    monkeypatch.setattr(torch, "tanh", wrong)
    results = products.on_cores(products.known(), lambda repeats: repeats >= 4, CLOCK)
    [failed] = [one for one in results if one.verdict is Verdict.FAILED]
    assert (failed.name, failed.where) == ("product_seeded", f"core {odd}")
    assert failed.detail.startswith("2 of 4 times other bits than most")


def test_operation_that_raises_is_a_finding(monkeypatch):
    """Such as a library that is not what it was."""

    def raises(*_: Any) -> torch.Tensor:
        raise RuntimeError("illegal")

    monkeypatch.setattr(torch, "tanh", raises)
    results = products.on_cores(products.known(), once, CLOCK)
    assert {one.detail for one in results if one.verdict is Verdict.FAILED} == {
        "RuntimeError: illegal"
    }


@contextmanager
def answering(reply: Any) -> Iterator[PartnerHost]:
    """A peer port that answers every echo with what ``reply`` makes of it; None closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while (frame := framing.receive(connection)) is not None:
                answer = reply(frame)
                if answer is None:
                    return
                framing.send(connection, answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield PartnerHost(host_id="h2", address="127.0.0.1", port=listener.getsockname()[1])
    thread.join()
    listener.close()


def test_whole_link_passes_with_its_rate():
    """Every MiB both ways."""
    with answering(lambda frame: frame) as partner:
        result = check_link(partner, 3, CLOCK)
    assert (result.verdict, result.where) == (Verdict.PASSED, "h2")
    figures = {one.name: one.value for one in result.figures}
    assert figures["sent_bytes"] == 3 * ECHO_BYTES
    assert figures["both_ways_bytes_per_s"] > 0


def test_damage_on_the_way_back_is_told_with_its_place():
    """The first byte that differs."""

    def damage(frame: Any) -> Any:
        data = bytearray(frame["data"])
        data[77] ^= 1
        return {**frame, "data": bytes(data)}

    with answering(damage) as partner:
        result = check_link(partner, 3, CLOCK)
    assert result.verdict is Verdict.FAILED
    assert result.detail.startswith("MiB 0 came back wrong: byte 77 is 0x")


def test_damage_on_the_way_there_is_told_as_that():
    """The peer server closes on bytes that do not fit their checksum."""
    with answering(lambda _: None) as partner:
        result = check_link(partner, 1, CLOCK)
    assert "did not arrive as it was sent" in result.detail


def test_nobody_there_fails():
    """With what the system says."""
    result = check_link(PartnerHost(host_id="h2", address="127.0.0.1", port=1), 1, CLOCK)
    assert (result.verdict, "refused" in result.detail) == (Verdict.FAILED, True)


def test_burn_in_adds_its_turns_up_and_ends_at_the_first_failure(monkeypatch):
    """Not after an hour."""
    monkeypatch.setattr("everstep.train.probes.run.ROUND_S", 0.0)
    monkeypatch.setattr("everstep.train.probes.run.WINDOW_BYTES", WORDS * 8)
    seeds: list[int] = []
    sound = memory.take

    def take(words: int) -> Any:
        seeds.append(words)
        return sound(words) if len(seeds) < 3 else np.zeros(words, dtype=np.uint64).view(Stuck)

    monkeypatch.setattr(memory, "take", take)
    request = Request(
        examination_id="x1", depth=Depth.BURN_IN, burn_in_s=3_600, answer_path="", shared=False
    )
    report = run(request, CLOCK)
    [failed] = report.failed(pair=False)
    assert (failed.name, "word 1000" in failed.detail) == ("memory", True)
    repeats = {
        one.name: figure.value
        for one in report.probes
        for figure in one.figures
        if figure.name == "repeats"
    }
    assert repeats["product_float32"] == 3 * len(os.sched_getaffinity(0))
