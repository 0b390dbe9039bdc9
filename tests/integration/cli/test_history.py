import json

import pytest
from tests.command import everstep
from tests.unit.planner.test_history_documents import at, host, incident, once, steps

POINTS = steps(1, 1, 38, 11) + steps(2, 39, 97, 61.5)


@pytest.fixture
def job(services):
    """A job that has lost a host."""
    document = once()
    services.on("GET", "/v1/jobs/j", document["job"])
    services.on("GET", "/v1/jobs/j/goodput", document["goodput"])
    services.on("GET", "/v1/jobs/j/interval", {"history": []})
    services.on("GET", "/v1/checkpoints", {"checkpoints": document["checkpoints"]})
    services.on("GET", "/v1/hosts", {"hosts": document["hosts"]})
    theirs = incident(4, 30, job_id="k", hosts=["x"])
    services.on("GET", "/v1/incidents", {"incidents": [*document["incidents"], theirs]})

    def points(query):
        after, limit = int(query["after_step"][0]), int(query["limit"][0])
        return {"points": [one for one in POINTS if one["step"] > after][:limit]}

    services.on("GET", "/v1/jobs/j/metrics", points)
    return services


def test_export_saves_what_the_services_know_and_says_where(job, tmp_path):
    """Other jobs' incidents are not its own; the file is replayed without any service."""
    exported = everstep("jobs", "export", "j", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert "written: j.history.json; `everstep plan --from-history j.history.json`" in (
        exported.stdout
    )
    document = json.loads((tmp_path / "j.history.json").read_text())
    assert (document["format"], document["version"]) == ("everstep-history", 1)
    assert len(document["metrics"]["rows"]) == len(POINTS)
    assert [one["incident_id"] for one in document["incidents"]] == ["i1"]
    assert document["intervals"] == []
    asked = len(job.asked)
    replayed = everstep("plan", "--from-history", "j.history.json", "--json", cwd=tmp_path)
    assert json.loads(replayed.stdout)["history"]["wall_ms"] == 120_500
    assert len(job.asked) == asked


def test_export_to_standard_output_is_the_document_alone(job, tmp_path):
    """For a pipe; nothing is written."""
    exported = everstep("jobs", "export", "j", "--out", "-", cwd=tmp_path)
    assert json.loads(exported.stdout)["job"]["job_id"] == "j"
    assert list(tmp_path.iterdir()) == []


def test_plan_asks_the_services_for_a_job(job):
    """Seven seconds of a restart, less what of training are stalls and waits for data."""
    asked = everstep("plan", "--from-history", "j", "--restart", "1s", "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["saved_ms"] == pytest.approx(7_000 * 92_620 / 98_380, abs=50)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nobody", "error: there is no file nobody, and as a job: no /v1/jobs/nobody"),
        ("gone/j.json", "error: there is no file gone/j.json: `everstep jobs export JOB"),
    ],
)
def test_history_that_is_not_there_gets_one_sentence(job, source, sentence):
    """A file or a job."""
    result = everstep("plan", "--from-history", source)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_export_that_cannot_be_written_gets_one_sentence(job, tmp_path):
    """There is no such folder."""
    result = everstep("jobs", "export", "j", "--out", str(tmp_path / "none" / "j.json"))
    assert result.returncode == 1
    assert "No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_job_without_a_failure_says_that_there_is_nothing_to_learn(job):
    """Not an empty table."""
    document = once()["job"]
    job.on("GET", "/v1/jobs/j", {**document, "recoveries": document["recoveries"][:1]})
    job.on("GET", "/v1/incidents", {"incidents": []})
    job.on("GET", "/v1/hosts", {"hosts": [host("a"), host("b", joined_s=at(0) / 1e6)]})
    result = everstep("plan", "--from-history", "j")
    assert result.returncode == 1
    assert "the record of j has no failures and no slow spells" in result.stderr
