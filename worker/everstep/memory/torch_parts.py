"""What a stored slot says of itself as a file of a PyTorch checkpoint.

Its header, at the end, says where each tensor lies. The registry reads every object back anyway,
and takes the header off while it streams past.
"""

from __future__ import annotations

from everstep.core.errors import CorruptData
from everstep.memory.slot import PREAMBLE_BYTES, SlotHeader, decode_header, parse_preamble
from everstep.objectstore.torch_checkpoint import Part


class HeaderCatcher:
    """Keeps the preamble and the header of an object and lets everything else go."""

    def __init__(self) -> None:
        self._seen = 0
        self._preamble = b""
        self._header = bytearray()
        self._header_offset: int | None = None

    def take(self, chunk: bytes) -> None:
        """Look at the next bytes of the object."""
        if len(self._preamble) < PREAMBLE_BYTES:
            self._preamble += chunk[: PREAMBLE_BYTES - len(self._preamble)]
            found = parse_preamble(self._preamble)
            self._header_offset = found.header_offset if found is not None else None
        if self._header_offset is not None:
            self._header += chunk[max(0, self._header_offset - self._seen) :]
        self._seen += len(chunk)

    def header(self, where: str) -> SlotHeader | None:
        """Return the header; None when the object is no slot (of this version)."""
        preamble = parse_preamble(self._preamble)
        if preamble is None:
            return None
        try:
            return decode_header(bytes(self._header), preamble, where)
        except CorruptData:
            return None


def parts_of(header: SlotHeader, file: str) -> tuple[Part, ...]:
    """Return the tensors of a slot that are parts of a PyTorch checkpoint.

    Args:
        header: of the slot.
        file: the object's name within the checkpoint's folder.
    """
    return tuple(
        Part(
            path=entry.torch.path,
            dtype=entry.dtype,
            whole=entry.torch.whole,
            offsets=entry.torch.offsets,
            shape=entry.shape,
            file=file,
            offset=entry.torch.offset,
            bytes=entry.torch.bytes,
        )
        for entry in header.entries
        if entry.torch is not None
    )
