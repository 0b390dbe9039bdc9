"""Control characters are turned away in one place, for every route of every service."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import DBAPIError

from everstep.service.health import Health
from everstep.service.http import create_app
from everstep.service.metrics import Metrics


class Refused(Exception):  # noqa: N818 - the database driver's, in short
    """What the driver raises, with the code of the server."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.fixture
def app() -> FastAPI:
    """A service that runs, with a route that tells what came through."""
    health = Health()
    health.phase("running")
    app = create_app("toy", health, Metrics())

    @app.get("/v1/things/{name}")
    async def thing(name: str, note: str = "") -> dict[str, str]:
        return {"name": name, "note": note}

    @app.post("/v1/fail/{sqlstate}")
    async def fail(sqlstate: str) -> None:
        raise DBAPIError("insert", None, Refused(sqlstate))

    return app


@pytest.fixture
def http(app: FastAPI) -> httpx.AsyncClient:
    """A client without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://toy")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("/v1/things/a%00b", "the path holds the control character U+0000"),
        ("/v1/things/a%0Ab", "the path holds the control character U+000A"),
        ("/v1/things/a%C2%85b", "the path holds the control character U+0085"),
        ("/v1/things/a?note=x%00", "query parameter 'note' holds the control character U+0000"),
        ("/v1/things/a?no%7Fte=x", "a query parameter's name holds the control character U+007F"),
        ("/nowhere/%1B", "the path holds the control character U+001B"),
    ],
)
async def test_control_character_in_a_url_is_refused(http, url, named):
    """With the place and the character, before any route runs."""
    answer = await http.get(url)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_input"
    assert answer.json()["error"]["message"].startswith(named)


async def test_text_of_any_language_passes(http):
    """Only control characters are turned away."""
    answer = await http.get("/v1/things/h%C3%BCgel%20%E5%B1%B1", params={"note": "100 % +1"})
    assert answer.json() == {"name": "hügel 山", "note": "100 % +1"}


@pytest.mark.parametrize("sqlstate", ["22021", "22P05"])
async def test_nul_in_a_body_is_refused_when_the_database_cannot_store_it(http, sqlstate):
    """Free text may hold line feeds, so bodies are not screened character by character."""
    answer = await http.post(f"/v1/fail/{sqlstate}")
    assert answer.status_code == 422
    assert "NUL" in answer.json()["error"]["message"]


async def test_other_errors_of_the_database_are_bugs(http):
    """They must not be blamed on the caller."""
    answer = await http.post("/v1/fail/42703")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
