"""Cuts what a NATS client sends into whole messages of its protocol. Pure.

The protocol is lines that end in CR LF; PUB and HPUB are followed by as many bytes as their last
number says, and CR LF: https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core.errors import CorruptData

LINE_BYTES_MAX: Final = 1 << 16  # CONNECT is the longest line, with some hundred bytes
_END: Final = b"\r\n"
_PUBLISH: Final = (b"PUB", b"HPUB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message as it came; ``subject`` only of what is published."""

    data: bytes
    subject: str = ""

    @property
    def is_published(self) -> bool:
        """Whether it carries something to subscribers."""
        return bool(self.subject)


class FrameCutter:
    """Takes pieces as they come, gives whole messages."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, piece: bytes) -> list[Frame]:
        """Return what has become whole.

        Raises:
            CorruptData: it is no client's protocol.
        """
        data = self._left + piece
        frames: list[Frame] = []
        begin = 0
        while (end := data.find(_END, begin)) >= 0:
            line = data[begin:end]
            verb, *words = line.split() if line else [b""]
            after = end + len(_END)
            subject = ""
            if verb.upper() in _PUBLISH:
                if len(words) < 2 or not words[-1].isdigit():
                    raise CorruptData(f"no message of a NATS client: {line[:100]!r}")
                subject = words[0].decode()
                after += int(words[-1]) + len(_END)
                if after > len(data):
                    break
            frames.append(Frame(data=data[begin:after], subject=subject))
            begin = after
        self._left = data[begin:]
        if len(self._left) > LINE_BYTES_MAX and self._left.find(_END) < 0:
            raise CorruptData(f"no line of a NATS client: {self._left[:100]!r}")
        return frames
