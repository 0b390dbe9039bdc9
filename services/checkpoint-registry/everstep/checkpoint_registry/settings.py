"""The registry's settings: those of every service, and where objects lie."""

from __future__ import annotations

from everstep.service.settings import S3Settings, ServiceSettings


class Settings(ServiceSettings, S3Settings):
    """See ``everstep.service.settings``."""
