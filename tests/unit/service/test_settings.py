"""Settings come from the environment and keep their secrets."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from everstep.service.settings import S3Settings, ServiceSettings

PASSWORD = "hunter2"


def test_environment_fills_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names as in docs/architecture.md, with the prefix."""
    monkeypatch.setenv("EVERSTEP_DATABASE_URL", f"postgresql://u:{PASSWORD}@h:1/d")
    monkeypatch.setenv("EVERSTEP_NATS_URL", f"nats://u:{PASSWORD}@h:2")
    monkeypatch.setenv("EVERSTEP_HTTP_PORT", "8080")
    monkeypatch.setenv("EVERSTEP_LOG_FORMAT", "text")
    settings = ServiceSettings()
    assert (settings.http_port, settings.log_format) == (8080, "text")
    assert settings.database_url.get_secret_value().startswith("postgresql://")
    for shown in (repr(settings), str(settings), str(settings.model_dump())):
        assert PASSWORD not in shown


def test_s3_keys_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither key is shown."""
    monkeypatch.setenv("EVERSTEP_S3_ENDPOINT", "h:1")
    monkeypatch.setenv("EVERSTEP_S3_ACCESS_KEY", PASSWORD)
    monkeypatch.setenv("EVERSTEP_S3_SECRET_KEY", PASSWORD)
    monkeypatch.setenv("EVERSTEP_S3_SECURE", "false")
    settings = S3Settings()
    assert (settings.s3_endpoint, settings.s3_secure) == ("h:1", False)
    assert PASSWORD not in repr(settings)


def test_missing_and_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service does not start on a guess."""
    monkeypatch.delenv("EVERSTEP_DATABASE_URL", raising=False)
    monkeypatch.setenv("EVERSTEP_LOG_FORMAT", "xml")
    with pytest.raises(ValidationError) as caught:
        ServiceSettings()
    assert "database_url" in str(caught.value)
    assert "log_format" in str(caught.value)
