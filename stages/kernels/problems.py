"""Problems: which product of levels, or of floats, a kernel computes, whatever the layer."""

from __future__ import annotations

from dataclasses import dataclass

from stages.dialect.levels import Levels
from stages.kernels.operand_storage import BYTE_BITS
from stages.layer_options import Encoding
from stages.options import FloatPrecision


@dataclass(frozen=True)
class Problem:
    """A product of levels, whatever the layer: bits of both operands and what weights mean."""

    activation_bits: int
    weight_bits: int
    weights: Encoding
    element: FloatPrecision | None = None
    """What both operands are, if they are floats, of which the rest says nothing."""

    @classmethod
    def of(cls, data: Levels, weight: Levels) -> Problem:
        """The problem of levels by stored weights."""
        encoding: Encoding = "bipolar" if weight.is_balanced else "unipolar"
        return cls(data.bits, weight.bits, "signed" if weight.is_signed else encoding)

    @property
    def is_float(self) -> bool:
        """Whether both operands are floats."""
        return self.element is not None

    @property
    def has_wide_weights(self) -> bool:
        """Whether its weights are integers that no byte holds."""
        return self.weight_bits > BYTE_BITS and not self.is_float

    @property
    def name(self) -> str:
        """Its key in a table of candidates, for example `a2w1_bipolar`."""
        if self.element:
            return {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[self.element]
        return f"a{self.activation_bits}w{self.weight_bits}_{self.weights}"


BYTES = Problem(8, 8, "signed")
"""The product of two bytes, whatever their arithmetic."""
WIDE_WEIGHTS = Problem(8, 9, "signed")
"""The product of a byte and a weight that no byte holds."""
FLOAT32 = Problem(32, 32, "signed", "float32")
"""The product of two floats (IEEE 754 binary32)."""
BFLOAT16 = Problem(16, 16, "signed", "bfloat16")
"""The product of two bfloat16, the upper halves of floats."""
FLOAT16 = Problem(16, 16, "signed", "float16")
"""The product of two floats of 16 bits (IEEE 754 binary16)."""
FLOAT_PROBLEMS = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
"""Type of both operands → the problem of their product."""
