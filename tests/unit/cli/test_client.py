import httpx
import pytest

from everstep.cli.client import SERVICES, Client, service_urls
from everstep.core.errors import InvalidInput, NotFoundError, RefusedError, Unavailable
from everstep.local.state import StatePaths

URLS = {name: f"http://{name.replace('_', '-')}" for name in SERVICES}


def client_of(answers):
    """A client of services that answer from a table of (method, url) -> (status, body)."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, str(request.url), request.content))
        status, body = answers[request.method, str(request.url)]
        return httpx.Response(status, json=body)

    return Client(URLS, transport=httpx.MockTransport(answer)), asked


def test_submit_sends_the_spec_to_the_controller():
    """The id of the caller's choice goes along, which makes a repeat harmless."""
    client, asked = client_of({("POST", "http://controller/v1/jobs"): (201, {"job_id": "j"})})
    assert client.submit({"name": "n"}, job_id="j") == {"job_id": "j"}
    assert asked[0][2] == b'{"spec":{"name":"n"},"job_id":"j"}'


def test_metrics_asks_the_monitor_for_newer_steps():
    """Only what is new is transferred."""
    url = "http://monitor/v1/jobs/j/metrics?after_step=7&limit=100"
    client, _ = client_of({("GET", url): (200, {"points": [{"step": 8}]})})
    assert client.metrics("j", after_step=7, limit=100) == [{"step": 8}]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFoundError),
        (422, InvalidInput),
        (400, InvalidInput),
        (409, RefusedError),
        (503, Unavailable),
        (500, RefusedError),
    ],
)
def test_refusal_becomes_the_matching_error_with_the_services_sentence(status, kind):
    """What the service says is what the person reads."""
    body = {"error": {"code": "c", "message": "no job j"}}
    client, _ = client_of({("GET", "http://controller/v1/jobs/j"): (status, body)})
    with pytest.raises(kind, match="no job j"):
        client.job("j")


def test_answer_that_is_no_refusal_of_ours_is_told_as_it_is():
    """A proxy's error page must not hide behind a decoding error."""
    transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>bad gateway"))
    with pytest.raises(Unavailable, match="controller answered 502: <html>bad gateway"):
        Client(URLS, transport=transport).jobs()


def test_answer_that_is_no_json_is_not_the_services():
    """An address that leads to a web page says so, not what a decoder thinks of it."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>welcome"))
    with pytest.raises(Unavailable, match="is not the host-inventory: it says '<html>welcome'"):
        Client(URLS, transport=transport).hosts()


@pytest.mark.parametrize("listing", ["incidents", "checkpoints"])
def test_listing_of_a_job_that_its_service_has_not_heard_of_is_empty(listing):
    """A program that watches a job from its launch on is not told that there is none."""
    error = {"error": {"code": "not_found", "message": "knows no job 'j'"}}
    transport = httpx.MockTransport(lambda _: httpx.Response(404, json=error))
    assert getattr(Client(URLS, transport=transport), listing)("j") == []
    with pytest.raises(NotFoundError):
        getattr(Client(URLS, transport=transport), listing)()


def test_service_that_is_not_there_is_named_with_what_to_do():
    """A refused connection says which service and how to look."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    client = Client(URLS, transport=httpx.MockTransport(refuse))
    with pytest.raises(Unavailable, match=r"host-inventory at http://host-inventory does not ans"):
        client.hosts()


def test_urls_come_from_the_environment_before_any_stack(monkeypatch, tmp_path):
    """A cluster's services are reached without a local stack."""
    for name in SERVICES:
        monkeypatch.setenv(f"EVERSTEP_{name.upper()}_URL", f"http://{name}/")
    assert service_urls(StatePaths(root=tmp_path)) == {name: f"http://{name}" for name in SERVICES}


def test_urls_without_any_stack_say_how_to_start_one(monkeypatch, tmp_path):
    """The first thing a newcomer sees must tell the next one."""
    monkeypatch.delenv("EVERSTEP_CONTROLLER_URL", raising=False)
    with pytest.raises(NotFoundError, match=r"no stack runs in .*: `everstep up` starts one"):
        service_urls(StatePaths(root=tmp_path))


def test_urls_of_a_cluster_that_lack_some_say_which(monkeypatch, tmp_path):
    """Whoever names a cluster does not want to hear of a stack on this machine."""
    for name in SERVICES:
        monkeypatch.setenv(f"EVERSTEP_{name.upper()}_URL", f"http://{name}")
    monkeypatch.delenv("EVERSTEP_MONITOR_URL")
    with pytest.raises(NotFoundError, match="without EVERSTEP_MONITOR_URL: set all 4 URLs"):
        service_urls(StatePaths(root=tmp_path))
