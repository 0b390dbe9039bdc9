"""A proxy before the real object store, which answers some requests itself or spoils their bodies.

What a store says when it is full, slow or thinks that a clock is off cannot be had from a small
server on demand; that its answers reach the agent as those of a server do is what this is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Spoil = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Request:
    """The head of a request."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def is_upload(self) -> bool:
        """Whether it stores a shard or a part of one."""
        return self.method == "PUT" and ".shard" in self.target


@dataclass
class FaultyStore:
    """Rules are asked in turn; the first that answers counts."""

    upstream: str
    endpoint: str = ""
    rules: list[Callable[[Request], bytes | Spoil | None]] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request; every connection carries one."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            request = _parsed(head)
            body = await reader.readexactly(int(request.headers.get("content-length", 0)))
            for rule in self.rules:
                said = rule(request)
                if isinstance(said, bytes):
                    self.refused.append(request)
                    writer.write(said)
                    break
                if said is not None:
                    self.refused.append(request)
                    body = said(body)
            else:
                await self._forward(request, body, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _forward(self, request: Request, body: bytes, writer: asyncio.StreamWriter) -> None:
        host, port = self.upstream.split(":")
        reader, upstream = await asyncio.open_connection(host, int(port))
        fields = request.headers | {"connection": "close"}
        if "content-length" in fields or body:
            fields["content-length"] = str(len(body))
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        upstream.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await upstream.drain()
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
        upstream.close()


def _parsed(head: bytes) -> Request:
    first, *lines = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    fields = (line.split(":", 1) for line in lines if line)
    return Request(method, target, {name.lower(): value.strip() for name, value in fields})


def answer(status: int, code: str = "", *, message: str = "", date: str = "") -> bytes:
    """An S3 server's refusal; without a code, a bare gateway's."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else "no"
    kind = "application/xml" if code else "text/plain"
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Date: {date}"] if date else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@asynccontextmanager
async def faulty_store(upstream: str):
    """Run a proxy before ``upstream`` until the block ends."""
    store = FaultyStore(upstream)
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0, limit=1 << 20)
    _, port = server.sockets[0].getsockname()
    store.endpoint = f"127.0.0.1:{port}"
    async with server:
        yield store
