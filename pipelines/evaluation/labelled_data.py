"""Labelled data: a .npz file of images and labels, or a folder of pictures with labels.csv."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from pipelines import paths
from pipelines.errors import UserError, shown
from pipelines.evaluation import input_samples
from pipelines.recipe.sections import InputSpec
from pipelines.runners.package import Tensor

Array = np.ndarray[Any, Any]
IMAGES = ("images", "x", "inputs", "data")
LABELS = ("labels", "y", "targets")
LABELS_FILE = "labels.csv"

_MAX_LABELS_BYTES = 256 << 20
_SUFFIXES = tuple(suffix for suffix in input_samples.ACCEPTED if suffix != ".npz")


@dataclass(frozen=True)
class Labelled:
    """Samples with the class each is of; a sample is read when it is asked for."""

    labels: tuple[int, ...]
    name: Callable[[int], str]
    """What to call a sample in a message."""
    read: Callable[[int, Tensor, InputSpec | None], Array]
    """A sample by number, ready for an input."""

    def __len__(self) -> int:
        return len(self.labels)


def read(path: Path) -> Labelled:
    """Return the samples of a .npz file, or of a folder of pictures with labels.csv."""
    if paths.is_folder(path):
        return _labelled_folder(path)
    if path.suffix != ".npz":
        raise UserError(
            f"{shown(path)}: is not accepted as labelled data; accepted: a .npz file with arrays "
            f"'images' and 'labels', or a folder with pictures and {LABELS_FILE}"
        )
    arrays = input_samples.read_arrays(path)
    images, labels = (_named(arrays, names, path) for names in (IMAGES, LABELS))
    if images.ndim == 0 or labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise UserError(
            f"{shown(path)}: images {list(images.shape)} need as many integer labels, found "
            f"{labels.dtype} {list(labels.shape)}"
        )
    return Labelled(
        labels=tuple(int(label) for label in labels),
        name=lambda index: f"{shown(path)}, sample {index}",
        read=lambda index, tensor, spec: input_samples.prepare(images[index], tensor, spec),
    )


def _named(arrays: Mapping[str, Array], names: tuple[str, ...], path: Path) -> Array:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise UserError(
        f"{shown(path)}: has no array {' or '.join(repr(n) for n in names)}; "
        f"it holds {', '.join(arrays) or 'nothing'}"
    )


def _labelled_folder(folder: Path) -> Labelled:
    """Return the pictures that labels.csv names: one `file,class` a line, without a heading."""
    names, found = _label_rows(folder / LABELS_FILE)
    missing = [name for name in names if not paths.is_file(folder / name)]
    if missing:
        raise UserError(
            f"{shown(folder / LABELS_FILE)}: {len(missing)} of {len(names)} files are not there, "
            f"such as {missing[0]}"
        )
    return Labelled(
        labels=tuple(found),
        name=lambda index: names[index],
        read=lambda index, tensor, spec: input_samples.read_sample(
            folder / names[index], tensor, spec
        ),
    )


def _label_rows(path: Path) -> tuple[list[str], list[int]]:
    try:
        if path.stat().st_size > _MAX_LABELS_BYTES:
            raise UserError(f"{shown(path)}: larger than {_MAX_LABELS_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            f"{shown(path)}: there is no such file; it says what the pictures beside it show, "
            "one `file,class` a line"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shown(path)}: cannot be read as UTF-8 text") from error
    names, found = [], []
    rows = csv.reader(text.splitlines())
    try:
        for row in rows:
            if row:
                name, label = _label_row(row, f"{shown(path)}:{rows.line_num}")
                names.append(name)
                found.append(label)
    except csv.Error as error:
        raise UserError(f"{shown(path)}:{rows.line_num}: {error}") from error
    if not names:
        raise UserError(f"{shown(path)}: is empty; one `file,class` a line is wanted")
    return names, found


def _label_row(row: list[str], place: str) -> tuple[str, int]:
    if len(row) != 2 or not re.fullmatch(r"\s*[0-9]{1,9}\s*", row[1]):
        raise UserError(
            f"{place}: found {','.join(row)[:80]!r}; wanted: file,class with the class as a number "
            "from 0, and no heading"
        )
    name = PurePath(row[0].strip())
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise UserError(f"{place}: '{name}' does not lie in the folder of {LABELS_FILE}")
    if name.suffix.lower() not in _SUFFIXES:
        raise UserError(f"{place}: '{name}' is not accepted; accepted: {', '.join(_SUFFIXES)}")
    return str(name), int(row[1])
