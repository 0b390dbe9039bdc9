"""Fakes for the command line: services that answer from a table, and stacks of tiny programs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from everstep.cli.client import SERVICES
from everstep.local.keys import Credentials, Ports
from everstep.local.processes import record_of
from everstep.local.state import STATE_VARIABLE, ProcessRecord, Stack, StatePaths, save_stack


@dataclass
class FakeServices:
    """All four services at one address; answers are looked up by method and path."""

    port: int = 0
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def on(self, method: str, path: str, body: Any, status: int = 200) -> None:
        """Answer so from now on; a function answers by the query."""
        self.answers[method, path] = (status, body)

    def refuse(self, method: str, path: str, status: int, message: str) -> None:
        """Refuse so from now on."""
        self.on(method, path, {"error": {"code": "refused", "message": message}}, status)


@contextmanager
def serving(fake: FakeServices, *, port: int = 0) -> Iterator[None]:
    """Let the fake answer on a port of loopback, a free one unless asked."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            fake.asked.append((self.command, self.path, body))
            path, _, query = self.path.partition("?")
            unknown = {"error": {"code": "not_found", "message": f"no {path}"}}
            status, answer = fake.answers.get((self.command, path), (404, unknown))
            if callable(answer):
                answer = answer(parse_qs(query))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer  # noqa: N815 - the base class asks for these names

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.port = server.server_port
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def services(monkeypatch):
    """Fake services that `everstep` finds through the environment."""
    fake = FakeServices()
    with serving(fake):
        for name in SERVICES:
            monkeypatch.setenv(f"EVERSTEP_{name.upper()}_URL", f"http://127.0.0.1:{fake.port}")
        yield fake


@pytest.fixture
def local(monkeypatch, tmp_path):
    """Fake services of a stack on this machine; its supervisor is this test's process."""
    fake = FakeServices()
    with serving(fake):
        for name in SERVICES:
            monkeypatch.delenv(f"EVERSTEP_{name.upper()}_URL", raising=False)
        paths = StatePaths(root=tmp_path / "state")
        paths.create()
        save_stack(paths, stack_of(record_of("supervisor", os.getpid()), port=fake.port))
        monkeypatch.setenv(STATE_VARIABLE, str(paths.root))
        yield fake


def stack_of(supervisor: ProcessRecord | None, *, port: int = 1) -> Stack:
    """Return a stack whose services are all at one port."""
    return Stack(
        stack_id="test",
        memory_root="/nonexistent/memory",
        server_ports=Ports(postgres=1, nats=1, s3=1, s3_internal=()),
        service_ports=dict.fromkeys(SERVICES, port),
        credentials=Credentials(**dict.fromkeys(Credentials.__dataclass_fields__, "secret")),
        supervisor=supervisor,
    )
