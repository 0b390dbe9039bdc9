"""Starts and ends a one-machine stack from the outside: what ``up`` and ``down`` do.

The command line prepares ``stack.json`` and starts the supervisor; from then on only the supervisor
writes there. A lock file keeps two of us apart. In a copy of a state directory nothing runs: what
its file names is the original's, and is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from everstep.core.errors import (
    CorruptData,
    EverstepError,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.core.system import RandomIds
from everstep.local import cleanup, control, hosts, processes, wiping
from everstep.local.fleet import CHIPS_DEFAULT, PODS_DEFAULT, first_fleet
from everstep.local.state import (
    DROPPED_PREFIX,
    INVENTORY_SETTINGS,
    SHM,
    HostConfig,
    Stack,
    StatePaths,
    home_of,
    is_copy,
    load_stack,
    save_stack,
)
from everstep.local.state_lock import at_work, holder, only_us

POLL_S: Final = 0.2  # fast enough for a person, nothing for the machine
UP_TIMEOUT_S: Final = (
    180.0  # 10 to 20 s are usual; the rest is for a machine that is busy otherwise
)
GROW_TIMEOUT_S: Final = 120.0
DOWN_TIMEOUT_S: Final = 60.0  # servers get 8 s each to end by themselves
SUPERVISOR: Final = (sys.executable, "-m", "everstep.local.supervisor")
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What ``up`` was asked for."""

    hosts: int = 4
    spares: int = 1
    chips: int = CHIPS_DEFAULT
    pods: int = PODS_DEFAULT
    chaos: bool = False  # let faults be injected

    def fleet(self) -> tuple[HostConfig, ...]:
        """Return the hosts of a new stack."""
        return first_fleet(hosts=self.hosts, spares=self.spares, chips=self.chips, pods=self.pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpResult:
    """What ``up`` found and did."""

    stack: Stack
    was_up: bool
    added: tuple[str, ...] = ()


def running_stack(paths: StatePaths) -> Stack | None:
    """Return the stack if its supervisor lives."""
    stack = load_stack(paths)
    if stack is None or stack.supervisor is None or is_copy(paths, stack):
        return None
    return stack if processes.is_alive(stack.supervisor) else None


def original_of(paths: StatePaths) -> str:
    """Return the directory that this one is a copy of; "" when it is none, or nobody can tell."""
    try:
        stack = load_stack(paths)
    except CorruptData:
        return ""
    if stack is None or stack.home is None or not is_copy(paths, stack):
        return ""
    return stack.home.path


def require_stack(paths: StatePaths) -> Stack:
    """Return the running stack.

    Raises:
        NotFoundError: there is none in this directory.
        Unavailable: there is one, but its supervisor was killed, or is just being started.
    """
    stack = load_stack(paths)
    if stack is not None and is_copy(paths, stack):
        original = original_of(paths)
        raise NotFoundError(
            f"no stack runs in {paths.root}, which is a copy of {original}: `everstep --state "
            f"{original}` reaches that one, `everstep up` starts one here"
        )
    up = stack is not None and stack.supervisor is not None and processes.is_alive(stack.supervisor)
    if not up and holder(paths) == "up":
        raise Unavailable(f"the stack in {paths.root} is being started: ask again in a few seconds")
    if stack is None or stack.supervisor is None:
        raise NotFoundError(
            f"no stack runs in {paths.root}: `everstep up` starts one, --state names another"
        )
    if not up:
        raise Unavailable(
            f"the supervisor of the stack in {paths.root} is dead: `everstep up` starts the stack "
            "again and its jobs go on, `everstep down` ends what is left of it"
        )
    return stack


def order(paths: StatePaths, request: dict[str, Any], *, timeout_s: float = 60.0) -> Any:
    """Give the running supervisor an order. Raises as ``require_stack`` and ``control.ask``."""
    require_stack(paths)
    return control.ask(paths.socket, request, timeout_s=timeout_s)


def up(
    paths: StatePaths,
    plan: Plan,
    progress: Progress,
    *,
    supervisor: Sequence[str] = SUPERVISOR,
) -> UpResult:
    """Bring the stack up and wait until it can be used; grow one that is up already.

    Args:
        paths: where.
        plan: how many hosts; what runs already is never taken away.
        progress: is told the supervisor's status now and then.
        supervisor: the command that runs it, without ``--state DIR``.

    Raises:
        EverstepError: it does not come up; the message says which part and where its log is.
        KeyboardInterrupt: it was taken down again.
    """
    wiping.refuse_strange(paths)
    paths.create()
    with only_us(paths, "up"):
        if running_stack(paths) is not None:
            _wait_running(paths, progress)
            if plan.chaos and not require_stack(paths).chaos:
                raise RefusedError(
                    "not_for_chaos",
                    f"the stack in {paths.root} runs without --chaos: `everstep down` and then "
                    "`everstep up --chaos` start it so; its data and jobs stay",
                )
            request = {"command": "grow", "hosts": plan.hosts, "spares": plan.spares}
            answer = control.ask(paths.socket, request, timeout_s=GROW_TIMEOUT_S)
            added = tuple(answer["added"])
            return UpResult(stack=require_stack(paths), was_up=True, added=added)
        before = load_stack(paths)
        if before is not None and is_copy(paths, before):
            _adopt(paths, before)
        elif before is not None:
            cleanup.sweep(paths, before)
        save_stack(paths, _new_stack(paths, plan, before))
        process: subprocess.Popen[bytes] | None = None
        try:
            with _interrupted_later():
                process = _start_supervisor(paths, supervisor)
            _wait_running(paths, progress, process)
        except (EverstepError, KeyboardInterrupt):
            progress({"phase": "stopping", "doing": "", "problem": "", "units": []})
            if process is not None:
                _end(process)
            _stop(paths)
            raise
        return UpResult(stack=require_stack(paths), was_up=False)


def has_data(paths: StatePaths) -> bool:
    """Say whether there is anything that ``down`` with ``wipe`` would delete."""
    return paths.stack_file.exists()


def down(paths: StatePaths, *, wipe: bool) -> bool:
    """Take the stack down and clean up; say whether there was anything.

    A directory that has never had a stack, and the original of a copy, stay as they are.

    Args:
        paths: where.
        wipe: also delete its data: databases, checkpoints, logs.

    Raises:
        Unavailable: another start or stop is at work.
    """
    if not paths.stack_file.exists():
        if holder(paths):
            raise at_work(paths)
        return False
    with only_us(paths, "down"):
        found = _stop(paths)
        if wipe:
            wiping.wipe(paths)
    if wipe:
        wiping.drop_directory(paths)
    return found


def _stop(paths: StatePaths) -> bool:
    try:
        stack = load_stack(paths)
    except CorruptData:
        return _stop_unknown(paths)
    if stack is None or is_copy(paths, stack):
        return False
    supervisor = stack.supervisor
    was_up = supervisor is not None and processes.is_alive(supervisor)
    if supervisor is not None and was_up:
        with contextlib.suppress(Unavailable):
            control.ask(paths.socket, {"command": "stop"})
        if processes.wait_gone([supervisor], timeout_s=DOWN_TIMEOUT_S):
            processes.kill_all([supervisor])
    left = cleanup.sweep(paths, stack)
    return was_up or left > 0


def _stop_unknown(paths: StatePaths) -> bool:
    """End a stack whose file we cannot read, e.g. another version's: its supervisor can."""
    try:
        control.ask(paths.socket, {"command": "stop"})
    except Unavailable:
        return False
    deadline_s = time.monotonic() + DOWN_TIMEOUT_S
    while paths.socket.exists() and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    return True


def _adopt(paths: StatePaths, copy: Stack) -> None:
    """Forget which processes a copied state tells of, so that it can be a stack of its own.

    Raises:
        RefusedError: they run: their databases were copied while somebody wrote to them.
    """
    if copy.supervisor is not None and processes.is_alive(copy.supervisor):
        raise RefusedError(
            "copied_while_up",
            f"{paths.root} is a copy of {original_of(paths)}, whose stack was up: such databases "
            "are not whole. Take that one down before you copy it; `everstep down --wipe` deletes "
            "this copy and leaves that one alone",
        )
    for host in copy.hosts:
        hosts.forget_run_files(paths, host.host_id)


def _new_stack(paths: StatePaths, plan: Plan, before: Stack | None) -> Stack:
    """Keep secrets and identity of an earlier run: its databases were made with them."""
    # Not on top: a plain installation, made to talk to a cluster, has no database driver.
    from everstep.local.servers import new_credentials, new_ports, new_service_ports

    ids = RandomIds()
    own = before if before is not None and not is_copy(paths, before) else None
    stack_id = own.stack_id if own is not None else ids.new_id("")[:12]
    shared = SHM.is_dir() and os.access(SHM, os.W_OK)
    servers = new_ports(ids)
    root = SHM / f"everstep-{stack_id}" if shared else paths.root / "memory"
    return Stack(
        stack_id=stack_id,
        memory_root=str(root),
        server_ports=servers,
        service_ports=new_service_ports(servers, ids),
        credentials=before.credentials if before is not None else new_credentials(ids),
        hosts=plan.fleet(),
        spares=plan.spares,
        chaos=plan.chaos,
        home=home_of(paths),
    )


def _start_supervisor(paths: StatePaths, command: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(DROPPED_PREFIX) or name in INVENTORY_SETTINGS
    }
    with paths.log("supervisor").open("ab") as log:
        return subprocess.Popen(
            [*command, "--state", str(paths.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=paths.root,
            env=environment,
            start_new_session=True,
        )


def _wait_running(
    paths: StatePaths, progress: Progress, supervisor: subprocess.Popen[bytes] | None = None
) -> None:
    deadline_s = time.monotonic() + UP_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            status = control.ask(paths.socket, {"command": "status"})
        except Unavailable:
            status = {"phase": "starting", "doing": "supervisor", "units": [], "problem": ""}
        if supervisor is not None and supervisor.poll() is not None:
            raise Unavailable(f"the supervisor has ended; its log is {paths.log('supervisor')}")
        progress(status)
        if status["phase"] == "running":
            return
        if status["phase"] == "failed":
            raise Unavailable(f"the stack did not come up: {status['problem']}")
        time.sleep(POLL_S)
    raise Unavailable(
        f"the stack did not come up within {UP_TIMEOUT_S:.0f} s; look at the logs in {paths.logs}"
    )


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Hold a Ctrl-C back until the end: a process started meanwhile would be known to nobody."""
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """End a supervisor that may not have said yet that it is one."""
    supervisor.terminate()
    try:
        supervisor.wait(timeout=DOWN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
