"""Fakes for the command line: services that answer from a table, and stacks of tiny programs."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from everstep.cli.client import SERVICES


@dataclass
class FakeServices:
    """All four services at one address; answers are looked up by method and path."""

    url: str = ""
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def on(self, method: str, path: str, body: Any, status: int = 200) -> None:
        """Answer so from now on; a function answers by the query."""
        self.answers[method, path] = (status, body)

    def refuse(self, method: str, path: str, status: int, message: str) -> None:
        """Refuse so from now on."""
        self.on(method, path, {"error": {"code": "refused", "message": message}}, status)


@pytest.fixture
def services(monkeypatch):
    """Fake services that `everstep` finds through the environment."""
    fake = FakeServices()

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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    for name in SERVICES:
        monkeypatch.setenv(f"EVERSTEP_{name.upper()}_URL", fake.url)
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()
