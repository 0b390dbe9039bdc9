"""What the host's agent has asked of a rank while it trains; looked at once a step."""

from __future__ import annotations

import msgspec

from everstep.core.schedule import Schedule
from everstep.train.channel import AgentChannel


class Requests:
    """Asked since the ranks last agreed; a request to stop stays.

    Args:
        channel: to the host's agent.
        schedule: how often to snapshot, until the agent says otherwise.
    """

    def __init__(self, channel: AgentChannel, schedule: Schedule) -> None:
        self._channel = channel
        self.schedule = schedule
        self.save = self.stop = self.recompute = False

    def poll(self) -> None:
        """Take what has come."""
        for frame in self._channel.poll():
            if frame["kind"] == "request":
                self.save |= frame.get("what") == "save"
                self.stop |= frame.get("what") == "stop"
                self.recompute |= frame.get("what") == "recompute"
            elif frame["kind"] == "schedule":
                told = msgspec.convert(frame["schedule"], Schedule)
                if told.version > self.schedule.version:
                    self.schedule = told

    def agreed(self) -> None:
        """Forget what all ranks have heard of."""
        self.save = self.recompute = False
