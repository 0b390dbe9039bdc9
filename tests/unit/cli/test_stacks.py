"""How stacks read on a screen."""

from __future__ import annotations

from everstep.cli.stacks_command import stack_lines

FOUND = {
    "groups": [
        {
            "role": "waits for other ranks",
            "where": "a.py:main:3 > distributed_c10d.py:all_reduce",
            "ranks": [0, 1, 2, 4],
            "hosts": ["h1", "h2", "h3"],
            "stands_out": False,
            "frames": [f"f{i}.py:call:{i}" for i in range(20)],
        },
        {
            "role": "loads data",
            "where": "a.py:__getitem__:9",
            "ranks": [3],
            "hosts": ["h2"],
            "stands_out": True,
            "frames": ["a.py:__getitem__:9"],
        },
    ],
    "unseen": [5],
}


def test_groups_are_told_with_their_innermost_frames():
    """Further out all ranks look alike."""
    lines = stack_lines(FOUND)
    assert lines[0] == "ranks 0-2,4 on h1, h2, h3: waits for other ranks"
    assert lines[1] == "    f8.py:call:8"
    assert lines[12] == "    f19.py:call:19"
    assert lines[13:] == [
        "rank 3 on h2: loads data  <- stands out",
        "    a.py:__getitem__:9",
        "nobody has told of ranks 5",
    ]
