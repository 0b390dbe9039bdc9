"""Nested state (a scheduler's, param groups) as msgpack, without pickle and without loss.

msgpack alone would turn tuples into lists and refuse most keys, so what it cannot say is wrapped in
a one-key map whose key begins with ``!``. Tensors are taken out and named: they go to the slot's
payload. What cannot be kept is refused when the state is tracked, with its path, and not when it
is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
from torch import Tensor

_INT_MAX: Final = 2**63

_PLAIN: Final = frozenset({float, str, bytes})
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder()


class UnsupportedStateError(TypeError):
    """A tracked object holds a value that cannot be kept."""


def encode(value: Any, path: str, tensors: list[tuple[str, Tensor]]) -> bytes:
    """Return the tree as msgpack; its tensors are appended to ``tensors`` with their names.

    Raises:
        UnsupportedStateError: names the path and the type.
    """
    return _encoder.encode(_wrap(value, path, tensors))


def decode(data: bytes, tensor_of: Callable[[str], Tensor]) -> Any:
    """Return the tree; ``tensor_of`` gives the tensor of a name."""
    value = _decoder.decode(data)
    return _unwrap(value, tensor_of) if b"!" in data else value


def _wrap(value: Any, path: str, tensors: list[tuple[str, Tensor]]) -> Any:
    match value:
        case np.ndarray() | np.generic():  # before the others: a float64 is a float too
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise UnsupportedStateError(f"{path} is an array of Python objects")
            return {"!array": [array.dtype.str, list(array.shape), array.tobytes()]}
        case None | bool():
            return value
        case float() | str() | bytes() if type(value) in _PLAIN:  # of theirs, msgpack takes none
            return value
        case int():
            return value if -_INT_MAX <= value < _INT_MAX else {"!int": str(value)}
        case Tensor():
            tensors.append((path, value))
            return {"!tensor": path}
        case list():
            return [_wrap(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
        case tuple():
            return {"!tuple": [_wrap(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
        case set() | frozenset():
            return {"!set": [_wrap(item, path, tensors) for item in sorted(value, key=repr)]}
        case dict():
            if all(type(key) is str and not key.startswith("!") for key in value):
                return {key: _wrap(item, f"{path}.{key}", tensors) for key, item in value.items()}
            return {
                "!dict": [
                    [_wrap(key, path, tensors), _wrap(item, f"{path}.{key}", tensors)]
                    for key, item in value.items()
                ]
            }
        case _:
            raise UnsupportedStateError(
                f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be "
                "kept: track only numbers, text, bytes, tensors, arrays, and lists, tuples, sets "
                "and dicts of them"
            )


def _unwrap(value: Any, tensor_of: Callable[[str], Tensor]) -> Any:
    if isinstance(value, list):
        return [_unwrap(item, tensor_of) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        return {key: _unwrap(item, tensor_of) for key, item in value.items()}
    ((key, item),) = value.items()
    match key:
        case "!int":
            return int(item)
        case "!tensor":
            return tensor_of(item)
        case "!tuple":
            return tuple(_unwrap(one, tensor_of) for one in item)
        case "!set":
            return {_unwrap(one, tensor_of) for one in item}
        case "!dict":
            return {_unwrap(k, tensor_of): _unwrap(v, tensor_of) for k, v in item}
        case "!array":
            dtype, shape, data = item
            array = np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
            return array if shape else array[()]
        case _:
            return {key: _unwrap(item, tensor_of)}
