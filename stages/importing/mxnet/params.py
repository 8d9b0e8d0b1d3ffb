"""MXNet's `.params` files: a list of NDArrays and their names (`NDArray::Save`, ndarray.cc).

Little-endian throughout: the magic 0x112, eight reserved bytes, the count and as many arrays, the
count and as many names. An array starts with the number of its version:

* 0xF993FAC9 and 0xF993FACA (since 1.0 and 1.5): storage type, extents of 64 bits;
* 0xF993FAC8 (0.12): extents of 64 bits;
* before: the number is the rank itself, and extents have 32 bits.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from stages.errors import StageError
from stages.importing.limits import MAX_ELEMENTS, MAX_NODES

Array = np.ndarray[Any, Any]

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DTYPES = dict(enumerate(("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8", "?")))
_MAX_RANK = 32
_MAX_NAME = 1 << 16


class _Reader:
    def __init__(self, source: bytes | memoryview) -> None:
        self.source = memoryview(source)
        self.at = 0

    def take(self, count: int) -> memoryview:
        if count > len(self.source) - self.at:
            raise _damaged("it is cut short")
        self.at += count
        return self.source[self.at - count : self.at]

    def number(self, code: str) -> int:
        value: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value


def read_params(source: bytes | memoryview) -> dict[str, Array]:
    """Every array by its name, without the prefixes `arg:` and `aux:`; they share the file's bytes.

    Raises StageError for what is no such file, or holds sparse arrays.
    """
    reader = _Reader(source)
    if reader.number("Q") != _LIST_MAGIC:
        raise _damaged("it does not start with the bytes of an NDArray list")
    reader.number("Q")
    arrays = [_read_array(reader) for _ in range(_count(reader))]
    names = [_read_name(reader) for _ in range(_count(reader))]
    if len(names) != len(arrays):
        raise _damaged(f"it holds {len(arrays)} arrays and {len(names)} names")
    by_name = {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in zip(
        names, arrays, strict=True)}  # fmt: skip
    if len(by_name) != len(names):
        raise _damaged("two of its arrays have the same name")
    return by_name


def _count(reader: _Reader) -> int:
    count = reader.number("Q")
    if count > MAX_NODES:
        raise _damaged(f"it claims {count:,} arrays; {MAX_NODES:,} are accepted")
    return count


def _read_name(reader: _Reader) -> str:
    length = reader.number("Q")
    if length > _MAX_NAME:
        raise _damaged(f"it has a name of {length:,} bytes")
    try:
        return bytes(reader.take(length)).decode()
    except UnicodeDecodeError as error:
        raise _damaged("it has a name that is no text") from error


def _read_array(reader: _Reader) -> Array:
    version = reader.number("I")
    if version in (_V2, _V3) and reader.number("i") not in (0, -1):
        raise StageError(
            "the parameters hold a sparse array", hint="save them as dense arrays ('default')"
        )
    shape = _read_shape(reader, version)
    reader.take(8)  # the device it was saved from
    code = reader.number("i")
    if code not in _DTYPES:
        raise _damaged(f"it holds an array of type {code}, which MXNet does not define")
    dtype = np.dtype(_DTYPES[code])
    array = np.frombuffer(reader.take(prod(shape) * dtype.itemsize), dtype)
    return array.reshape(shape)


def _read_shape(reader: _Reader, version: int) -> tuple[int, ...]:
    modern = version in (_V1, _V2, _V3)
    rank = reader.number("i") if modern else version
    if not 1 <= rank <= _MAX_RANK:
        raise _damaged(f"it holds an array of {rank} dimensions")
    shape = tuple(reader.number("q" if modern else "I") for _ in range(rank))
    if min(shape) < 1 or prod(shape) > MAX_ELEMENTS:
        raise _damaged(f"it holds an array of the shape {list(shape)}")
    return shape


def _damaged(why: str) -> StageError:
    return StageError(f"these are no valid MXNet parameters: {why}")
