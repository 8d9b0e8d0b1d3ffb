"""Everything a recipe may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, field_validator, model_validator

from pipelines.precision import (
    INT8,
    Quantization,
    Section,
    tensor,
)
from pipelines.sizes import Size, pair, said
from stages.layer_options import LayerOverride
from stages.options import (
    DEFAULT_FORMATS,
    LOW_BIT_NETWORKS,
    CalibrationMethod,
    FloatPrecision,
    GoldenOptions,
    ModelFormat,
    PackageFormat,
    ScheduleOptions,
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
    def _is_identifier(cls, name: str | None) -> str | None:
        return name if name is None else c_identifier(name)

    @field_validator("version")
    @classmethod
    def _is_version(cls, version: str | None) -> str | None:
        return python_version(version)

    @field_validator("formats")
    @classmethod
    def _each_once(cls, formats: tuple[PackageFormat, ...]) -> tuple[PackageFormat, ...]:
        return formats_in_order(formats)


class Recipe(Section):
    """A network, its precision, the hardware, and what to build; its name is its file's stem."""

    extends: str | None = Field(default=None, examples=["base"])
    """A recipe to start from, a name or a path: mappings merge, lists and scalars replace."""
    description: str = Field(default="", examples=["ResNet-18, 2-bit activations, 1-bit weights"])
    """One line for people."""
    model: ModelSource
    """The network, as {zoo: resnet18} or {file: model.onnx}."""
    inputs: dict[str, InputSpec] = Field(
        default={}, examples=[{"data": {"shape": [1, 3, 224, 224], "resize": 256, "crop": 224}}]
    )
    """Graph inputs by name."""
    outputs: dict[str, OutputSpec] = Field(
        default={}, examples=[{"out": {"postprocess": "softmax"}}]
    )
    """Graph outputs by name."""
    quantization: Quantization | None = Field(
        default=None, examples=[{"activations": {"bits": 2}, "weights": {"bits": 1}}]
    )
    """Precision, for a network that does not bring its own."""
    layers: tuple[LayerOverride, ...] = Field(
        default=(), examples=[[{"match": "layer4.*", "weights": {"bits": 2}}]]
    )
    """What is different about some layers, in order; later entries win."""
    floats: FloatPrecision = "float32"
    """What the products of layers left in float are made of; bfloat16, of 8 bits of precision, is
    for processors that have instructions for it, and float16, of 11, for hardware with +fullfp16
    alone."""
    golden: GoldenOptions = GoldenOptions()
    """The golden vectors that `verify` replays."""
    calibration: Calibration | None = None
    """How the ranges of a float model are found; without it, the model stays float."""
    evaluation: Evaluation | None = None
    """What `accuracy` measures."""
    hardware: str = Field(default="host", min_length=1, examples=["rpi3", "boards/mine.yaml"])
    """A board of hw/boards by name, or the path of a board file relative to the recipe."""
    schedule: ScheduleOptions = ScheduleOptions()
    """How schedules are found."""
    package: Package = Package()
    """What the package holds."""


class Contradiction(NamedTuple):
    """A fault between sections: where to show it, one sentence, and the sections it is about."""

    field: str
    sentence: str
    about: tuple[str, ...]


def contradictions(recipe: Recipe) -> Iterator[Contradiction]:
    """Yield what no single section can know to be wrong.

    Whether the recipe contradicts a model file is known only once the file is read.
    """
    zoo, base = recipe.model.zoo, recipe.quantization
    if recipe.calibration is not None and zoo is not None and recipe.model.format != "float":
        yield Contradiction(
            "calibration",
            "has nothing to calibrate: a zoo network's scales are fixed, unless model.format is "
            "float",
            ("model", "calibration"),
        )
    if zoo is None:
        return
    if base is None and recipe.model.format != "float":
        yield Contradiction(
            "model.zoo",
            f"{zoo} needs a precision; add quantization: "
            "{activations: {bits: 2}, weights: {bits: 1}}",
            ("model", "quantization"),
        )
    if base is not None and zoo not in LOW_BIT_NETWORKS and model_format(recipe) == "qonnx":
        yield Contradiction(
            "quantization",
            f"{zoo} is made with 8 bits everywhere: {{activations: {{bits: 8}}, weights: "
            f"{{bits: 8}}}}; with fewer there are {' and '.join(LOW_BIT_NETWORKS)}",
            ("model", "quantization", "layers"),
        )
    if (
        base is not None
        and recipe.model.format != "float"
        and (base.weights.granularity == "per_tensor" or base.weights.encoding == "asymmetric")
    ):
        yield Contradiction(
            "quantization.weights",
            "a zoo network's 8-bit weights are symmetric, with one scale per channel",
            ("model", "quantization"),
        )
    for index, layer in enumerate(recipe.layers if base is not None else ()):
        for name in _levels_missing(base, layer):
            yield Contradiction(
                f"layers[{index}].{name}",
                "one signed bit holds only 0 and -1; use encoding: bipolar for -1, +1",
                ("model", "quantization", "layers"),
            )


def _levels_missing(base: Quantization | None, layer: LayerOverride) -> Iterator[str]:
    """Yield the tensors of a layer to which an override gives levels that do not exist."""
    if base is None:
        return
    for name, override, start in (
        ("activations", layer.activations, base.activations),
        ("weights", layer.weights, base.weights),
    ):
        if override is not None:
            try:
                override.apply(tensor(start))
            except ValueError:
                yield name


def model_format(recipe: Recipe) -> ModelFormat:
    """Return how a zoo network is written."""
    if recipe.model.format is not None or recipe.quantization is None:
        return recipe.model.format or "float"
    whole = recipe.quantization
    widths = {whole.activations.bits, whole.weights.bits}
    is_int8 = widths == {INT8} and not precise_layers(recipe)
    return "qdq" if is_int8 else "qonnx"


def precise_layers(recipe: Recipe) -> tuple[LayerOverride, ...]:
    """The overrides of precision, without algorithms and how these pack bits."""
    return tuple(
        layer.model_copy(update={"algorithm": None, "packing": None})
        for layer in recipe.layers
        if layer.activations is not None or layer.weights is not None
    )


def flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every leaf of plain data; a list of plain values is a leaf."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, dict) for item in data):
        for index, item in enumerate(data):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, data
