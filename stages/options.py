"""The options each stage takes: its own slice of a recipe, and nothing else."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from stages.layer_options import (
    Algorithm,
    LayerAlgorithm,
    LayerOverride,
    Options,
    Packing,
    TensorQuantization,
    is_match,
)

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

PACKAGE_FORMATS: tuple[PackageFormat, ...] = get_args(PackageFormat)
DEFAULT_FORMATS: tuple[PackageFormat, ...] = ("shared", "static", "executable")
"""The formats of a package whose recipe names none."""


_NUMBER = r"(0|[1-9]\d{0,8})"
_VERSION = rf"{_NUMBER}(\.{_NUMBER}){{0,5}}((a|b|rc){_NUMBER})?(\.post{_NUMBER})?(\.dev{_NUMBER})?"
"""Versions in the one spelling that tools make of them (PEP 440); no epochs, no local parts."""


class ImportOptions(Options):
    """What the importer must know beyond the model file."""

    inputs: dict[str, tuple[Annotated[int, Field(ge=1)], ...]] = Field(default={})
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
    def _check_one_zero_point(self) -> WeightScheme:
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
    def _check_version(cls, version: str | None) -> str | None:
        return python_version(version)

    @field_validator("name")
    @classmethod
    def _check_identifier(cls, name: str) -> str:
        return c_identifier(name)

    @field_validator("formats")
    @classmethod
    def _check_each_once(cls, formats: tuple[PackageFormat, ...]) -> tuple[PackageFormat, ...]:
        return formats_in_order(formats)


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
