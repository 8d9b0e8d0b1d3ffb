"""How pixels become a network's input, as its file tells or as networks like it are trained.

Each answer says whether it is known or guessed, and from what. The ranges are those of the
frameworks' own model collections: torchvision, timm and GluonCV (mean and deviation of ImageNet),
Keras and TensorFlow's hosted models (-1 to 1), Keras's networks from Caffe (BGR less a mean).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stages.image_layout import Layout, are_less_128, fitting, layout
from stages.kinds import Table

IMAGENET = (1000, 1001)
"""Outputs of networks for ImageNet; of 1001 the first is the background."""
_CENTRAL = 0.875
"""What share of an image's shorter side such networks are tested on: 224 of 256."""
_LEAST_SIDE = 8
_DIGITS = 28 * 28
_RAW = 1 / 32
"""A graph that multiplies its input by less than this takes pixels of 0 to 255."""
_NEAR = 0.06
"""By how much of its span a range may miss a known one: calibration sees few images."""


@dataclass(frozen=True)
class Pixels:
    """Fields of a recipe's input, as YAML, with what is known and what is guessed about them."""

    fields: dict[str, str] = field(default_factory=dict)
    known: str = ""
    guessed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _PixelRange:
    """What pixels of 0 to 255 become: from where to where, and by which numbers."""

    low: float
    high: float
    whose: str
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    color: str = ""

    def fields(self, channels: int) -> dict[str, str]:
        """What a recipe's input says of it."""
        found = {"color": self.color} if self.color else {}
        if self.scale is not None:
            found["scale"] = _number(self.scale, 16)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values:
                found[name] = _numbers(_repeated(values, channels))
        return found


_UNIT = _PixelRange(0, 1, "pixels of 0 to 1, the default")
_SIGNED = _PixelRange(
    -1, 1, "pixels of -1 to 1, as Keras's and TensorFlow's MobileNets and Inceptions take",
    1 / 127.5, (1.0,),
)  # fmt: skip
_MEANS = _PixelRange(
    -2.1179, 2.64, "ImageNet's mean and deviation, as torchvision, timm and GluonCV train with",
    None, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225),
)  # fmt: skip
_CAFFE = _PixelRange(
    -123.68, 151.061, "BGR less the mean, as Keras's ResNet and VGG take from Caffe",
    1.0, (103.939, 116.779, 123.68), (), "bgr",
)  # fmt: skip
_BYTES = _PixelRange(0, 255, "pixels of 0 to 255", 1.0)
_CENTRED = _PixelRange(-128, 127, "pixels less 128", 1.0, (128.0,))
_ELSE = f"{_UNIT.whose}; for others state scale, mean and std"
_ALL = (_UNIT, _SIGNED, _MEANS, _CAFFE, _BYTES, _CENTRED)


def image_layout(item: Table) -> Layout | None:
    """How an input holds an image, as far as its shape lets one think so; an open batch is 1."""
    shape = [1 if extent is None and not at else extent for at, extent in enumerate(item["shape"])]
    if None in shape or not all(isinstance(extent, int) and extent > 0 for extent in shape):
        return None
    found = layout(shape)
    if found is None or min(found.height, found.width) < _LEAST_SIDE:
        return None
    # A gray image and a table of numbers have one shape: spectrograms are no squares.
    is_square = found.height == found.width
    is_line = sum(extent > 1 for extent in shape) == 1
    if found.channels == 1 and (not is_square or (is_line and shape[-1] != _DIGITS)):
        return None
    return found


def pixels_of(item: Table, first: Table, classes: int | None, form: str) -> Pixels:
    """The fields by which any image becomes this input, and what they rest on.

    `item` is the input as described, `first` what `boundary_operators` found of it, `classes`
    the number of the network's classes and `form` its file's format.
    """
    image = image_layout(item)
    if image is None:
        return Pixels()
    is_imagenet = classes in IMAGENET and image.channels == 3
    shorter = None
    size = f"an image is scaled until it covers {image.width} x {image.height} pixels"
    if is_imagenet and image.height == image.width:
        shorter = round(image.height / _CENTRAL)
        size = f"the middle {_CENTRAL} of an image is taken, as networks for ImageNet are tested"
    if item["dtype"] == "float32":
        found = _of_floats(item, first, image, is_imagenet, form)
    else:
        found = _of_integers(item, image)
    fields = fitting(image.height, image.width, shorter)
    color = item.get("color", "")
    if (color == "gray") == (image.channels == 1) and color:
        fields["color"] = color
    return Pixels(fields | found.fields, found.known, (size, *found.guessed))


def _of_floats(item: Table, first: Table, image: Layout, is_imagenet: bool, form: str) -> Pixels:
    stated = _normalized(item, image.channels)
    if stated is not None:
        return Pixels(_as_fields(*stated), known="scale, mean and std are those of its metadata")
    if first.get("is_scaled") and abs(first["factor"]) < _RAW:
        return Pixels({"scale": "1.0"}, known="the graph scales pixels of 0 to 255 itself")
    if first.get("is_scaled") and first["factor"] >= 1 and "range" not in first:
        return Pixels(known="the graph scales its input itself", guessed=(_UNIT.whose,))
    low, high = first.get("range", (item["smallest"], item["largest"]))
    if "range" in first:
        found = _nearest(low, high)
        if found is not None:
            said = f"{found.whose}: its first quantizer holds {low:.6g} to {high:.6g}"
            return _fit(found, image, said)
    elif low == 0 and high > 1:
        return Pixels({"scale": "1.0"}, known=f"the graph takes values of 0 to {high:.6g}")
    if is_imagenet:
        found = _SIGNED if image.is_channels_last else _MEANS
        return _fit(found, image, f"{found.whose} ({form}, outputs of ImageNet's classes)")
    return Pixels(guessed=(_ELSE,))


def _of_integers(item: Table, image: Layout) -> Pixels:
    """What becomes of pixels at an input of stored integers."""
    if item["dtype"] not in ("uint8", "int8") or "scale" not in item:
        return Pixels()
    scale, zero_point = item["scale"], item["zero_point"]
    is_signed = item["dtype"] == "int8"
    low, high = (scale * (q - zero_point) for q in ((0, 255), (-128, 127))[is_signed])
    stated = _normalized(item, image.channels)
    if stated is not None and not _is_same(*stated, scale, zero_point, is_signed):
        return Pixels(_as_fields(*stated), known="scale, mean and std are those of its metadata")
    found = _nearest(low, high)
    if stated is None and found in (_MEANS, _CAFFE):
        said = f"{found.whose}: the input holds {low:.6g} to {high:.6g}"
        return _fit(found, image, said)
    if is_signed and not are_less_128(scale, zero_point):
        stands = f"it stands for {low:.6g} to {high:.6g}"
        if found is None:
            return Pixels(known=f"{stands}; for images state scale, mean and std")
        return _fit(found, image, f"{found.whose}: {stands}")
    stored = "minus 128" if is_signed else "as they are"
    more = (
        "" if stated is not None else "; if it was trained with others, state scale, mean and std"
    )
    return Pixels(known=f"pixels are stored {stored}, real values {low:.6g} to {high:.6g}{more}")


def _fit(found: _PixelRange, image: Layout, said: str) -> Pixels:
    """A range as fields; those of three channels only for images of colour."""
    if image.channels != 3 and found in (_MEANS, _CAFFE):
        return Pixels(guessed=(_ELSE,))
    return Pixels(found.fields(image.channels), guessed=(said,))


def _nearest(low: float, high: float) -> _PixelRange | None:
    """The known range that this is; of ranges around 0, only the larger end counts."""
    is_symmetric = abs(low + high) < 0.02 * (high - low)
    for each in _ALL:
        span = each.high - each.low
        is_low = abs(low - each.low) < _NEAR * span or (is_symmetric and each.low < 0)
        if is_low and abs(high - each.high) < _NEAR * span:
            return each
    return None


def _normalized(item: Table, channels: int) -> tuple[list[float], list[float]] | None:
    """Mean and deviation of pixels of 0 to 255 that the file states, one or one a channel."""
    stated = item.get("normalization")
    if stated is None:
        return None
    mean, std = stated["mean"], stated["std"]
    if {len(mean), len(std)} - {1, channels}:
        return None
    return _repeated(mean, channels), _repeated(std, channels)


def _repeated(values: Sequence[float], count: int) -> list[float]:
    return list(values) * (count // len(values))


def _as_fields(mean: Sequence[float], std: Sequence[float]) -> dict[str, str]:
    return {"scale": "1.0", "mean": _numbers(mean), "std": _numbers(std)}


def _numbers(values: Sequence[float]) -> str:
    return f"[{', '.join(_number(value) for value in values)}]"


def _number(value: float, digits: int = 9) -> str:
    """A float as YAML has it: always with a point, never with a bare exponent."""
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{int(exponent):+d}" if exponent else mantissa


def _is_same(
    mean: Sequence[float], std: Sequence[float], scale: float, zero_point: float, is_signed: bool
) -> bool:
    """Whether a pixel, normalized and quantized, is stored as itself (less 128, if signed)."""
    start = 128 if is_signed else 0
    return all(
        math.fabs((pixel - m) / s / scale + zero_point - (pixel - start)) <= 1
        for m, s in zip(mean, std, strict=True)
        for pixel in (0, 255)
    )
