"""Access to an untrusted flatbuffer: what it says is checked before memory is taken.

Python's flatbuffers checks every single load against the end of the file, and nothing else: a
vector may claim any length, and any number of offsets may lead to one table. So lengths are held
against a budget proportional to the file, which bounds both time and memory.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from flatbuffers.number_types import Int32Flags

from stages.errors import StageError

Item = TypeVar("Item")
DAMAGED = (
    struct.error,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What reading a damaged flatbuffer may raise."""


def damaged(what: str) -> StageError:
    """The one error for a file that breaks its format's rules."""
    return StageError(
        f"this TensorFlow Lite file is damaged: {what}",
        hint="convert or download the model again",
    )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns whatever a damaged flatbuffer makes the reader raise into one StageError."""
    try:
        yield
    except DAMAGED as error:
        raise damaged(f"{what} cannot be read ({str(error) or type(error).__name__})") from error


class Budget:
    """How many bytes of vectors and strings may be read: no honest file has more than it is long.

    Four times the length leaves room for vectors that a writer shares on purpose.
    """

    def __init__(self, size: int) -> None:
        self._left = 4 * size

    def take(self, count: int, width: int, what: str) -> None:
        """Use up `count` elements of `width` bytes."""
        self._left -= count * width
        if self._left < 0:
            raise damaged(f"{what} hold more elements than the file has room for")

    def vector(self, length: int, item: Callable[[int], Item], limit: int, what: str) -> list[Item]:
        """The elements of a vector of tables; at most `limit` of them."""
        if length > limit:
            raise damaged(f"{length:,} {what}; at most {limit:,} are accepted")
        self.take(length, 4, what)
        return [item(index) for index in range(length)]

    def numbers(self, view: Any, what: str) -> np.ndarray[Any, Any]:
        """A vector of numbers as flatbuffers gives it: a view, or the number 0 where it is not."""
        if isinstance(view, int):
            return np.zeros(0, np.int64)
        found: np.ndarray[Any, Any] = view
        self.take(found.size, found.itemsize, what)
        return found

    def text(self, raw: bytes | None, what: str) -> str:
        """A string; characters that cannot be shown become question marks."""
        if raw is None:
            return ""
        self.take(len(raw), 1, what)
        decoded = raw.decode("utf-8")
        if decoded.isprintable():
            return decoded
        return "".join(letter if letter.isprintable() else "?" for letter in decoded)


def int32_field(table: Any, slot: int) -> int:
    """A field of a table by its place in the schema, 0 where it is absent."""
    raw = table._tab  # the generated classes have no other way past their accessors
    offset = raw.Offset(4 + 2 * slot)
    return int(raw.Get(Int32Flags, offset + raw.Pos)) if offset else 0


@cache
def fields_of(table: Any) -> tuple[tuple[str, str, bool], ...]:
    """The fields of a generated class: name in the schema, accessor, whether it is a vector."""
    accessors = {
        name
        for name, member in vars(table).items()
        if name[0].isupper() and not isinstance(member, classmethod)
    }
    vectors = {name.removesuffix("AsNumpy") for name in accessors if name.endswith("AsNumpy")}
    helpers = {f"{vector}{end}" for vector in vectors for end in ("AsNumpy", "Length", "IsNone")}
    names = sorted(accessors - helpers - {"Init"})
    return tuple((re.sub(r"(?<!^)(?=[A-Z])", "_", n).lower(), n, n in vectors) for n in names)


def plain(table: Any, budget: Budget) -> dict[str, Any]:
    """The fields of a table of scalars, strings and vectors of numbers, by name in the schema."""
    values: dict[str, Any] = {}
    for name, accessor, is_vector in fields_of(table.__class__):
        if is_vector:
            found = budget.numbers(getattr(table, f"{accessor}AsNumpy")(), "options")
            values[name] = tuple(found.tolist())
            continue
        value = getattr(table, accessor)()
        values[name] = budget.text(value, "options") if isinstance(value, bytes) else value
    return values
