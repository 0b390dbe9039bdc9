"""The bundled S3 server: SeaweedFS in one process, with one random key pair.

Run as ``weed mini``: up in 0.8 s, where ``weed server`` takes 2 to 8 s for a leader election among
one. What it cannot be told is where to put two small sockets of its own; they lie in /tmp and are
named as leftovers. Its inner parts (filer, volumes) listen on loopback without asking for a key,
which is one more reason why it is for one machine and its owner only.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from everstep.local.bundled_nats import binary
from everstep.local.server_command import HOST, PROBE_TIMEOUT_S, ServerCommand

INTERNAL_PORT_COUNT: Final = 9
_INTERNAL_FLAGS: Final = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
    "filer.port.grpc", "s3.port.grpc", "admin.port", "admin.port.grpc",
)  # fmt: skip


def s3_endpoint(port: int) -> str:
    """Return host and port for S3 clients; plain HTTP."""
    return f"{HOST}:{port}"


def prepare_s3(
    directory: Path,
    *,
    port: int,
    internal_ports: Sequence[int],
    access_key: str,
    secret_key: str,
) -> ServerCommand:
    """Write the configuration (mode 0600) and return how to run the server.

    Args:
        directory: of the configuration and all data.
        port: where S3 clients connect.
        internal_ports: ``INTERNAL_PORT_COUNT`` more, for its parts to talk to each other.
        access_key: of the one user.
        secret_key: of the one user.

    Raises:
        NotFoundError: no ``weed`` binary.
    """
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / "s3.json"
    path.touch(mode=0o600)
    user = {
        "name": "everstep",
        "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    path.write_text(json.dumps({"identities": [user]}, indent=1))
    flags = {
        "dir": data,
        "ip": HOST,
        "ip.bind": HOST,
        "s3.port": port,
        "s3.config": path,
        "s3.iam": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "webdav": "false",
        "admin.ui": "false",
        "master.telemetry": "false",
        **dict(zip(_INTERNAL_FLAGS, internal_ports, strict=True)),
    }
    return ServerCommand(
        name="s3",
        argv=(
            str(binary("weed")),
            "-logtostderr=true",
            "mini",
            *(f"-{name}={value}" for name, value in flags.items()),
        ),
        # Its admin part, which we do not use, asks for a password when it is given one.
        env={"PATH": os.defpath, "HOME": str(directory), "WEED_ADMIN_PASSWORD": secret_key},
        cwd=directory,
        ready=lambda: _answers(port),
        stop_grace_s=1.0,  # it may wait half a minute for its own parts; killing it loses nothing
        leftovers=tuple(
            Path(f"/tmp/seaweedfs-{part}.sock")  # noqa: S108 - not ours to choose
            for part in (
                f"s3-{port}",
                f"filer-{flags['filer.port']}",
                *(f"{part}-grpc-{number}" for part in _PARTS for number in internal_ports),
            )
        ),
    )


_PARTS: Final = ("master", "volume", "filer", "s3", "admin")


async def _answers(port: int) -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            status = await reader.readline()
            writer.close()
    except (OSError, TimeoutError):
        return False
    return b" 200 " in status
