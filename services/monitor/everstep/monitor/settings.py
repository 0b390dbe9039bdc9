"""The monitor's settings."""

from __future__ import annotations

from pydantic import SecretStr

from everstep.service.settings import ServiceSettings


class Settings(ServiceSettings):
    """See ``everstep.service.settings`` for the rest."""

    # The server's own account: it tells of dropped connections within milliseconds. Without it,
    # dead agents are noticed by their echoes and their silence.
    nats_system_url: SecretStr | None = None
