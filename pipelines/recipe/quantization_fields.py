"""What a recipe says of precision, and the base of all its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from stages.layer_options import Bits, Encoding, TensorQuantization
from stages.options import Granularity

INT8 = 8

RecipeEncoding = Literal["unipolar", "bipolar", "signed", "asymmetric", "symmetric"]
"""Levels of low bits; with 8 bits also scales as frameworks have them."""
LEVELS: Mapping[str, Encoding] = {"asymmetric": "unipolar", "symmetric": "signed"}
"""What stored 8-bit integers are, for a scale and zero point as frameworks have them."""


class Section(BaseModel):
    """Base of a recipe's parts: immutable, strict, and closed to unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class TensorPrecision(Section):
    """Width and levels of a tensor; without an encoding, the one usual at that width."""

    usual: ClassVar[tuple[str, str]]
    """The encoding below 8 bits, and the one with 8."""

    bits: Bits
    encoding: RecipeEncoding

    @model_validator(mode="before")
    @classmethod
    def _usual_encoding(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("encoding") is None and "bits" in data:
            return {**data, "encoding": cls.usual[data["bits"] == INT8]}
        return data

    @model_validator(mode="after")
    def _levels_exist(self) -> TensorPrecision:
        if self.encoding in LEVELS and self.bits != INT8:
            low = "unipolar, bipolar or signed"
            raise ValueError(f"{self.encoding} is for 8 bits; with {self.bits}, use {low}")
        tensor(self)
        return self


class ActivationQuantization(TensorPrecision):
    """Quantization of the inner layers' activations; of all tensors where all have 8 bits."""

    usual = ("unipolar", "asymmetric")

    encoding: RecipeEncoding = "unipolar"
    """Which real levels the stored integers stand for: unipolar is 0, 1 … times the scale. With 8
    bits: asymmetric, uint8 with a zero point (the default), or symmetric, int8 around 0."""


class WeightQuantization(TensorPrecision):
    """Quantization of the inner layers' weights; of all where all have 8 bits."""

    usual = ("bipolar", "symmetric")

    encoding: RecipeEncoding = "bipolar"
    """Which real levels the stored integers stand for: bipolar is -1, +1 times the scale. With 8
    bits: symmetric, int8 around 0 (the default), or asymmetric, uint8 with a zero point."""
    granularity: Granularity | None = None
    """One scale for each output channel (the default), or for the tensor, as asymmetric needs."""


class Quantization(Section):
    """The precision of a network that does not bring its own."""

    activations: ActivationQuantization
    """Activations of the inner layers."""
    weights: WeightQuantization
    """Weights of the inner layers."""
    stem: Literal["int8"] = "int8"
    """Precision of the first layer."""
    head: Literal["int8"] = "int8"
    """Precision of the classifier."""


def tensor(quantization: TensorPrecision) -> TensorQuantization:
    """Return a recipe's quantization of a tensor in the stages' words."""
    encoding = LEVELS.get(quantization.encoding, quantization.encoding)
    return TensorQuantization.model_validate({"bits": quantization.bits, "encoding": encoding})
