"""What a recipe may say of single tensors and layers: their precision, algorithm and packing."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Algorithm = Literal["bitserial", "lookup", "mac8", "winograd"]
Encoding = Literal["unipolar", "bipolar", "signed"]
"""What stored levels l of m bits mean: l, 2l - 2^m + 1, or l in two's complement."""
Bits = Annotated[int, Field(ge=1, le=8, description="Width of one value in bits.", examples=[2])]
LayerPattern = Annotated[
    str,
    Field(
        min_length=1,
        description="Layer names as a glob, case-sensitive; one that matches nothing is an error.",
        examples=["layer4.*"],
    ),
]


class Options(BaseModel):
    """Base of all options: immutable, strict, and closed to unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class TensorQuantization(Options):
    """How a tensor's values are stored.

    With b bits and a stored integer q, unipolar means q in 0..2^b-1, signed means
    q in -2^(b-1)..2^(b-1)-1, and bipolar means the odd levels 2q-(2^b-1): -1, +1 at one bit.
    """

    bits: Bits
    encoding: Encoding
    """Which real levels the stored integers stand for, up to the scale."""

    @model_validator(mode="after")
    def _levels_exist(self) -> TensorQuantization:
        if self.encoding == "signed" and self.bits == 1:
            raise ValueError("one signed bit holds only 0 and -1; use encoding: bipolar for -1, +1")
        return self


class TensorOverride(Options):
    """A change to a tensor's quantization; what is not said stays as it was."""

    bits: Bits | None = None
    """Width of one value in bits."""
    encoding: Encoding | None = None
    """Which real levels the stored integers stand for."""

    def apply(self, base: TensorQuantization) -> TensorQuantization:
        """Return `base` with what this override says replaced."""
        return TensorQuantization(
            bits=base.bits if self.bits is None else self.bits,
            encoding=base.encoding if self.encoding is None else self.encoding,
        )


WordBits = Literal[8, 16, 32, 64, 128]
BitAxis = Literal["outermost", "inner"]
ReductionAxis = Literal["words", "lanes"]


class Packing(Options):
    """How popcounts find their bits in memory and in registers (Cowan et al., CGO 2020, section 3).

    What is not said is chosen by cost.
    """

    word: WordBits | None = None
    """Bits of one output channel that lie side by side in a register."""
    bit_axis: BitAxis | None = None
    """Where the planes of activations lie: one after the other, or word by word inside a pixel."""
    reduction_axis: ReductionAxis | None = None
    """What a channel is added up along: words that follow one another, so that a register has
    several channels, or the lanes of a register as well, which is one word."""

    @model_validator(mode="after")
    def _says_something(self) -> Packing:
        if self.word is None and self.bit_axis is None and self.reduction_axis is None:
            raise ValueError("says nothing; give word, bit_axis or reduction_axis")
        return self


class LayerAlgorithm(Options):
    """The algorithm wanted for the layers a pattern matches."""

    match: LayerPattern
    algorithm: Algorithm
    """How the layer multiplies: popcounts of bit planes, look-ups of sums of activations by bits of
    the weights, 8-bit multiply-accumulate (of floats where it is left in float), or a quarter of
    the products of transformed pixels and weights (Winograd), which makes weights of 3x3 pixels
    eight times as large, those of floats four times."""
    packing: Packing | None = None
    """How popcounts find their bits; without it, as is cheapest."""


class LayerOverride(Options):
    """What is different about the layers a pattern matches; later entries win."""

    match: LayerPattern
    activations: TensorOverride | None = None
    """Change to the quantization of the layer's input."""
    weights: TensorOverride | None = None
    """Change to the quantization of the layer's weights."""
    algorithm: Algorithm | None = None
    """How the layer multiplies; without it the legalizer chooses."""
    packing: Packing | None = None
    """How popcounts find their bits, which says that the layer multiplies by these."""

    @model_validator(mode="after")
    def _changes_something(self) -> LayerOverride:
        changes = (self.activations, self.weights, self.algorithm, self.packing)
        if all(change is None for change in changes):
            raise ValueError("changes nothing; give activations, weights, algorithm or packing")
        return self

    @model_validator(mode="after")
    def _packs_bits(self) -> LayerOverride:
        if self.packing is not None and self.algorithm not in (None, "bitserial"):
            raise ValueError(
                f"packing is of bits, and {self.algorithm} has none; leave algorithm out, or write "
                "bitserial"
            )
        return self


def is_match(pattern: str, layer: str) -> bool:
    """Whether a recipe's layer pattern means this layer."""
    return fnmatchcase(layer, pattern)
