"""The HTTP side that all services share: health, metrics, one shape of error, one server.

Errors are ``{"error": {"code", "message"}}`` with the status of their class in ``core.errors``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from everstep.core.errors import EverstepError, InvalidInput, RefusedError, Unavailable
from everstep.service.error_answers import ERROR_ANSWERS, error_response
from everstep.service.health import Health
from everstep.service.metrics import Metrics
from everstep.service.request_errors import request_problems, unknown_parameters
from everstep.service.screening import Screen

SHUTDOWN_S: Final = 2.0  # requests take milliseconds; streams to browsers are cut after this
OPEN_PATHS: Final = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")

# character_not_in_repertoire, untranslatable_character: PostgreSQL has no NUL in text or JSON.
UNSTORABLE: Final = frozenset({"22021", "22P05"})

_log = logging.getLogger(__name__)


def create_app(name: str, health: Health, metrics: Metrics) -> FastAPI:
    """Make the application to which a service adds its routes."""
    app = FastAPI(
        title=f"Everstep {name.replace('_', '-')}",
        version=version("everstep"),
        responses=ERROR_ANSWERS,
        dependencies=[Depends(refuse_unknown_parameters)],
        telemetry={  # a span a request, in the caller's trace; we measure and export ourselves
            "operation_spans": False,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
            "exclude": lambda scope: str(scope.get("path", "")).startswith(OPEN_PATHS),
        },
    )
    app.add_middleware(_Gate, health=health)
    app.add_middleware(Screen, refuse=_refusal)
    app.add_exception_handler(EverstepError, _on_fault)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(DBAPIError, _on_database)
    app.add_exception_handler(Exception, _on_bug)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive", "service": name}

    @app.get("/readyz", tags=["health"])
    async def readyz(response: Response) -> dict[str, Any]:
        """Database and bus answer and all loops run; 503 names what does not."""
        ready, parts = await health.report()
        response.status_code = 200 if ready else 503
        return {"ready": ready, "parts": parts}

    @app.get("/metrics", tags=["health"], include_in_schema=False)
    async def prometheus() -> Response:
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query parameter that the route does not have: it would change nothing, unseen.

    Raises:
        InvalidInput: there is one; names those that there are.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or request.url.path.startswith(OPEN_PATHS):
        return  # whoever asks for health or metrics may add what its tools add everywhere
    problem = unknown_parameters(
        request.query_params.keys(), [one.alias for one in route.dependant.query_params]
    )
    if problem:
        raise InvalidInput(problem)


async def _on_fault(_: Request, error: Exception) -> Response:
    assert isinstance(error, EverstepError)
    code = error.why if isinstance(error, RefusedError) else error.code
    return error_response(error.http_status, code, str(error))


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(422, "invalid_input", request_problems(error.errors()))


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "http_error"
    return error_response(error.status_code, code, str(error.detail), error.headers)


async def _on_database(_: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)
    if getattr(error.orig, "sqlstate", None) not in UNSTORABLE:
        raise error  # a bug of ours, not of the request
    return _refusal("a text in the request holds the character U+0000 (NUL): send it without")


def _refusal(message: str) -> JSONResponse:
    return error_response(InvalidInput.http_status, InvalidInput.code, message)


async def _on_bug(request: Request, error: Exception) -> Response:
    message = f"{type(error).__name__} in {request.method} {request.url.path}: see the log"
    return error_response(500, "internal", message)


class _Gate:
    """Answers 503 until start-up is over: routes and projections may not be there yet."""

    def __init__(self, app: ASGIApp, health: Health) -> None:
        self._app = app
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        closed = scope["type"] == "http" and not self._health.running
        if closed and not scope["path"].startswith(OPEN_PATHS):
            _, parts = await self._health.report()
            waits = ", ".join(f"{k}: {v}" for k, v in parts.items() if v != "ok")
            app = error_response(503, Unavailable.code, f"not ready ({waits})")
        await app(scope, receive, send)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has one place for those."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: FastAPI, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve ``app`` until the block ends; yields the port (chosen by the system for 0).

    Raises:
        Unavailable: the address cannot be bound.
    """
    listener = _bind(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(SHUTDOWN_S),
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait({task}, timeout=2 * SHUTDOWN_S)
        listener.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host}:{port} ({error.strerror}): set EVERSTEP_HTTP_PORT"
        ) from error
    return listener
