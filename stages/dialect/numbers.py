"""Arithmetic written once and read twice: over NumPy arrays and over TIR expressions.

An operator whose result at one position depends on its operands at that position alone is a
function of a `Numbers` and of its operands. The two readers are `numbers_numpy.NUMPY` and
`numbers_tir.TIR`: `+ - * & | ^ << >>` and comparisons mean the same to both, everything else is a
method. Three rules keep the readings equal:

* Integers never overflow: widen (`cast`) before an operation that could.
* A float product goes through `product`, because LLVM fuses a product with a sum unasked.
* Constants get their type from the operand beside them, or from `constant`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Value = Any
"""A NumPy array or a TIR expression."""

MAGIC = 1.5 * 2**23
"""Added to a float32 below 2^22 in magnitude, it leaves no room for a fraction: the sum is
rounded to the nearest integer, half to even."""
SMALL = 2**22 - 1
WORD = 2**15 - 256
"""What is at most so large fits 16 bits, and with any zero point of a byte added."""
MAGIC_BITS = int(np.float32(MAGIC).view(np.int32))
"""The bits of it; those of a sum are as many more as its integer."""


class Numbers(Protocol):
    """What the arithmetic of an operator may use beyond Python's operators."""

    def dtype(self, x: Value) -> str:
        """The type of a value."""

    def constant(self, value: float, dtype: str) -> Value:
        """A number of a type."""

    def cast(self, x: Value, dtype: str) -> Value:
        """`x` in another type; floats lose their fraction (towards zero) and must fit."""

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """Per position, one of two values of the same type; both are computed."""

    def logical_and(self, left: Value, right: Value) -> Value:
        """Whether both conditions hold."""

    def equal(self, left: Value, right: Value) -> Value:
        """Whether two integers of the same type are the same."""

    def logical_not(self, condition: Value) -> Value:
        """Whether a condition does not hold."""

    def minimum(self, left: Value, right: Value) -> Value:
        """The smaller of two values of the same type."""

    def maximum(self, left: Value, right: Value) -> Value:
        """The larger of two values of the same type."""

    def product(self, left: Value, right: Value) -> Value:
        """A product of floats, rounded on its own."""

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        """`left * right + addend` of float32, rounded once (fma)."""

    def quotient(self, left: Value, right: Value) -> Value:
        """A quotient of floats, or one of integers rounded towards zero."""

    def divides_by_products(self) -> bool:
        """Whether products are cheaper than a division of floats."""

    def round_even(self, x: Value) -> Value:
        """Floats to the nearest integer, halves to the even one; the result is still float."""

    def nearest(self, x: Value) -> Value:
        """The int32 nearest to a float32, of two the even one; it must fit."""

    def saturated(
        self, x: Value, zero_point: int, low: int, high: int, *, fits_word: bool = False
    ) -> Value:
        """`nearest(clip(x, low - zero_point, high - zero_point)) + zero_point` of a float32.

        What `fits_word` is known to be at most `WORD` in magnitude, rounded.
        """

    def float_of_moved(self, x: Value) -> Value:
        """`x - MAGIC_BITS` as float32, of an int32 that is at most `SMALL` in magnitude then."""

    def floor(self, x: Value) -> Value:
        """Floats to the integer below."""

    def ceil(self, x: Value) -> Value:
        """Floats to the integer above."""

    def truncated(self, x: Value) -> Value:
        """Floats to the next integer towards zero; the result is still float."""

    def absolute(self, x: Value) -> Value:
        """The magnitude of a number."""

    def copysign(self, magnitude: Value, x: Value) -> Value:
        """A float of the one's magnitude and the other's sign."""

    def square_root(self, x: Value) -> Value:
        """The square root of floats."""

    def bits_of(self, x: Value, dtype: str) -> Value:
        """The same bits read as another type of the same width."""

    def look_up(self, table: Value, index: Value) -> Value:
        """`table[index]` of a whole tensor [N] (see `elementwise`); the index must be inside."""


def clip(m: Numbers, x: Value, low: int, high: int, dtype: str) -> Value:
    """`x` between two bounds, in another type."""
    kind = m.dtype(x)
    bounded = m.minimum(m.maximum(x, m.constant(low, kind)), m.constant(high, kind))
    return m.cast(bounded, dtype)


def clipped(m: Numbers, x: Value, zero_point: int, low: int, high: int) -> Value:
    """`saturated` as it is defined."""
    bounds = (m.constant(bound - zero_point, "float32") for bound in (low, high))
    return m.nearest(m.minimum(m.maximum(x, next(bounds)), next(bounds))) + zero_point


def rounded_once(m: Numbers, left: Value, right: Value, addend: Value) -> Value:
    """`left * right + addend` of float32, rounded once, by float64.

    There the product is exact. What the sum loses is found (Knuth, The Art of Computer Programming
    2, 4.2.2, theorem B) and kept in its last bit, so that rounding it once more, to float32, is
    right: rounding to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
    IEEE Transactions on Computers 57(4), 2008).
    """
    factors = m.cast(left, "float64"), m.cast(right, "float64")
    product, moved = m.product(*factors), m.cast(addend, "float64")
    total = product + moved
    part = total - product
    lost = (product - (total - part)) + (moved - part)
    zero = m.constant(0, "float64")
    none, one = m.constant(0, "int64"), m.constant(1, "int64")
    upwards = m.where(lost > zero, one, m.where(lost < zero, -one, none))
    outwards = m.where(total > zero, upwards, -upwards)
    bits = m.bits_of(total, "int64")
    odd = m.where((bits & one) == none, bits + outwards, bits)
    return m.cast(m.bits_of(odd, "float64"), "float32")
