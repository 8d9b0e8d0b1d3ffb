"""The sections of a recipe: network, inputs, outputs, calibration, evaluation and package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from pipelines.recipe.picture_sizes import Size, pair, said
from pipelines.recipe.quantization_fields import Section
from stages.options import (
    DEFAULT_FORMATS,
    CalibrationMethod,
    ModelFormat,
    PackageFormat,
    ZooName,
    c_identifier,
    formats_in_order,
    python_version,
)

_OWN_SIZES: Mapping[ZooName, int] = {
    "residual_block": 16,
    "inception_v3": 299,
    "inception_v4": 299,
    "resnet8": 32,
    "mobilenet_v1_025": 96,
}
IMAGE_SIZES: Mapping[ZooName, int] = {name: _OWN_SIZES.get(name, 224) for name in get_args(ZooName)}
CHANNELS: Mapping[str, int] = {"rgb": 3, "bgr": 3, "gray": 1}
CLASSES: Mapping[str, int] = {"top1": 1, "top5": 5}


class ModelSource(Section):
    """The network: one from the zoo, or a file."""

    zoo: ZooName | None = Field(default=None, examples=["resnet18"])
    """A network that is built at the precision of `quantization`, with seeded weights."""
    format: ModelFormat | None = None
    """How a zoo network is written; without it, as QDQ where everything has 8 bits, else QONNX."""
    file: Path | None = Field(default=None, examples=["models/digits.onnx"])
    """A model file (.onnx, .tflite, .pt2, or -symbol.json of MXNet), relative to the recipe."""
    seed: int = Field(default=0, ge=0)
    """Seed of a zoo network's weights."""
    image_size: int | None = Field(default=None, ge=8, examples=[224])
    """Height and width of a zoo network's input in pixels; without it, the network's own."""
    width: int = Field(default=1, ge=1, le=8, examples=[2])
    """Channels of a zoo network's layers, times its own."""
    batch: int = Field(default=1, ge=1, le=1024, examples=[8])
    """Inputs that a zoo network takes at a time."""

    @model_validator(mode="after")
    def _one_source(self) -> ModelSource:
        if (self.zoo is None) == (self.file is None):
            found = "neither" if self.zoo is None else "both"
            raise ValueError(
                f"needs exactly one of zoo and file, and has {found}; "
                "null unsets what a parent states"
            )
        stated = self.seed or self.image_size is not None or self.format is not None
        if self.file is not None and (stated or self.batch > 1 or self.width > 1):
            raise ValueError(
                "seed, image_size, width, batch and format are for a zoo network, not for a file"
            )
        return self


class InputSpec(Section):
    """One graph input: its shape, and how a picture becomes it."""

    shape: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None, max_length=8, examples=[[1, 3, 224, 224]]
    )
    """Shape as in the model file, for dimensions that the file leaves open."""
    color: Literal["rgb", "bgr", "gray"] | None = None
    """Channel order of a picture; without it, three channels are rgb."""
    resize: Size | None = Field(default=None, examples=[256, [240, 320]])
    """First scale the picture, bilinearly: its shorter side to this many pixels, or the whole until
    it covers [height, width]."""
    crop: Size | None = Field(default=None, examples=[224, [240, 320]])
    """Then cut a square of this many pixels, or [height, width], from its middle."""
    scale: float = Field(default=1 / 255, gt=0)
    """Multiply pixels by this: integers of 0 to 255, from a picture or an array."""
    mean: tuple[float, ...] = Field(default=(), examples=[[0.485, 0.456, 0.406]])
    """Then subtract this, per channel."""
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(), examples=[[0.229, 0.224, 0.225]]
    )
    """Then divide by this, per channel."""

    @model_validator(mode="after")
    def _fits_together(self) -> InputSpec:
        if self.resize is not None and self.crop is not None:
            least = self.resize if isinstance(self.resize, tuple) else (self.resize,)
            # Of a shorter side alone one knows only that the crop's shorter side must fit into it.
            most = pair(self.crop) if len(least) > 1 else (min(pair(self.crop)),)
            if any(cut > side for cut, side in zip(most, least, strict=True)):
                raise ValueError(
                    f"crop {said(self.crop)} is larger than resize {said(self.resize)}"
                )
        if self.mean and self.std and len(self.mean) != len(self.std):
            raise ValueError(
                f"mean has {len(self.mean)} values and std {len(self.std)}; give one per channel"
            )
        channels = CHANNELS.get(self.color or "")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if channels and values and len(values) != channels:
                raise ValueError(
                    f"{name} has {len(values)} values, and color {self.color} needs {channels}"
                )
        return self


class OutputSpec(Section):
    """One graph output and what its numbers mean."""

    postprocess: Literal["none", "softmax", "argmax"] = "none"
    """What `run` shows: the largest values, their softmax as probabilities, or the first alone."""
    labels: Path | None = Field(default=None, examples=["imagenet.txt"])
    """A text file with one class name a line for `run` to show, relative to the recipe."""


class Calibration(Section):
    """How the ranges of a float model's activations are found."""

    data: Path
    """Inputs, a .npz file or a folder of pictures; relative to the recipe."""
    samples: int = Field(default=100, ge=1)
    """How many inputs to use."""
    method: CalibrationMethod = "minmax"
    """How a range follows from what was seen: all of it, what loses the least information
    (entropy) or has the least squared error, or all but the outermost values."""
    seed: int = Field(default=0, ge=0)
    """Seed of the choice of inputs."""


class Evaluation(Section):
    """What `doit accuracy` measures."""

    data: Path = Field(examples=["models/digits_test.npz"])
    """A .npz with arrays `images` and `labels`, or a folder of pictures with labels.csv."""
    metric: Literal["top1", "top5"] = "top1"
    """Share of images whose label is the first, or among the first five, of the classes."""
    first_class: int = Field(default=0, ge=0, le=1000)
    """Output that label 0 stands at: 1 for networks whose first output is the background."""
    tolerance: float = Field(default=0.0, ge=0, le=100)
    """How many points of the metric, of 100, package and source model may differ by."""


class Package(Section):
    """What the package holds."""

    name: str | None = Field(default=None, examples=["my_net"])
    """Prefix of the package's symbols; without it, the recipe's name."""
    formats: tuple[PackageFormat, ...] = Field(default=DEFAULT_FORMATS, min_length=1)
    """What to link: shared and static library, and an executable that checks and times itself.
    `source` gives all of it as C and assembly, for other compilers; `wheel` lets pip install the
    shared library with its loader."""
    version: str | None = Field(default=None, examples=["1.4.2"])
    """The wheel's version, as PEP 440 has them; without it one made of the package's files."""
    profile: bool = False
    """Whether the package can tell the time of each layer."""

    @field_validator("name")
    @classmethod
    def _check_identifier(cls, name: str | None) -> str | None:
        return name if name is None else c_identifier(name)

    @field_validator("version")
    @classmethod
    def _check_version(cls, version: str | None) -> str | None:
        return python_version(version)

    @field_validator("formats")
    @classmethod
    def _check_each_once(cls, formats: tuple[PackageFormat, ...]) -> tuple[PackageFormat, ...]:
        return formats_in_order(formats)
