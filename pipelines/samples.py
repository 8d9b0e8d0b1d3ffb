"""Inputs as people keep them (.npy, .npz) turned into what a package takes, and answers read."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import UserError, shown
from pipelines.load import Resolved
from pipelines.recipe import InputSpec
from pipelines.runners.package import Tensor

Array = np.ndarray[Any, Any]
IMAGES = ("images", "x", "inputs", "data")
LABELS = ("labels", "y", "targets")


def read_array(path: Path) -> Array:
    """Return the array of a .npy file, or raise UserError."""
    if path.suffix != ".npy":
        raise UserError(
            f"{shown(path)}: '{path.suffix or path.name}' is not accepted; accepted: .npy, "
            "written by numpy.save"
        )
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: there is no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{shown(path)}: not a .npy file of plain numbers") from error
    return loaded


def read_labelled(path: Path) -> tuple[Array, Array]:
    """Return the images and integer labels of a .npz file, sample first, or raise UserError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = (_entry(file, names, path) for names in (IMAGES, LABELS))
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: there is no such file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise UserError(f"{shown(path)}: not a .npz file of plain arrays") from error
    if labels.ndim != 1 or len(labels) != len(images) or labels.dtype.kind not in "iu":
        raise UserError(
            f"{shown(path)}: {len(images)} images need as many integer labels, found "
            f"{labels.dtype} {list(labels.shape)}"
        )
    return images, labels


def prepare(sample: Array, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return one sample as the package takes it.

    The shape may lack axes of length 1 or keep its channels last where the model wants them
    first. Integers for a float input are pixels: they are scaled as the recipe's input says.
    """
    shaped = _shaped(sample, tensor)
    wanted = np.dtype(tensor.dtype)
    if wanted.kind == "f" and shaped.dtype.kind in "iub":
        shaped = _scaled(shaped.astype(np.float32), spec or InputSpec())
    elif wanted.kind in "iu" and not np.array_equal(shaped, shaped.astype(wanted)):
        raise UserError(
            f"input '{tensor.name}' takes {wanted}; the {shaped.dtype} values found "
            f"({shaped.min():g} to {shaped.max():g}) would be changed by that"
        )
    return np.ascontiguousarray(shaped.astype(wanted)).reshape(tensor.shape)


def ranking(output: Array, count: int) -> list[int]:
    """Return the `count` most likely classes, best first.

    One integer is a class already, as networks give that end in TopK.
    """
    flat = output.reshape(-1)
    if is_class(output):
        return [int(flat[0])]
    return [int(index) for index in np.argsort(-flat.astype(np.float64), kind="stable")[:count]]


def _entry(file: Any, names: tuple[str, ...], path: Path) -> Array:
    for name in names:
        if name in file.files:
            entry: Array = file[name]
            return entry
    raise UserError(
        f"{shown(path)}: has no array {' or '.join(repr(n) for n in names)}; "
        f"it holds {', '.join(file.files) or 'nothing'}"
    )


def _shaped(sample: Array, tensor: Tensor) -> Array:
    axes = [length for length in tensor.shape if length != 1]
    found = [length for length in sample.shape if length != 1]
    if found == axes or sample.shape == (int(np.prod(tensor.shape)),) or found == [_size(axes)]:
        return sample.reshape(tensor.shape)
    if len(axes) == 1 and _size(found) == axes[0]:
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


def _scaled(pixels: Array, spec: InputSpec) -> Array:
    values: Array = pixels * np.float32(spec.scale)
    for numbers, operation in ((spec.mean, np.subtract), (spec.std, np.divide)):
        if numbers:
            values = operation(values, _per_channel(numbers, values))
    return values.astype(np.float32)


def _per_channel(numbers: tuple[float, ...], values: Array) -> Array:
    """Return numbers shaped to go along the channel axis: the one of that length, first if 4-D."""
    vector = np.asarray(numbers, np.float32)
    if len(vector) == 1:
        return vector
    for axis in (-3, -1):
        if values.ndim >= -axis and values.shape[axis] == len(vector):
            return vector.reshape([-1, *([1] * (-axis - 1))])
    raise UserError(
        f"mean and std have {len(vector)} channels, the input {list(values.shape)} has not"
    )


def labels(resolved: Resolved, output: str) -> list[str] | None:
    """Return the class names of an output, if the recipe gives a file of them."""
    spec = resolved.recipe.outputs.get(output)
    if spec is None or spec.labels is None:
        return None
    path = resolved.require_file(f"outputs.{output}.labels", spec.labels)
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise UserError(f"{shown(path)}: not a text file: {error.reason}") from error


def is_class(output: Array) -> bool:
    """Whether an output is one integer: a class already, not a score for each."""
    return output.size == 1 and output.dtype.kind in "iu"
