"""The options each stage takes: its own slice of a recipe, and nothing else."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Algorithm = Literal["bitserial", "lookup", "mac8", "winograd"]
Encoding = Literal["unipolar", "bipolar", "signed"]
"""What stored levels l of m bits mean: l, 2l - 2^m + 1, or l in two's complement."""
PackageFormat = Literal["shared", "static", "executable", "source", "wheel"]
ZooName = Literal[
    "resnet18",
    "resnet50",
    "resnet50_v1",
    "resnet50_v1b",
    "resnet101",
    "resnet152",
    "inception_v1",
    "inception_v2",
    "inception_bn",
    "inception_v3",
    "inception_v4",
    "mobilenet_v1",
    "mobilenet_v2",
    "resnet8",
    "mobilenet_v1_025",
    "ds_cnn",
    "autoencoder",
    "residual_block",
]
LOW_BIT_NETWORKS: tuple[ZooName, ...] = ("resnet18", "residual_block")
"""Zoo networks that can have fewer than 8 bits; the others are written with 8, or in float32."""

Bits = Annotated[int, Field(ge=1, le=8, description="Width of one value in bits.", examples=[2])]
LayerPattern = Annotated[
    str,
    Field(
        min_length=1,
        description="Layer names as a glob, case-sensitive; one that matches nothing is an error.",
        examples=["layer4.*"],
    ),
]
PACKAGE_FORMATS: tuple[PackageFormat, ...] = get_args(PackageFormat)
DEFAULT_FORMATS: tuple[PackageFormat, ...] = ("shared", "static", "executable")
"""The formats of a package whose recipe names none."""


_NUMBER = r"(0|[1-9]\d{0,8})"
_VERSION = rf"{_NUMBER}(\.{_NUMBER}){{0,5}}((a|b|rc){_NUMBER})?(\.post{_NUMBER})?(\.dev{_NUMBER})?"
"""Versions in the one spelling that tools make of them (PEP 440); no epochs, no local parts."""


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


class ImportOptions(Options):
    """What the importer must know beyond the model file."""

    inputs: dict[str, tuple[Annotated[int, Field(ge=1)], ...]] = {}
    """Shapes of graph inputs, for dimensions the file leaves open."""


ModelFormat = Literal["qonnx", "qdq", "float"]


class ZooOptions(Options):
    """A network from the zoo at a precision."""

    name: ZooName
    """Which network."""
    format: ModelFormat = "qonnx"
    """How it is written: QONNX of any precision, ONNX QDQ with 8 bits everywhere, or float32."""
    activations: TensorQuantization = TensorQuantization(bits=8, encoding="unipolar")
    """Activations of the inner layers; of all tensors in QDQ, where unipolar means uint8."""
    weights: TensorQuantization = TensorQuantization(bits=8, encoding="signed")
    """Weights of the inner layers; of all in QDQ."""
    stem: Literal["int8"] = "int8"
    """Precision of the first convolution."""
    head: Literal["int8"] = "int8"
    """Precision of the classifier."""
    layers: tuple[LayerOverride, ...] = ()
    """Overrides of precision by layer name, in order; the zoo ignores their algorithm."""
    seed: int = Field(default=0, ge=0, description="Seed of the weights.")
    image_size: int = Field(default=224, ge=8, description="Height and width of the input, pixels.")
    width: int = Field(default=1, ge=1, le=8, description="Channels of layers, times their own.")
    batch: int = Field(default=1, ge=1, le=1024, description="Inputs taken at a time.")


class GoldenOptions(Options):
    """Which golden vectors to compute."""

    samples: int = Field(default=2, ge=1, le=1024, description="Number of golden inputs.")
    seed: int = Field(default=0, ge=0, description="Seed of the golden inputs.")


FloatPrecision = Literal["float32", "bfloat16", "float16"]
CalibrationMethod = Literal["minmax", "entropy", "mse", "percentile"]
RangeEncoding = Literal["asymmetric", "symmetric"]
Granularity = Literal["per_channel", "per_tensor"]


class ActivationScheme(Options):
    """How the activations of a float model are quantized."""

    bits: Literal[1, 2, 3, 4, 8] = 8
    """Width of one value; below 8 for the layers between the first and the last."""
    encoding: RangeEncoding = "asymmetric"
    """With 8 bits: uint8 with a zero point, or int8 around 0."""


class WeightScheme(Options):
    """How the weights of a float model are quantized."""

    bits: Literal[1, 2, 3, 4, 8] = 8
    """Width of one value; below 8 for the layers between the first and the last."""
    encoding: RangeEncoding = "symmetric"
    """With 8 bits: int8 around 0, or uint8 with a zero point."""
    granularity: Granularity = "per_channel"
    """One scale for each output channel, or one for the tensor."""

    @model_validator(mode="after")
    def _has_one_zero_point(self) -> WeightScheme:
        if self.encoding == "asymmetric" and self.granularity == "per_channel":
            raise ValueError(
                "asymmetric weights have one zero point; state granularity: per_tensor"
            )
        return self


class CalibrateOptions(Options):
    """Post-training quantization of a float model."""

    activations: ActivationScheme = ActivationScheme()
    """Activations."""
    weights: WeightScheme = WeightScheme()
    """Weights."""
    method: CalibrationMethod = "minmax"
    """How the range of a tensor follows from the values it had on the samples."""

    @property
    def is_narrow(self) -> bool:
        """Whether inner layers have fewer than 8 bits."""
        return self.activations.bits < 8 or self.weights.bits < 8


class QuantizeOptions(Options):
    """What becomes of layers that nothing quantizes."""

    floats: FloatPrecision = "float32"
    """What their factors are rounded to."""


class LegalizeOptions(Options):
    """Choices of algorithm that the recipe makes."""

    layers: tuple[LayerAlgorithm, ...] = ()
    """Algorithms by layer name, in order; later entries win."""

    def algorithm_of(self, layer: str) -> Algorithm | None:
        """The algorithm wanted for a layer, if one is."""
        wanted = self._of(layer)
        return None if wanted is None else wanted.algorithm

    def packing_of(self, layer: str) -> Packing | None:
        """The packing wanted for a layer, if one is."""
        wanted = self._of(layer)
        return None if wanted is None else wanted.packing

    def _of(self, layer: str) -> LayerAlgorithm | None:
        return next((one for one in reversed(self.layers) if is_match(one.match, layer)), None)


def python_version(version: str | None) -> str | None:
    """Return a version that pip accepts and a file name can hold, else raise ValueError."""
    if version is not None and not re.fullmatch(_VERSION, version):
        raise ValueError(f"'{version}' is no version; write numbers, such as 1.4.2 or 2.0rc1")
    return version


class ScheduleOptions(Options):
    """How schedules are found."""

    trials: int = Field(
        default=0,
        ge=0,
        description="Kernels to measure per layer on this machine; 0 uses the cost model alone.",
    )


class PackageOptions(Options):
    """What a package holds and how its symbols are called."""

    name: str = Field(description="Prefix of the package's symbols, a C identifier.")
    formats: tuple[PackageFormat, ...] = Field(
        default=DEFAULT_FORMATS, min_length=1, description="What to link, or give as text."
    )
    version: str | None = Field(
        default=None, description="The package's version; without it one made of its files."
    )
    profile: bool = Field(default=False, description="Whether it can tell layer times.")

    @field_validator("version")
    @classmethod
    def _is_version(cls, version: str | None) -> str | None:
        return python_version(version)

    @field_validator("name")
    @classmethod
    def _is_identifier(cls, name: str) -> str:
        return c_identifier(name)

    @field_validator("formats")
    @classmethod
    def _each_once(cls, formats: tuple[PackageFormat, ...]) -> tuple[PackageFormat, ...]:
        return formats_in_order(formats)


def is_match(pattern: str, layer: str) -> bool:
    """Whether a recipe's layer pattern means this layer."""
    return fnmatchcase(layer, pattern)


def c_identifier(name: str) -> str:
    """Return `name` if it can prefix C symbols, else raise ValueError."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) or name.endswith("_") or "__" in name:
        raise ValueError(
            f"'{name}' cannot prefix C symbols; use lower-case letters, digits and single "
            "underscores, starting with a letter, at most 63 characters"
        )
    return name


def formats_in_order(formats: tuple[PackageFormat, ...]) -> tuple[PackageFormat, ...]:
    """Return the formats in one canonical order, so that their order is no part of any key."""
    twice = sorted({item for item in formats if formats.count(item) > 1})
    if twice:
        raise ValueError(f"'{twice[0]}' is listed twice")
    if "wheel" in formats and "shared" not in formats:
        raise ValueError("a wheel holds the shared library; write [shared, wheel]")
    return tuple(item for item in PACKAGE_FORMATS if item in formats)
