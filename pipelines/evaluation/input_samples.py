"""Inputs as people keep them (pictures, .npy, .npz) as a package takes them, and answers read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import UserError, shown
from pipelines.evaluation import picture_inputs
from pipelines.recipe.sections import InputSpec
from pipelines.runners.package import Tensor
from stages.image_layout import are_less_128, layout

Array = np.ndarray[Any, Any]
ACCEPTED = (*picture_inputs.SUFFIXES, ".npy", ".npz")


def read_inputs(
    path: Path, tensors: Sequence[Tensor], specs: Mapping[str, InputSpec]
) -> dict[str, Array]:
    """Return one sample for every input, read from a picture, a .npy or a .npz file.

    A picture or .npy is for a network of one input; a .npz holds an array by each input's name.
    """
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        if len(tensors) == len(arrays) == 1:
            arrays = {tensors[0].name: next(iter(arrays.values()))}
        wanted = {tensor.name for tensor in tensors}
        if set(arrays) != wanted:
            raise UserError(
                f"{shown(path)}: holds the arrays {', '.join(sorted(arrays)) or 'none'}; "
                f"the inputs are {', '.join(sorted(wanted))}"
            )
        return {t.name: prepare(arrays[t.name], t, specs.get(t.name)) for t in tensors}
    if len(tensors) != 1:
        names = ", ".join(str(tensor) for tensor in tensors)
        raise UserError(f"the network has {len(tensors)} inputs ({names}); give a .npz of them all")
    (tensor,) = tensors
    return {tensor.name: read_sample(path, tensor, specs.get(tensor.name))}


def read_sample(path: Path, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return one sample as the package takes it, from a picture or a .npy file."""
    if not picture_inputs.is_picture(path):
        return prepare(_array(path), tensor, spec)
    pixels = picture_inputs.read(path, tensor.name, tensor.shape, spec or InputSpec())
    return _converted(pixels, tensor, spec)


def prepare(sample: Array, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return one array as the package takes it.

    The shape may lack axes of length 1 or keep its channels last where the model wants them
    first. Integers for a float input are pixels: they are scaled as the recipe's input says.
    Floats are what the model takes, and stay as they are.
    """
    if sample.dtype.kind not in "iubf":
        raise UserError(f"input '{tensor.name}' takes {tensor.dtype}, found {sample.dtype} values")
    return _converted(_shaped(sample, tensor), tensor, spec)


def ranking(output: Array, count: int, tensor: Tensor | None = None) -> list[int]:
    """Return the `count` most likely classes, best first.

    One integer is a class already, as networks give that end in TopK, unless it has a scale.
    """
    flat = output.reshape(-1)
    if is_class(output, tensor):
        return [int(flat[0])]
    return [int(index) for index in np.argsort(-flat.astype(np.float64), kind="stable")[:count]]


def is_class(output: Array, tensor: Tensor | None = None) -> bool:
    """Whether an output is one integer without a scale: a class already, not a score for each."""
    is_score = tensor is not None and bool(tensor.quantization)
    return output.size == 1 and output.dtype.kind in "iu" and not is_score


def real_values(output: Array, tensor: Tensor) -> Array:
    """Return what an output's stored integers stand for; floats, and what has no scale, as is."""
    meaning = tensor.quantization
    if not meaning or output.dtype.kind not in "iu":
        return output
    return (output.astype(np.float64) - meaning["zero_point"]) * meaning["scale"]


def _converted(shaped: Array, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return an array of the tensor's shape in the tensor's dtype; integers are scaled to float."""
    wanted = np.dtype(tensor.dtype)
    _refuse_nan(shaped, tensor)
    # What is too large for the tensor's type is said in our words, not in NumPy's.
    with np.errstate(over="ignore", invalid="ignore"):
        if wanted.kind == "f" and shaped.dtype.kind in "iub":
            return np.ascontiguousarray(_scaled(shaped, tensor, spec or InputSpec()).astype(wanted))
        if wanted.kind in "iu":
            shaped = _stored(shaped, tensor, spec)
        converted = shaped.astype(wanted)
    is_changed = wanted.kind in "iu" and not np.array_equal(shaped, converted)
    if is_changed or np.isinf(converted).sum() != np.isinf(shaped).sum():
        raise UserError(
            f"input '{tensor.name}' takes {wanted}; the {shaped.dtype} values found "
            f"({shaped.min():g} to {shaped.max():g}) would be changed by that"
        )
    return np.ascontiguousarray(converted)


def _refuse_nan(values: Array, tensor: Tensor) -> None:
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
    if missing.any():
        raise UserError(
            f"input '{tensor.name}' takes numbers; {missing.sum()} of the {missing.size} values "
            f"found are NaN, the first at {int(missing.argmax())}, counted from 0"
        )


def _stored(values: Array, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return the integers that stand for `values` at an input of stored integers.

    Integers of the input's own type are what is stored. Floats are real values. Other integers
    are pixels: scaled as the recipe says, if it says so, else the bytes themselves, for an int8
    input 128 below.
    """
    wanted, meaning = np.dtype(tensor.dtype), tensor.quantization
    stated = sorted((spec.model_fields_set if spec else set()) & {"scale", "mean", "std"})
    if not meaning:
        if stated:
            raise UserError(
                f"inputs.{tensor.name}.{stated[0]} is for float inputs, and this one takes {wanted}"
            )
        return values
    if values.dtype.kind == "f":
        return _quantized(values, wanted, meaning)
    if stated and values.dtype.kind in "iub" and (values.dtype != wanted or wanted == np.uint8):
        return _quantized(_scaled(values, tensor, spec or InputSpec()), wanted, meaning)
    if values.dtype == np.uint8 and wanted == np.int8:
        if not are_less_128(meaning["scale"], meaning["zero_point"]):
            raise UserError(
                f"input '{tensor.name}' takes int8 of scale {meaning['scale']:g} and zero point "
                f"{meaning['zero_point']:g}, which does not tell how pixels become it; state "
                f"inputs.{tensor.name}.scale, mean and std"
            )
        return values.astype(np.int16) - 128
    return values


def _quantized(values: Array, dtype: np.dtype[Any], meaning: Mapping[str, Any]) -> Array:
    limits = np.iinfo(dtype)
    steps = values.astype(np.float64) / meaning["scale"]
    # Halves away from zero, as TensorFlow Lite rounds its inputs.
    stored = np.trunc(steps + np.copysign(0.5, steps)) + meaning["zero_point"]
    return np.clip(stored, limits.min, limits.max)


def _scaled(pixels: Array, tensor: Tensor, spec: InputSpec) -> Array:
    # In float64 and rounded once, k * (1/255) is the float32 k/255 that training code computes.
    with np.errstate(all="ignore"):
        values: Array = (pixels * np.float64(spec.scale)).astype(np.float32)
        for numbers, operation in ((spec.mean, np.subtract), (spec.std, np.divide)):
            if numbers:
                values = operation(values, _per_channel(numbers, tensor))
    if not np.isfinite(values).all():
        raise UserError(
            f"inputs.{tensor.name}: scale, mean and std make of the pixels {pixels.min()} to "
            f"{pixels.max()} what float32 cannot hold; state those the model was trained with"
        )
    return values


def _per_channel(numbers: tuple[float, ...], tensor: Tensor) -> Array:
    """Return numbers shaped to go along the channel axis: a picture's, else third from last."""
    vector = np.asarray(numbers, np.float32)
    if len(vector) == 1:
        return vector
    picture = layout(tensor.shape)
    axis = -1 if picture is not None and picture.is_channels_last else -3
    if len(tensor.shape) >= -axis and tensor.shape[axis] == len(vector):
        return vector.reshape([-1, *([1] * (-axis - 1))])
    raise UserError(
        f"inputs.{tensor.name}: mean and std have {len(vector)} channels, and the input "
        f"{list(tensor.shape)} has not"
    )


def _shaped(sample: Array, tensor: Tensor) -> Array:
    axes = [length for length in tensor.shape if length != 1]
    found = [length for length in sample.shape if length != 1]
    if found == axes or found == [_size(axes)] or (len(axes) == 1 and _size(found) == axes[0]):
        return sample.reshape(tensor.shape)
    if sample.ndim >= 3:
        moved = np.moveaxis(sample, -1, -3)
        if [length for length in moved.shape if length != 1] == axes:
            return moved.reshape(tensor.shape)
    raise UserError(
        f"input '{tensor.name}' takes {list(tensor.shape)}, found {list(sample.shape)}; "
        "axes of length 1 may be left out and channels may stand last"
    )


def _size(shape: list[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _array(path: Path) -> Array:
    """Return the array of a .npy file, or raise UserError."""
    if path.suffix != ".npy":
        raise UserError(
            f"{shown(path)}: '{path.suffix or path.name}' is not accepted; accepted: "
            f"{', '.join(ACCEPTED)}"
        )
    loaded = _loaded(path)
    if not isinstance(loaded, np.ndarray):
        raise UserError(f"{shown(path)}: not a .npy file of plain numbers")
    return loaded


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file by name, or raise UserError."""
    loaded = _loaded(path)
    if not isinstance(loaded, dict):
        raise UserError(f"{shown(path)}: not a .npz file of plain arrays")
    return loaded


def _loaded(path: Path) -> Array | dict[str, Array]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: np.asarray(loaded[name]) for name in loaded.files}
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: there is no such file") from None
    except MemoryError:
        raise UserError(f"{shown(path)}: its arrays do not fit this machine's memory") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        what = "plain numbers" if path.suffix == ".npy" else "plain arrays"
        raise UserError(f"{shown(path)}: not a {path.suffix} file of {what}") from error
