"""Listings of one job: none yet, or no such job."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner

from everstep.cli import client
from everstep.cli.app import app
from everstep.core.errors import NotFoundError


@pytest.fixture
def jobs(monkeypatch) -> set[str]:
    """Jobs that the controller knows; the other services have not heard of any of them."""
    known: set[str] = set()
    made = httpx.Client

    def answer(request: httpx.Request) -> httpx.Response:
        service, name = request.url.host, request.url.path.rpartition("/")[2]
        if service == "controller" and name in known:
            return httpx.Response(200, json={"job_id": name})
        message = f"the {service} knows no job; `everstep jobs` lists them"
        error = {"code": "not_found", "message": message}
        return httpx.Response(404, json={"error": error})

    def client_of(*args, **kwargs):
        return made(*args, **{**kwargs, "transport": httpx.MockTransport(answer)})

    monkeypatch.setattr(httpx, "Client", client_of)
    for name in client.SERVICES:
        monkeypatch.setenv(f"EVERSTEP_{name.upper()}_URL", f"http://{name.replace('_', '-')}")
    return known


@pytest.mark.parametrize(
    ("listing", "none"),
    [("incidents", "no incidents\n"), ("checkpoints", "no checkpoints yet\n")],
)
def test_job_that_a_service_has_not_heard_of_has_none_yet(jobs, listing, none):
    """Right after a launch only the controller knows it."""
    jobs.add("j")
    result = CliRunner().invoke(app, [listing, "--job", "j"])
    assert (result.exit_code, result.stdout) == (0, none)
    told = CliRunner().invoke(app, [listing, "--job", "j", "--json"])
    assert (told.exit_code, json.loads(told.stdout)) == (0, [])


@pytest.mark.parametrize("listing", ["incidents", "checkpoints"])
def test_job_that_there_is_not_is_an_error(jobs, listing):
    """An empty listing of a mistyped id would say that all is well."""
    jobs.add("j")
    result = CliRunner().invoke(app, [listing, "--job", "mistyped"])
    assert isinstance(result.exception, NotFoundError)
    assert str(result.exception) == "the controller knows no job; `everstep jobs` lists them"
    assert result.stdout == ""
