"""What faulthandler writes, read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.agent.stack_file import (
    FRAME_BYTES_MAX,
    FRAMES_MAX,
    MAIN_BYTES_MAX,
    OTHER_FRAMES_MAX,
    OTHER_THREADS_MAX,
    Owner,
    Stacks,
    read_owner,
    read_stacks,
    shortened,
    thread_name,
)

MAIN = Owner(pid=4242, thread=thread_name(0x7F1230AA))
DUMP = """\
rank process 4242, main thread 0x000000007f1230aa
Thread 0x000000007f000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/srv/app/venv/lib/python3.11/site-packages/torch/utils/x.py", line 20 in run

Current thread 0x000000007f1230aa (most recent call first):
  Garbage-collecting
  File "/home/me/my models/net.py", line 31 in forward
  File "/srv/app/worker/everstep/train/rank_main.py", line 53 in _run_entry
  File "/srv/app/worker/everstep/train/leaving.py", line 31 in call
  File "<frozen runpy>", line 88 in _run_code
"""


def test_dump_is_read_outermost_first():
    """Main thread by its name in the first line, without how the process came to be."""
    assert read_owner(DUMP) == MAIN
    assert read_stacks(DUMP, MAIN) == Stacks(
        main=(
            "everstep/train/rank_main.py:_run_entry:53",
            "/home/me/my models/net.py:forward:31",
        ),
        others=(("site-packages/torch/utils/x.py:run:20", "python/threading.py:wait:324"),),
    )


def test_stack_of_the_signalled_thread_is_the_main_one():
    """A handler writes one stack, and not whose."""
    head = f"{MAIN.line()}Stack (most recent call first):\n"
    assert read_stacks(f'{head}  File "/m.py", line 3 in f\n', MAIN) == Stacks(main=("/m.py:f:3",))


def test_thread_that_answers_is_left_out():
    """It is there in every rank, and does nothing else."""
    text = DUMP.replace("/usr/lib/python3.11/threading.py", "/src/worker/everstep/train/stacks.py")
    assert read_stacks(text, MAIN) == Stacks(main=read_stacks(DUMP, MAIN).main)


def test_threads_with_names_are_read():
    """A name may stand behind the number."""
    text = DUMP.replace("0x000000007f1230aa (most", "0x000000007f1230aa [python] (most")
    assert read_stacks(text, MAIN) == read_stacks(DUMP, MAIN)


def test_owner_of_a_strange_file_is_nobody():
    """An empty one, or one that is no rank's."""
    assert read_owner("") is None
    assert read_owner("something else\n") is None


def test_owner_is_read_as_it_was_written():
    """Rank and agent agree on the first line."""
    assert read_owner(MAIN.line()) == MAIN


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/opt/v/lib/python3.11/site-packages/torch/nn/x.py", "site-packages/torch/nn/x.py"),
        ("/usr/lib/python3/dist-packages/yaml/x.py", "site-packages/yaml/x.py"),
        ("/usr/lib/python3.13/asyncio/events.py", "python/asyncio/events.py"),
        ("/src/worker/everstep/train/run.py", "everstep/train/run.py"),
        ("/src/worker/everstep/models/pretrain.py", "/src/worker/everstep/models/pretrain.py"),
        ("/home/me/everstep/train.py", "/home/me/everstep/train.py"),
        ("train.py", "train.py"),
    ],
)
def test_file_is_cut_to_what_is_the_same_on_every_host(file, short):
    """Libraries and the SDK; the user's own code keeps its path."""
    assert shortened(file) == short


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 400))
def test_what_is_read_is_bounded(threads, frames, length):
    """Whatever a rank writes, the answer stays small, and keeps the innermost frames."""
    names = [f"f{n}" + "x" * length for n in range(frames)]
    body = "".join(f'  File "/m.py", line 1 in {name}\n' for name in names)
    others = "".join(
        f"Thread 0x{n:016x} (most recent call first):\n{body}\n" for n in range(threads)
    )
    text = f"{MAIN.line()}{others}Current thread {MAIN.thread} (most recent call first):\n{body}"
    found = read_stacks(text, MAIN)
    size = sum(map(len, found.main))
    assert size <= MAIN_BYTES_MAX
    assert len(found.main) == min(frames, FRAMES_MAX) or size > MAIN_BYTES_MAX - FRAME_BYTES_MAX
    assert all(len(frame) <= FRAME_BYTES_MAX for frame in found.main)
    assert len(found.others) == (min(threads, OTHER_THREADS_MAX) if frames else 0)
    assert all(len(other) == min(frames, OTHER_FRAMES_MAX) for other in found.others)


@given(st.text(alphabet='0x Threadcurn:"File,lin()\n/.py', max_size=400))
def test_garbage_is_read_without_a_complaint(text):
    """A dump that was cut short, or overwritten."""
    read_stacks(text, MAIN)
