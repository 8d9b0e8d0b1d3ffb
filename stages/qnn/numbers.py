"""Arithmetic written once and read twice: over NumPy arrays and over TIR expressions.

An operator whose result at one position depends on its operands at that position alone is a
function of a `Numbers` and of its operands. `+ - * & | ^ << >>` and comparisons mean the same to
both readers; everything else is a method of `Numbers`. Three rules keep the readings equal:

* Integers never overflow: widen (`cast`) before an operation that could.
* A float product goes through `product`, because LLVM fuses a product with a sum unasked.
* Constants get their type from the operand beside them, or from `constant`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from tvm import tirx
from tvm.ir import register_op_attr

# TIR's own list of what a loop may become vectors around has `floor` and `round`, but not this.
register_op_attr("tirx.nearbyint", "TVectorizable", True)

Value = Any
"""A NumPy array or a TIR expression."""


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

    def both(self, left: Value, right: Value) -> Value:
        """Whether both conditions hold."""

    def minimum(self, left: Value, right: Value) -> Value:
        """The smaller of two values of the same type."""

    def maximum(self, left: Value, right: Value) -> Value:
        """The larger of two values of the same type."""

    def product(self, left: Value, right: Value) -> Value:
        """A product of floats, rounded on its own."""

    def quotient(self, left: Value, right: Value) -> Value:
        """A quotient of floats, or one of integers rounded towards zero."""

    def round_even(self, x: Value) -> Value:
        """Floats to the nearest integer, halves to the even one; the result is still float."""

    def floor(self, x: Value) -> Value:
        """Floats to the integer below."""

    def absolute(self, x: Value) -> Value:
        """The size of a number."""

    def square_root(self, x: Value) -> Value:
        """The square root of floats."""

    def bits_of(self, x: Value, dtype: str) -> Value:
        """The same bits read as another type of the same width."""

    def look_up(self, table: Value, index: Value) -> Value:
        """`table[index]` of a whole tensor [N] (see `elementwise`); the index must be inside."""


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

    def both(self, left: Value, right: Value) -> Value:
        """`np.logical_and`."""
        return np.logical_and(left, right)

    def minimum(self, left: Value, right: Value) -> Value:
        """`np.minimum`."""
        return np.minimum(left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """`np.maximum`."""
        return np.maximum(left, right)

    def product(self, left: Value, right: Value) -> Value:
        """NumPy rounds every operation on its own."""
        return left * right

    def quotient(self, left: Value, right: Value) -> Value:
        """Float division, or integer division towards zero."""
        result_type = np.result_type(left, right)
        if result_type.kind == "f":
            return left / right
        magnitude = np.abs(left) // np.abs(right)
        return np.where((left < 0) != (right < 0), -magnitude, magnitude).astype(result_type)

    def round_even(self, x: Value) -> Value:
        """`np.rint`."""
        return np.rint(x)

    def floor(self, x: Value) -> Value:
        """`np.floor`."""
        return np.floor(x)

    def absolute(self, x: Value) -> Value:
        """`np.abs`."""
        return np.abs(x)

    def square_root(self, x: Value) -> Value:
        """`np.sqrt`, which IEEE 754 rounds correctly."""
        return np.sqrt(x)

    def bits_of(self, x: Value, dtype: str) -> Value:
        """A view."""
        return np.asarray(x).view(dtype)

    def look_up(self, table: Value, index: Value) -> Value:
        """Fancy indexing."""
        return table[index]


class TirNumbers:
    """Reads arithmetic as TIR expressions."""

    def dtype(self, x: Value) -> str:
        """The expression's dtype."""
        return str(x.ty.dtype)

    def constant(self, value: float, dtype: str) -> Value:
        """A literal."""
        return tirx.const(value, dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """A cast."""
        return x.astype(dtype)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """A select."""
        return tirx.Select(condition, yes, no)

    def both(self, left: Value, right: Value) -> Value:
        """A conjunction."""
        return tirx.all(left, right)

    def minimum(self, left: Value, right: Value) -> Value:
        """TIR's minimum."""
        return tirx.min(left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """TIR's maximum."""
        return tirx.max(left, right)

    def product(self, left: Value, right: Value) -> Value:
        """A product behind a fence, which no later operation is fused with."""
        return fence(left * right)

    def quotient(self, left: Value, right: Value) -> Value:
        """Float division, or integer division towards zero."""
        is_float = self.dtype(left).startswith("float")
        return left / right if is_float else tirx.truncdiv(left, right)

    def round_even(self, x: Value) -> Value:
        """LLVM's nearbyint."""
        return tirx.nearbyint(x)

    def floor(self, x: Value) -> Value:
        """LLVM's floor."""
        return tirx.floor(x)

    def absolute(self, x: Value) -> Value:
        """TIR's abs."""
        return tirx.abs(x)

    def square_root(self, x: Value) -> Value:
        """LLVM's sqrt."""
        return tirx.sqrt(x)

    def bits_of(self, x: Value, dtype: str) -> Value:
        """A reinterpretation."""
        return tirx.reinterpret(dtype, x)

    def look_up(self, table: Value, index: Value) -> Value:
        """A load from the whole tensor."""
        return table[index]


NUMPY: Numbers = NumpyNumbers()
TIR: Numbers = TirNumbers()


def fence(value: Any) -> Any:
    """A float that no later operation is fused with.

    LLVM contracts a product and a sum into one fma on its own account, which rounds once where the
    dialect rounds twice.
    """
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)
