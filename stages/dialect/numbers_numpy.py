"""The reading of `Numbers` over NumPy arrays: what operators mean."""

from __future__ import annotations

import numpy as np

from stages.dialect.numbers import MAGIC_BITS, Numbers, Value, clipped, rounded_once


class NumpyNumbers:
    """Reads arithmetic as NumPy."""

    def dtype(self, x: Value) -> str:
        """The array's dtype."""
        return str(x.dtype)

    def constant(self, value: float, dtype: str) -> Value:
        """A scalar of a type."""
        return np.dtype(dtype).type(value)

    def cast(self, x: Value, dtype: str) -> Value:
        """`x.astype(dtype)`."""
        return x.astype(dtype)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """`np.where`."""
        return np.where(condition, yes, no)

    def logical_and(self, left: Value, right: Value) -> Value:
        """`np.logical_and`."""
        return np.logical_and(left, right)

    def equal(self, left: Value, right: Value) -> Value:
        """`==`."""
        return np.equal(left, right)

    def logical_not(self, condition: Value) -> Value:
        """`np.logical_not`."""
        return np.logical_not(condition)

    def minimum(self, left: Value, right: Value) -> Value:
        """`np.minimum`."""
        return np.minimum(left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """`np.maximum`."""
        return np.maximum(left, right)

    def product(self, left: Value, right: Value) -> Value:
        """NumPy rounds every operation on its own."""
        return left * right

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        """NumPy has no fma: by float64."""
        with np.errstate(all="ignore"):
            return rounded_once(self, left, right, addend)

    def quotient(self, left: Value, right: Value) -> Value:
        """Float division, or integer division towards zero."""
        result_type = np.result_type(left, right)
        if result_type.kind == "f":
            return left / right
        magnitude = np.abs(left) // np.abs(right)
        return np.where((left < 0) != (right < 0), -magnitude, magnitude).astype(result_type)

    def divides_by_products(self) -> bool:
        """A division says what is meant."""
        return False

    def round_even(self, x: Value) -> Value:
        """`np.rint`."""
        return np.rint(x)

    def nearest(self, x: Value) -> Value:
        """`np.rint`, then the cast."""
        return np.rint(x).astype(np.int32)

    def saturated(
        self, x: Value, zero_point: int, low: int, high: int, *, fits_word: bool = False
    ) -> Value:
        """`clipped`, which is its definition."""
        return clipped(self, x, zero_point, low, high)

    def float_of_moved(self, x: Value) -> Value:
        """The difference, then the cast."""
        return (x - np.int32(MAGIC_BITS)).astype(np.float32)

    def floor(self, x: Value) -> Value:
        """`np.floor`."""
        return np.floor(x)

    def ceil(self, x: Value) -> Value:
        """`np.ceil`."""
        return np.ceil(x)

    def truncated(self, x: Value) -> Value:
        """`np.trunc`."""
        return np.trunc(x)

    def absolute(self, x: Value) -> Value:
        """`np.abs`."""
        return np.abs(x)

    def copysign(self, magnitude: Value, x: Value) -> Value:
        """`np.copysign`."""
        return np.copysign(magnitude, x)

    def square_root(self, x: Value) -> Value:
        """`np.sqrt`, which IEEE 754 rounds correctly."""
        return np.sqrt(x)

    def bits_of(self, x: Value, dtype: str) -> Value:
        """A view."""
        return np.asarray(x).view(dtype)

    def look_up(self, table: Value, index: Value) -> Value:
        """Fancy indexing."""
        return table[index]


NUMPY: Numbers = NumpyNumbers()
