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

from stages.dialect.processor import (
    byte_of_word,
    divides_by_products,
    has_fma,
    narrows_by_saturation,
    narrows_by_words,
    nearest,
    rounded_once,
    rounds_by_sums,
    saturated,
    widens_bytes,
    word_of,
)

# TIR's own list of what a loop may become vectors around has `floor` and `round`, but not this.
register_op_attr("tirx.nearbyint", "TVectorizable", True)

BYTE = -128, 255
"""What bytes of one type or the other can be."""
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

    def equal(self, left: Value, right: Value) -> Value:
        """Whether two integers of the same type are the same."""

    def opposite(self, condition: Value) -> Value:
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

        What `fits_word` is known to be at most `WORD` in size, rounded.
        """

    def float_of_moved(self, x: Value) -> Value:
        """`x - MAGIC_BITS` as float32, of an int32 that is at most `SMALL` in size then."""

    def floor(self, x: Value) -> Value:
        """Floats to the integer below."""

    def ceil(self, x: Value) -> Value:
        """Floats to the integer above."""

    def truncated(self, x: Value) -> Value:
        """Floats to the next integer towards zero; the result is still float."""

    def absolute(self, x: Value) -> Value:
        """The size of a number."""

    def with_sign(self, size: Value, x: Value) -> Value:
        """A float of the one's size and the other's sign."""

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

    def equal(self, left: Value, right: Value) -> Value:
        """`==`."""
        return np.equal(left, right)

    def opposite(self, condition: Value) -> Value:
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
        """As it stands there."""
        return clipped(self, x, zero_point, low, high)

    def float_of_moved(self, x: Value) -> Value:
        """As it stands there."""
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

    def with_sign(self, size: Value, x: Value) -> Value:
        """`np.copysign`."""
        return np.copysign(size, x)

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
        """The expression's dtype, or that of an element of a tensor."""
        return str(x.ty.dtype if hasattr(x, "ty") else x.dtype)

    def constant(self, value: float, dtype: str) -> Value:
        """A literal."""
        return tirx.const(value, dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """A cast; bytes widen first where LLVM would take them apart otherwise."""
        if dtype == "float32" and widens_bytes() and self.dtype(x) in ("int8", "uint8"):
            bits = fence(self.bits_of(x.astype("int32"), "float32"))
            return self.bits_of(bits, "int32").astype("float32")
        return x.astype(dtype)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """A select."""
        return tirx.Select(condition, yes, no)

    def both(self, left: Value, right: Value) -> Value:
        """A conjunction."""
        return tirx.all(left, right)

    def equal(self, left: Value, right: Value) -> Value:
        """TIR's comparison; Python's would compare the expressions."""
        return tirx.EQ(left, right)

    def opposite(self, condition: Value) -> Value:
        """A negation."""
        return tirx.Not(condition)

    def minimum(self, left: Value, right: Value) -> Value:
        """TIR's minimum."""
        return tirx.min(left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """TIR's maximum."""
        return tirx.max(left, right)

    def product(self, left: Value, right: Value) -> Value:
        """A product behind a fence, which no later operation is fused with."""
        return fence(left * right)

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        """The processor's own, or by float64."""
        if has_fma():
            return tirx.call_llvm_pure_intrin("float32", "llvm.fma", left, right, addend)
        return rounded_once(self, left, right, addend)

    def quotient(self, left: Value, right: Value) -> Value:
        """Float division, or integer division towards zero."""
        is_float = self.dtype(left).startswith("float")
        return left / right if is_float else tirx.truncdiv(left, right)

    def divides_by_products(self) -> bool:
        """On Arm's cores, which divide for as long as they take for ten products or more."""
        return divides_by_products()

    def round_even(self, x: Value) -> Value:
        """LLVM's nearbyint."""
        return tirx.nearbyint(x)

    def nearest(self, x: Value) -> Value:
        """In the form that the processor has as one instruction, if any."""
        return nearest(x)

    def saturated(
        self, x: Value, zero_point: int, low: int, high: int, *, fits_word: bool = False
    ) -> Value:
        """Clipped as integers where narrowing saturates."""
        if narrows_by_saturation() and (low, high) == (0, 255):
            return saturated(x, zero_point)
        if narrows_by_words() and BYTE[0] <= low <= zero_point <= high <= BYTE[1]:
            word = self._word(x) if fits_word else word_of(x)
            return byte_of_word(word, zero_point, low, high)
        if rounds_by_sums() and max(zero_point - low, high - zero_point) <= SMALL:
            least, most = (self.constant(bound - zero_point, "float32") for bound in (low, high))
            moved = rounded_by_sum(self.minimum(self.maximum(x, least), most))
            return self.bits_of(moved, "int32") - (MAGIC_BITS - zero_point)
        return clipped(self, x, zero_point, low, high)

    def _word(self, x: Value) -> Value:
        """The int16 nearest to a float32, which it fits: the last bits of a sum with `MAGIC`."""
        return self.cast(self.bits_of(rounded_by_sum(x), "int32"), "int16")

    def float_of_moved(self, x: Value) -> Value:
        """The bits of a float, of which `MAGIC` is taken away."""
        return self.bits_of(x, "float32") - self.constant(MAGIC, "float32")

    def floor(self, x: Value) -> Value:
        """LLVM's floor."""
        return tirx.floor(x)

    def ceil(self, x: Value) -> Value:
        """LLVM's ceil."""
        return tirx.ceil(x)

    def truncated(self, x: Value) -> Value:
        """LLVM's trunc."""
        return tirx.trunc(x)

    def absolute(self, x: Value) -> Value:
        """TIR's abs."""
        return tirx.abs(x)

    def with_sign(self, size: Value, x: Value) -> Value:
        """LLVM's copysign."""
        return tirx.call_llvm_pure_intrin(self.dtype(size), "llvm.copysign", size, x)

    def square_root(self, x: Value) -> Value:
        """LLVM's sqrt."""
        return tirx.sqrt(x)

    def bits_of(self, x: Value, dtype: str) -> Value:
        """A reinterpretation."""
        return tirx.reinterpret(dtype, x)

    def look_up(self, table: Value, index: Value) -> Value:
        """A load from the whole tensor."""
        return table[index]


def clip(m: Numbers, x: Value, low: int, high: int, dtype: str) -> Value:
    """`x` between two bounds, in another type."""
    kind = m.dtype(x)
    bounded = m.minimum(m.maximum(x, m.constant(low, kind)), m.constant(high, kind))
    return m.cast(bounded, dtype)


def clipped(m: Numbers, x: Value, zero_point: int, low: int, high: int) -> Value:
    """`saturated` as it is defined."""
    bounds = (m.constant(bound - zero_point, "float32") for bound in (low, high))
    return m.nearest(m.minimum(m.maximum(x, next(bounds)), next(bounds))) + zero_point


MAGIC = 1.5 * 2**23
"""Added to a float32 below 2^22 in size, it leaves no room for a fraction: the sum is rounded to
the nearest integer, half to even."""
SMALL = 2**22 - 1
WORD = 2**15 - 256
"""What is at most so large fits 16 bits, and with any zero point of a byte added."""
MAGIC_BITS = int(np.float32(MAGIC).view(np.int32))
"""The bits of it; those of a sum are as many more as its integer."""


NUMPY: Numbers = NumpyNumbers()
TIR: Numbers = TirNumbers()


def rounded_by_sum(x: Any) -> Any:
    """A float32 of at most `SMALL` in size plus `MAGIC`: its last bits are the nearest integer."""
    return fence(x + tirx.const(MAGIC, "float32"))


def fence(value: Any) -> Any:
    """A float that no later operation is fused with.

    LLVM contracts a product and a sum into one fma on its own account, which rounds once where the
    dialect rounds twice.
    """
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)
