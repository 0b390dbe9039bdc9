"""Settings that every service reads, once, from the environment (prefix ``EVERSTEP_``).

URLs with passwords and keys are ``SecretStr``: neither a log line nor a repr shows them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What a service needs to start; a service with more settings subclasses this."""

    model_config = SettingsConfigDict(env_prefix="EVERSTEP_", frozen=True, extra="ignore")

    nats_url: SecretStr = SecretStr("nats://127.0.0.1:4222")  # NATS' own default
    database_url: SecretStr  # no default: two services must never share one by accident
    http_host: str = "127.0.0.1"  # loopback unless told: the APIs carry no authentication
    http_port: int = 0  # 0: any free port, logged at start
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"  # machines read services' logs; people set text


class S3Settings(BaseSettings):
    """Where objects lie; mixed in by those that use them."""

    model_config = SettingsConfigDict(env_prefix="EVERSTEP_", frozen=True, extra="ignore")

    s3_endpoint: str  # host:port, without a scheme
    s3_access_key: SecretStr
    s3_secret_key: SecretStr
    s3_bucket: str = "everstep"
    s3_secure: bool = True  # TLS; the one-machine stack talks over loopback and turns it off
