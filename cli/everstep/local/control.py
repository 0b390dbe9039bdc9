"""How the command line talks to the supervisor: one JSON line each way over a Unix socket.

The socket lies in the private state directory, so the file system decides who may ask.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from everstep.core.errors import EverstepError, RefusedError, Unavailable

LINE_BYTES_MAX: Final = 1 << 20  # a status of a thousand hosts is a tenth of it
ANSWER_TIMEOUT_S: Final = 60.0  # stopping a stack whose servers hang takes half a minute

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def ask(path: Path, request: dict[str, Any], *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """Send a request to the supervisor and return its answer.

    Raises:
        Unavailable: nobody listens there, or no answer came in time.
        RefusedError: the supervisor refused; the message says why.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(timeout_s)
        try:
            channel.connect(str(path))
            channel.sendall(json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as lines:
                line = lines.readline(LINE_BYTES_MAX)
        except OSError as error:
            raise Unavailable(
                f"the supervisor at {path} does not answer ({error.strerror or error}): if it "
                "stays so, `everstep down` and then `everstep up` start it anew"
            ) from error
    if not line:
        raise Unavailable(
            f"the supervisor at {path} ended before it answered: `everstep up` starts it again"
        )
    answer = json.loads(line)
    if not answer["ok"]:
        raise RefusedError(answer["why"], answer["detail"])
    return answer["result"]


async def serve(path: Path, answer: Answer) -> asyncio.Server:
    """Listen on ``path``, replacing a dead supervisor's socket, and answer each request."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line:
                writer.write(json.dumps(await _answer(answer, line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # who asked has gone, or sent more than a line may hold
        finally:
            writer.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _bind(listener, path)
        return await asyncio.start_unix_server(converse, sock=listener.dup(), limit=LINE_BYTES_MAX)


def _bind(listener: socket.socket, path: Path) -> None:
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    path.chmod(0o600)


async def _answer(answer: Answer, line: bytes) -> dict[str, Any]:
    try:
        return {"ok": True, "result": await answer(json.loads(line))}
    except RefusedError as error:
        return {"ok": False, "why": error.why, "detail": str(error)}
    except (EverstepError, OSError, KeyError, ValueError) as error:
        return {
            "ok": False,
            "why": type(error).__name__,
            "detail": f"{type(error).__name__}: {error}",
        }
