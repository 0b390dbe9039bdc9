"""What becomes of ``stack.json`` on a full disk."""

from __future__ import annotations

import errno
import resource

import pytest

from everstep.core.system import SystemClock
from everstep.local import running as module
from everstep.local.keys import Credentials, Ports
from everstep.local.running import RunningStack
from everstep.local.state import Stack, StatePaths, load_stack, save_stack


@pytest.fixture
def stack() -> Stack:
    """One without hosts."""
    return Stack(
        stack_id="abc",
        memory_root="/nowhere",
        server_ports=Ports(postgres=1, nats=2, s3=3, s3_internal=()),
        service_ports={},
        credentials=Credentials(
            postgres_password="p",
            nats_password="n",
            nats_system_password="s",
            s3_access_key="a",
            s3_secret_key="k",
        ),
    )


def test_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path, stack):
    """What is left would hold the passwords, and survive a wipe."""
    paths = StatePaths(root=tmp_path)
    save_stack(paths, stack)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            save_stack(paths, stack)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]
    assert load_stack(paths) == stack


def test_process_table_that_cannot_be_written_ends_no_supervision(
    tmp_path, stack, monkeypatch, capsys
):
    """A service that dies while the disk is full is started again."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_stack", full)
    supervised = RunningStack(
        paths=StatePaths(root=tmp_path), stack=stack, catalogue=None, clock=SystemClock()
    )
    supervised._note_processes()
    assert "cannot be written" in capsys.readouterr().err
