"""Matrix products whose answers are known, on every core and every device.

Two kinds. The exact one multiplies matrices of -1, 0 and 1, 256 deep: whatever the order of the
sums, no partial sum leaves the integers up to 256, which float32, bfloat16 and float64 all hold, so
the answer is the same bit for bit on any hardware, and a checksum of it is written here. The seeded
one multiplies fractions and takes a tanh of it: that answer depends on the library, so it is
compared between cores and repeats, and the odd one out is named.

What they can find: units that are wrong always, or often enough for the repeats, on the values that
they were given. What they cannot: a unit that is wrong once a day, or only for values, shapes,
clocks or temperatures that did not come up. A host that passes is not proved sound.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import xxhash

from everstep.core.probes import Figure, ProbeResult, Verdict
from everstep.core.system import Clock

SIZE: Final = (
    256  # rows, columns and depth: the largest integer up to which bfloat16 holds every one is 2^8
)
DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
# xxh3-64 of the int64 answer for seed 0, made once with integers alone: a host whose integer units
# are wrong cannot agree with itself.
ANSWER_CHECKSUM: Final = "d20590dc1fb32440"
DEVICE_TILES: Final = (
    16  # the same product 16 x 16 times side by side: enough for every unit of a GPU
)
_GOLDEN: Final = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 / golden ratio: spreads neighbours (Knuth 6.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A product and its answer, as int64 on the host."""

    a: torch.Tensor
    b: torch.Tensor
    answer: torch.Tensor


def known(seed: int = 0) -> Known:
    """Return matrices of -1, 0 and 1, and their product by integers alone."""
    a, b = ((_mixed(seed, part) % np.uint64(3)).astype(np.int64) - 1 for part in (1, 2))
    return Known(a=torch.from_numpy(a), b=torch.from_numpy(b), answer=torch.from_numpy(a @ b))


def checksum(answer: torch.Tensor) -> str:
    """Return the checksum of an int64 answer."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(answer.numpy()).tobytes())


def check_integers(one: Known, clock: Clock) -> ProbeResult:
    """Compare the answer of seed 0 with what it is known to be."""
    began_ms = clock.monotonic_ms()
    got = checksum(one.answer)
    right = got == ANSWER_CHECKSUM
    return ProbeResult(
        name="product_integers",
        verdict=Verdict.PASSED if right else Verdict.FAILED,
        detail="" if right else f"expected checksum {ANSWER_CHECKSUM}, got {got}",
        duration_ms=round(clock.monotonic_ms() - began_ms),
    )


def on_cores(one: Known, until: Callable[[int], bool], clock: Clock) -> list[ProbeResult]:
    """Multiply on every core at once, each in a thread that stays there.

    Args:
        one: the product.
        until: whether to stop after so many repeats.
        clock: for durations.

    Returns:
        A result for each dtype and each core that was wrong; one for all cores if none was.
    """
    cores = sorted(os.sched_getaffinity(0))
    began_ms = clock.monotonic_ms()
    looks = [_Look(core=core) for core in cores]
    threads = [
        threading.Thread(target=_work, args=(look, one, until), name=f"probe-{look.core}")
        for look in looks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _judge(looks, round(clock.monotonic_ms() - began_ms))


def on_devices(one: Known, until: Callable[[int], bool], clock: Clock) -> list[ProbeResult]:
    """Multiply on every accelerator that this process sees, one after the other."""
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.device("cuda", index)
        for name, dtype in DTYPES.items():
            began_ms = clock.monotonic_ms()
            wrong, repeats = _on_device(one, dtype, device, until)
            found.append(
                ProbeResult(
                    name=f"product_{name}",
                    where=str(device),
                    verdict=Verdict.FAILED if wrong else Verdict.PASSED,
                    detail=wrong,
                    duration_ms=round(clock.monotonic_ms() - began_ms),
                    figures=(Figure(name="repeats", value=repeats),),
                )
            )
    return found


def _on_device(
    one: Known, dtype: torch.dtype, device: torch.device, until: Callable[[int], bool]
) -> tuple[str, int]:
    tiles = DEVICE_TILES
    a = one.a.tile(tiles, 1).to(device, dtype)
    b = one.b.tile(1, tiles).to(device, dtype)
    answer = one.answer.tile(tiles, tiles).to(device, dtype)
    repeats = 0
    while True:
        repeats += 1
        got = a @ b
        if not torch.equal(got, answer):
            return _difference(got.cpu(), answer.cpu(), repeats), repeats
        if until(repeats):
            return "", repeats


@dataclass(slots=True, kw_only=True)
class _Look:
    """What one core came to."""

    core: int
    wrong: dict[str, str]  # dtype -> what was wrong, the first time
    seeded: Counter[str]  # digest of the seeded product -> how often
    repeats: int
    broke: str

    def __init__(self, *, core: int) -> None:
        self.core = core
        self.wrong = {}
        self.seeded = Counter()
        self.repeats = 0
        self.broke = ""


def _work(look: _Look, one: Known, until: Callable[[int], bool]) -> None:
    """Repeat all products on one core; an operation that raises is a finding as well."""
    try:
        os.sched_setaffinity(0, {look.core})  # of this thread
        inputs = {name: (one.a.to(d), one.b.to(d), one.answer) for name, d in DTYPES.items()}
        fractions = seeded_inputs()
        while True:
            look.repeats += 1
            for name, (a, b, answer) in inputs.items():
                got = torch.mm(a, b).to(torch.int64)
                if name not in look.wrong and not torch.equal(got, answer):
                    look.wrong[name] = _difference(got, answer, look.repeats)
            look.seeded[_digest(torch.tanh(torch.mm(*fractions)))] += 1
            if until(look.repeats):
                return
    except (RuntimeError, OSError) as error:
        look.broke = f"{type(error).__name__}: {error}"


def seeded_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two matrices of fractions between -1 and 1 that need every bit of a float32."""
    parts = [
        ((_mixed(3, part) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23)) - 1
        for part in (3, 4)
    ]
    return torch.from_numpy(parts[0]), torch.from_numpy(parts[1]) / 16


def _judge(looks: Sequence[_Look], duration_ms: int) -> list[ProbeResult]:
    found = []
    repeats = sum(look.repeats for look in looks)
    for name in DTYPES:
        wrong = [(look.core, look.wrong[name]) for look in looks if name in look.wrong]
        found += _results(f"product_{name}", wrong, repeats, duration_ms)
    answers = sum((look.seeded for look in looks), Counter[str]())
    usual = answers.most_common(1)[0][0] if answers else ""
    odd = [
        (look.core, f"{count} of {look.repeats} times other bits than most ({digest}, not {usual})")
        for look in looks
        for digest, count in sorted(look.seeded.items())
        if digest != usual
    ]
    odd += [(look.core, look.broke) for look in looks if look.broke]
    found += _results("product_seeded", odd, repeats, duration_ms)
    return found


def _results(
    name: str, wrong: Sequence[tuple[int, str]], repeats: int, duration_ms: int
) -> list[ProbeResult]:
    figures = (Figure(name="repeats", value=repeats),)
    if not wrong:
        return [
            ProbeResult(name=name, verdict=Verdict.PASSED, duration_ms=duration_ms, figures=figures)
        ]
    return [
        ProbeResult(
            name=name,
            where=f"core {core}",
            verdict=Verdict.FAILED,
            detail=detail,
            duration_ms=duration_ms,
            figures=figures,
        )
        for core, detail in wrong
    ]


def _difference(got: torch.Tensor, answer: torch.Tensor, repeat: int) -> str:
    wrong = (got != answer).nonzero()
    row, column = (int(i) for i in wrong[0])
    expected, found = float(answer[row, column]), float(got[row, column])
    return (
        f"{len(wrong)} of {answer.numel()} elements wrong in repeat {repeat}; at {row},{column} "
        f"expected {expected:.0f}, got {found}"
    )


def _digest(tensor: torch.Tensor) -> str:
    return xxhash.xxh3_64_hexdigest(tensor.contiguous().numpy().tobytes())


def _mixed(seed: int, part: int) -> Any:
    """Return well mixed 64-bit numbers that follow from their places alone (splitmix64)."""
    places = np.arange(SIZE * SIZE, dtype=np.uint64) + np.uint64((seed << 32) + (part << 20))
    mixed = places * _GOLDEN
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).reshape(SIZE, SIZE)
