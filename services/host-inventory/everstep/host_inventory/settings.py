"""The inventory's settings; it needs nothing beyond what every service reads."""

from __future__ import annotations

from everstep.service.settings import ServiceSettings


class Settings(ServiceSettings):
    """See ``everstep.service.settings``."""
