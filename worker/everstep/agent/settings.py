"""What one host's agent is told at start, from the environment (prefix ``EVERSTEP_``)."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from everstep.core.ids import is_valid_id

# A unix socket's path must fit struct sockaddr_un: 108 bytes with the final zero (unix(7)).
SOCKET_PATH_BYTES_MAX: Final = 107


class AgentSettings(BaseSettings):
    """Frozen; secrets never show in a log line or a repr."""

    model_config = SettingsConfigDict(env_prefix="EVERSTEP_", frozen=True, extra="ignore")

    host_id: str  # no default: two hosts of one name would take each other's work
    pod: str = "pod-0"  # failure domains; placement keeps a pipeline inside one pod
    power: str = "power-0"
    chips: Annotated[int, Field(ge=1)] = 1
    address: str = "127.0.0.1"  # where other hosts reach this one
    run_dir: Path  # sockets, logs, pid files, what a restarted agent must know
    memory_dir: Path  # on a memory file system: snapshots, gone with the host
    interface: str = ""  # for the collectives' sockets; "": gloo and NCCL choose
    emulated: bool = False  # one of several hosts on this machine, which share its accelerators
    sysfs: Path = Path("/sys")  # what the kernel counts; another place for tests
    procfs: Path = Path("/proc")
    peer_port: int = 0  # snapshot server; 0: any free port, kept over restarts of the agent
    advertised_peer_port: int = 0  # where other hosts reach it, if something forwards; 0: the same
    nats_url: SecretStr = SecretStr("nats://127.0.0.1:4222")  # NATS' own default
    s3_endpoint: str = ""  # host:port; "": no object store, checkpoints stay in memory
    s3_access_key: SecretStr = SecretStr("")
    s3_secret_key: SecretStr = SecretStr("")
    s3_bucket: str = "everstep"
    s3_secure: bool = True
    # Larger shards go by parts of this size [bytes]: few requests, and little is sent twice after a
    # restart of the agent. S3 takes no part below 5 MiB.
    upload_part_bytes: Annotated[int, Field(ge=5 << 20)] = 64 << 20
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_valid_id(self.host_id):
            raise ValueError(f"host_id {self.host_id!r} must be letters, digits, - and _ only")
        return self


def socket_path(run_dir: Path, name: str) -> Path:
    """Return where the unix socket ``name`` of this run directory lies.

    Inside ``run_dir``, or, when that path is too long for a socket, in a private directory under
    the temporary one whose name follows from ``run_dir``, so that a restarted agent finds it.
    """
    inside = run_dir.resolve() / name
    if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES_MAX:
        return inside
    digest = hashlib.sha256(os.fsencode(inside.parent)).hexdigest()[:16]
    private = Path(tempfile.gettempdir()) / f"everstep-{os.getuid()}-{digest}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.stat().st_uid != os.getuid() or private.stat().st_mode & 0o077:
        raise PermissionError(f"{private} is not private to this user: remove it")
    return private / name
