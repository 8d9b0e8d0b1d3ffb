"""The reading of `Numbers` over TIR expressions: what packages run."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import register_op_attr

from stages.dialect.numbers import (
    MAGIC,
    MAGIC_BITS,
    SMALL,
    Numbers,
    Value,
    clipped,
    rounded_once,
)
from stages.dialect.processor import (
    byte_of_word,
    divides_by_products,
    has_fma,
    narrows_by_saturation,
    narrows_by_words,
    nearest,
    rounds_by_sums,
    saturated,
    widens_bytes,
    word_of,
)
from stages.nodes import Scalar

# TIR's own list of what a loop may become vectors around has `floor` and `round`, but not this.
register_op_attr("tirx.nearbyint", "TVectorizable", True)

BYTE = -128, 255
"""What bytes of one type or the other can be."""


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

    def logical_and(self, left: Value, right: Value) -> Value:
        """A conjunction."""
        return tirx.all(left, right)

    def equal(self, left: Value, right: Value) -> Value:
        """TIR's comparison; Python's would compare the expressions."""
        return tirx.EQ(left, right)

    def logical_not(self, condition: Value) -> Value:
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

    def copysign(self, magnitude: Value, x: Value) -> Value:
        """LLVM's copysign."""
        return tirx.call_llvm_pure_intrin(self.dtype(magnitude), "llvm.copysign", magnitude, x)

    def square_root(self, x: Value) -> Value:
        """LLVM's sqrt."""
        return tirx.sqrt(x)

    def bits_of(self, x: Value, dtype: str) -> Value:
        """A reinterpretation."""
        return tirx.reinterpret(dtype, x)

    def look_up(self, table: Value, index: Value) -> Value:
        """A load from the whole tensor."""
        return table[index]


TIR: Numbers = TirNumbers()


def rounded_by_sum(x: Scalar) -> Scalar:
    """A float32 of magnitude `SMALL` at most, plus `MAGIC`; its last bits are the nearest int."""
    return fence(x + tirx.const(MAGIC, "float32"))


def fence(value: Scalar) -> Scalar:
    """A float that no later operation is fused with.

    LLVM contracts a product and a sum into one fma on its own account, which rounds once where the
    dialect rounds twice.
    """
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)
