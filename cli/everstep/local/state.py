"""Where a one-machine stack keeps everything, and the one file that says how to reach it.

All of a stack lies in one private directory. ``stack.json`` holds the addresses, the credentials
and the table of processes with their start times: whoever has the file can reach and clean up the
stack, whoever does not, cannot. While a stack is up only its supervisor writes there, and replaces
the file atomically, so a reader never sees half of it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from everstep.core.errors import CorruptData, InvalidInput
from everstep.local.keys import Credentials, Ports

# What a process needs of ours besides settings; anything else of the caller's environment passes
# too, so that user code finds what it would find when started by hand.
DROPPED_PREFIX: Final = "EVERSTEP_"
# What a person may tell a stack's inventory in the environment of `everstep up`.
INVENTORY_SETTINGS: Final = frozenset(
    f"{DROPPED_PREFIX}{name}"
    for name in (
        "HOLD_OUT_S", "HOLD_OUT_S_MAX", "SOUND_S", "PROBE_EVERY_S", "BURN_IN_S", "AUTO_RETURN",
        "REPAIR_HOOK", "REPAIR_HOOK_SECRET",
    )
)  # fmt: skip
STATE_VARIABLE: Final = "EVERSTEP_STATE"
STATE_DEFAULT: Final = ".everstep"
SOCKET_PATH_BYTES_MAX: Final = 107  # sun_path of unix(7) is 108 bytes with its final zero
SHM: Final = Path("/dev/shm")  # noqa: S108 - host memory is where snapshots belong

SERVICES: Final = ("host_inventory", "checkpoint_registry", "monitor", "controller")
SERVERS: Final = ("postgres", "nats", "s3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process that we started; when it began tells it from a later one with the same pid."""

    name: str
    pid: int
    start_ticks: int  # after boot, in the kernel's clock ticks
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPorts:
    """Where a host's agent finds others, and others find it, when a relay stands in between."""

    nats: int
    s3: int
    peers: int  # where other hosts ask for this one
    peers_behind: int  # where its agent listens


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """A host as the stack was told to run it."""

    host_id: str
    pod: str
    power: str
    chips: int
    down: bool = False  # killed by a person; stays down until started again
    relay: RelayPorts | None = None  # of a stack for chaos, while it is up

    def as_down(self) -> HostConfig:
        """Return the host, killed."""
        return replace(self, down=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The directory that a ``stack.json`` was written for.

    A copy of it elsewhere names the processes and the host memory of a stack that is not there. A
    directory that was moved is still the same one, and so is one that is mounted anew.
    """

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All that ``stack.json`` holds."""

    stack_id: str
    memory_root: str
    server_ports: Ports
    service_ports: dict[str, int]
    credentials: Credentials
    hosts: tuple[HostConfig, ...] = ()
    spares: int = 0
    chaos: bool = False  # whether faults may be injected: `everstep up --chaos`
    supervisor: ProcessRecord | None = None
    processes: tuple[ProcessRecord, ...] = ()
    home: Home | None = None  # None: an earlier version did not note it
    version: int = 1

    def url(self, service: str) -> str:
        """Return the HTTP base URL of a service."""
        return f"http://127.0.0.1:{self.service_ports[service]}"

    def host(self, host_id: str) -> HostConfig | None:
        """Return a host's configuration."""
        return next((host for host in self.hosts if host.host_id == host_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePaths:
    """The files and directories under one state directory."""

    root: Path

    @property
    def stack_file(self) -> Path:
        """Addresses, credentials, process table."""
        return self.root / "stack.json"

    @property
    def socket(self) -> Path:
        """Where the supervisor listens."""
        return self.root / "supervisor.sock"

    @property
    def lock(self) -> Path:
        """Held while a stack is started or taken down."""
        return self.root / "lock"

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.root / "logs"

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.logs / f"{name}.log"

    def data(self, server: str) -> Path:
        """Return the directory of one bundled server."""
        return self.root / server

    def run_dir(self, host_id: str) -> Path:
        """Return a host's sockets, rank logs and pid files."""
        return self.root / "hosts" / host_id

    def create(self) -> None:
        """Make the private directory.

        Raises:
            InvalidInput: its path is too long for the sockets inside it.
        """
        self.check_socket(self.socket)
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.logs.mkdir(exist_ok=True, mode=0o700)
        (self.root / "hosts").mkdir(exist_ok=True, mode=0o700)

    def check_socket(self, path: Path) -> None:
        """Refuse a socket path that the kernel would refuse with a worse message.

        Raises:
            InvalidInput: it is too long.
        """
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            raise InvalidInput(
                f"{path} is longer than the {SOCKET_PATH_BYTES_MAX} bytes a Unix socket may have: "
                f"choose a shorter state directory with {STATE_VARIABLE}"
            )


def state_paths(directory: str | None) -> StatePaths:
    """Return the paths of ``directory``, else of ``EVERSTEP_STATE``, else of ``.everstep`` here.

    Raises:
        InvalidInput: it, or a directory above it, is a file.
    """
    chosen = directory or os.environ.get(STATE_VARIABLE) or STATE_DEFAULT
    root = expanded(chosen).resolve()
    there = next(path for path in (root, *root.parents) if path.exists())
    if not there.is_dir():
        raise InvalidInput(
            f"{there} is a file, but a stack keeps its state in a directory: name one with "
            f"--state or {STATE_VARIABLE}"
        )
    return StatePaths(root=root)


def expanded(path: str) -> Path:
    """Return a path with the home directory that it begins with, if it does.

    Raises:
        InvalidInput: it is that of nobody.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InvalidInput(f"{path}: this machine knows no such home directory") from None


def load_stack(paths: StatePaths) -> Stack | None:
    """Read ``stack.json``; None when there is none.

    Raises:
        CorruptData: the file is not one of ours.
    """
    try:
        data = paths.stack_file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Stack)
    except msgspec.DecodeError as error:
        raise CorruptData(
            f"{paths.stack_file} cannot be read ({error}): "
            "`everstep down --wipe` removes it and all data"
        ) from error


def home_of(paths: StatePaths) -> Home:
    """Return what tells a state directory, which exists, from a copy."""
    found = paths.root.stat()
    return Home(path=str(paths.root), device=found.st_dev, inode=found.st_ino)


def is_copy(paths: StatePaths, stack: Stack) -> bool:
    """Say whether the stack's file lies in another directory than it was written for."""
    if stack.home is None:
        return False
    here, home = home_of(paths), stack.home
    return here.path != home.path and (here.device, here.inode) != (home.device, home.inode)


def save_stack(paths: StatePaths, stack: Stack) -> None:
    """Replace ``stack.json``, readable by its owner only."""
    data = msgspec.json.format(msgspec.json.encode(stack), indent=1)
    handle, name = tempfile.mkstemp(dir=paths.root, prefix="stack-", suffix=".json")
    try:
        with os.fdopen(handle, "wb") as file:  # mkstemp files have mode 0600
            file.write(data)
            file.flush()
            os.fsync(handle)  # the databases' passwords are nowhere else
        Path(name).replace(paths.stack_file)
    except OSError:
        Path(name).unlink(missing_ok=True)  # it holds passwords
        raise
