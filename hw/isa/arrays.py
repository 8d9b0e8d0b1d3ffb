"""The NumPy reader of instruction meanings: a lane is a batch of numbers, one per trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.isa.lane import Lane

Array = np.ndarray[Any, Any]
_FLOATS: dict[int, tuple[type[np.generic], type[np.generic]]] = {
    16: (np.uint16, np.float16),
    32: (np.uint32, np.float32),
}
"""Width of a float → types of its bits, and its own."""


@dataclass(frozen=True, eq=False)
class ArrayLane(Lane):
    """Unsigned numbers below 2^bits, in an array of uint64 [trials]."""

    bits: int
    values: Array

    def _new(self, values: Array, bits: int | None = None) -> ArrayLane:
        bits = self.bits if bits is None else bits
        return ArrayLane(bits, values & np.uint64((1 << bits) - 1))

    def signed(self) -> Array:
        """The numbers in two's complement, int64."""
        unused = np.uint64(64 - self.bits)
        shifted: Array = (self.values << unused).astype(np.int64) >> unused.astype(np.int64)
        return shifted

    def __and__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values & other.values)

    def __or__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values | other.values)

    def __xor__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values ^ other.values)

    def __invert__(self) -> ArrayLane:
        return self._new(~self.values)

    def __add__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values + other.values)

    def __sub__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values - other.values)

    def __mul__(self, other: ArrayLane) -> ArrayLane:
        return self._new(self.values * other.values)

    def times(self, factor: int) -> ArrayLane:
        """The product with a constant."""
        return self._new(self.values * np.uint64(factor % (1 << 64)))

    def popcount(self) -> ArrayLane:
        """How many bits are set."""
        return self._new(np.bitwise_count(self.values).astype(np.uint64))

    def extend(self, bits: int, signed: bool = False) -> ArrayLane:
        """The same number in a wider lane."""
        return self._new(self.signed().astype(np.uint64) if signed else self.values, bits)

    def saturate(self, bits: int) -> ArrayLane:
        """The nearest signed number of `bits` bits."""
        limit = 1 << (bits - 1)
        return self._new(np.clip(self.signed(), -limit, limit - 1).astype(np.uint64), bits)

    def split(self, bits: int) -> list[ArrayLane]:
        """The lane as narrower ones, lowest bits first."""
        return [
            self._new(self.values >> np.uint64(shift), bits) for shift in range(0, self.bits, bits)
        ]

    def join(self, higher: Sequence[ArrayLane]) -> ArrayLane:
        """One wide lane, with `higher` in its upper bits."""
        values = self.values.copy()
        for position, lane in enumerate(higher, 1):
            values |= lane.values << np.uint64(position * self.bits)
        return ArrayLane(self.bits * (1 + len(higher)), values)

    def lookup(self, table: Sequence[ArrayLane]) -> ArrayLane:
        """The entry that the number names; 0 behind the end of the table."""
        entries = np.stack([entry.values for entry in table])
        inside = self.values < len(table)
        index = np.where(inside, self.values, np.uint64(0)).astype(np.int64)
        found = np.take_along_axis(entries, index[None], 0)[0]
        return self._new(np.where(inside, found, np.uint64(0)))

    def _floats(self) -> Array:
        """The numbers as floats of their own width, in float64."""
        assert self.bits in _FLOATS, f"a float of {self.bits} bits"
        bits, kind = _FLOATS[self.bits]
        with np.errstate(invalid="ignore"):
            return self.values.astype(bits).view(kind).astype(np.float64)

    def _rounded(self, floats: Array, width: int | None = None) -> ArrayLane:
        bits, kind = _FLOATS[width or self.bits]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self._new(floats.astype(kind).view(bits).astype(np.uint64), width)

    def bfloat16(self) -> ArrayLane:
        """A bfloat16 as float32: its bits above 16 zeros."""
        return self._new(self.values << np.uint64(16), 32)

    def widened(self) -> ArrayLane:
        """Every float of 16 bits is one of 32."""
        return self._rounded(self._floats(), 32)

    def fadd(self, other: ArrayLane) -> ArrayLane:
        """The sum of two floats; float64 in between does not change it (Figueroa 1995)."""
        with np.errstate(invalid="ignore"):
            return self._rounded(self._floats() + other._floats())

    def fmul(self, other: ArrayLane) -> ArrayLane:
        """The product of two floats, which float64 holds exactly."""
        with np.errstate(invalid="ignore"):
            return self._rounded(self._floats() * other._floats())

    def fma(self, other: ArrayLane, addend: ArrayLane) -> ArrayLane:
        """Product and sum, rounded once.

        A sum rounded to odd in float64 is rounded further as if it were exact (Boldo and
        Melquiond, *Emulation of FMA and correctly rounded sums*, 2008).
        """
        with np.errstate(invalid="ignore"):
            product, added = self._floats() * other._floats(), addend._floats()
            total = product + added
            own = total - product
            rest = (product - (total - own)) + (added - own)
        is_even = total.view(np.int64) & 1 == 0
        odd = np.nextafter(total, np.where(rest > 0, np.inf, -np.inf))
        return self._rounded(np.where((rest != 0) & is_even, odd, total))


def array_lanes(values: Array) -> list[ArrayLane]:
    """The lanes of registers [trials, lanes], whose element type gives their width."""
    bits = 8 * values.dtype.itemsize
    unsigned = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
    return [ArrayLane(bits, np.ascontiguousarray(column)) for column in unsigned.T]


def registers(lanes: Sequence[ArrayLane]) -> Array:
    """Registers [trials, lanes] of unsigned integers: undoes `array_lanes`."""
    return np.stack([lane.values for lane in lanes], 1).astype(f"u{lanes[0].bits // 8}")
