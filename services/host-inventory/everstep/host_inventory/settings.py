"""The inventory's settings: how hosts that failed come back, and who is told of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from everstep.core.time import SECOND_MS
from everstep.host_inventory.care import (
    BURN_IN_S,
    CHECK_EVERY_MS,
    HOLD_MS,
    HOLD_MS_MAX,
    SOUND_MS,
    Care,
    Fault,
)
from everstep.service.settings import ServiceSettings

Seconds = Annotated[int, Field(ge=1)]


class Settings(ServiceSettings):
    """What every service reads, and these; ``care`` argues for the defaults."""

    hold_out_s: Seconds = HOLD_MS // SECOND_MS  # of a host's first failure; doubles with each more
    hold_out_s_max: Seconds = HOLD_MS_MAX // SECOND_MS
    sound_s: Seconds = SOUND_MS // SECOND_MS  # in service for so long, one failure is forgotten
    probe_every_s: Seconds = CHECK_EVERY_MS // SECOND_MS  # of an idle spare
    burn_in_s: Seconds = BURN_IN_S  # on the way back from a failure
    # Faults after which a host comes back by itself when its hold-out is over and its agent is a
    # new one: "lost", "unsound", "slow", "probe", "corrupt", with commas; "" for a person always.
    # Who may have computed wrongly does not, unless told: probes cannot prove it sound.
    auto_return: str = Fault.LOST.value
    repair_hook: str = ""  # URL that is told of every cordoned host; "": nobody is
    repair_hook_secret: SecretStr = SecretStr("")  # sent as a bearer token; "": none

    @property
    def care(self) -> Care:
        """Return the limits. Raises ValueError: a fault that does not exist."""
        words = [word.strip() for word in self.auto_return.split(",")]
        return Care(
            hold_ms=self.hold_out_s * SECOND_MS,
            hold_ms_max=max(self.hold_out_s_max, self.hold_out_s) * SECOND_MS,
            sound_ms=self.sound_s * SECOND_MS,
            check_every_ms=self.probe_every_s * SECOND_MS,
            burn_in_s=self.burn_in_s,
            returns=frozenset(Fault(word) for word in words if word),
        )
