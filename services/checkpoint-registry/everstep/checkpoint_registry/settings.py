"""The registry's settings: those of every service, and where objects lie."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from everstep.checkpoint_registry.sweep import EVERY_S, GRACE_S, IDLE_S, SweepTimes
from everstep.service.settings import S3Settings, ServiceSettings

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(ServiceSettings, S3Settings):
    """See ``everstep.service.settings``."""

    sweep_every_s: Seconds = EVERY_S  # why these: ``sweep``
    sweep_grace_s: Seconds = GRACE_S
    sweep_idle_s: Seconds = IDLE_S

    @property
    def sweep_times(self) -> SweepTimes:
        """Return how often and how patiently orphans are swept up."""
        return SweepTimes(
            every_s=self.sweep_every_s, grace_s=self.sweep_grace_s, idle_s=self.sweep_idle_s
        )
