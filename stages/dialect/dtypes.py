"""What the text of an element type says, such as `uint2` or `float32x4`.

TVM, ONNX and NumPy write types as such texts, and so do our operators; here one is parsed, once.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

_TEXT = re.compile(r"(uint|int|float|bfloat)(\d+)(?:x(\d+))?|(bool)(?:x(\d+))?")


@dataclass(frozen=True)
class DType:
    """An element type: `uint`, `int`, `float`, `bfloat` or `bool` of so many bits."""

    kind: str
    bits: int
    lanes: int = 1
    """Lanes of a vector in a kernel; 1 for all that is no vector."""

    @property
    def is_integer(self) -> bool:
        """Whether values are integers; those of `bool` are not."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        """Whether values are integers that may be negative."""
        return self.kind == "int"

    @property
    def is_float(self) -> bool:
        """Whether values are floats of IEEE 754; `bfloat16` is none."""
        return self.kind == "float"

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer; ValueError where values are no integers."""
        if not self.is_integer:
            raise ValueError(f"{self} has no smallest and largest integer")
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def storage(self) -> np.dtype[np.generic]:
        """The NumPy type that holds values: `uint2` is stored as uint8, `int3` as int8.

        NumPy has no bfloat16, whose bits are stored as uint16.
        """
        if self.kind == "bfloat":
            return np.dtype(np.uint16)
        if self.is_integer:
            return np.dtype(f"{self.kind}{max(8, 1 << (self.bits - 1).bit_length())}")
        return np.dtype(self.kind if self.kind == "bool" else f"{self.kind}{self.bits}")

    def __str__(self) -> str:
        text = self.kind if self.kind == "bool" else f"{self.kind}{self.bits}"
        return text if self.lanes == 1 else f"{text}x{self.lanes}"


@functools.cache
def parse(text: str) -> DType:
    """The type that a text says; ValueError if it is none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no element type")
    kind, bits, lanes, truth, of_truth = found.groups()
    if truth:
        return DType(truth, 1, int(of_truth or 1))
    return DType(kind, int(bits), int(lanes or 1))


def is_integer(text: str) -> bool:
    """Whether a text is a type of integers."""
    found = _TEXT.fullmatch(text)
    return found is not None and found.group(1) in ("int", "uint")


def limits(text: str) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    return parse(text).limits
