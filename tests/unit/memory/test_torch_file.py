"""What is written around a tensor's bytes is what torch reads."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch

from everstep.memory.torch_file import is_known, wrapping

SHAPES = [(), (1,), (0, 3), (4, 6), (2, 3, 5), (1, 1, 7)]
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def named(dtype: torch.dtype) -> str:
    """The dtype's name in headers."""
    return str(dtype).removeprefix("torch.")


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=named)
def test_torch_loads_what_the_wrapping_makes_of_plain_bytes(dtype, shape):
    """Values, dtype and shape; with the loader that allows nothing but tensors."""
    torch.manual_seed(1)
    tensor = (torch.rand(shape) * 9).to(dtype)
    data = raw(tensor)
    around = wrapping(named(dtype), shape, len(data))
    loaded = torch.load(io.BytesIO(around.before + data + around.behind), weights_only=True)
    assert (loaded.dtype, loaded.shape) == (dtype, tensor.shape)
    assert torch.equal(loaded, tensor)
    assert len(around.before) % 64 == 0


def test_records_beyond_four_gigabytes_are_described():
    """ZIP's old fields end there; the directory must still say where the bytes lie."""
    size = 5 << 30
    around = wrapping("uint8", (size,), size)

    class Sparse(io.RawIOBase):
        """The archive, its bytes never made."""

        at = 0

        def readable(self):
            return True

        def seekable(self):
            return True

        def tell(self):
            return self.at

        def seek(self, offset, whence=0):
            end = len(around.before) + size + len(around.behind)
            self.at = offset + (0, self.at, end)[whence]
            return self.at

        def read(self, count=-1):
            begin = self.at
            data = around.before + bytes(0)
            part = data[begin : begin + count] if begin < len(data) else b""
            behind = begin - len(data) - size
            if behind >= 0:
                part = around.behind[behind:] if count < 0 else around.behind[behind:][:count]
            self.at += len(part)
            return part

    with zipfile.ZipFile(Sparse()) as archive:
        info = archive.getinfo("archive/data/0")
        assert info.file_size == size
        assert archive.read("archive/byteorder") in {b"little", b"big"}


def test_dtypes_without_a_storage_of_their_own_are_not_known():
    """They are kept, but not as a file of torch's."""
    assert is_known("bfloat16")
    assert not is_known("float8_e4m3fn")
