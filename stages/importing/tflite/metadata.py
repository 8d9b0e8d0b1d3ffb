"""What a TensorFlow Lite file says of its inputs and outputs in the metadata of tflite-support.

The buffer `TFLITE_METADATA` holds a flatbuffer of its own (identifier M001, schema:
tflite-support, metadata_schema.fbs); files of labels stand in a ZIP archive behind the model. It is
a hint for people: what is damaged, too large or contradicts the model counts as not said.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import tflite
from flatbuffers import number_types
from flatbuffers.table import Table as Flat

from stages.importing.tflite.flatbuffer import DAMAGED
from stages.kinds import Table

NAME = b"TFLITE_METADATA"
IDENTIFIER = b"M001"
MOST_BYTES = 1 << 20
"""Size of the metadata, and of a file of labels, at most."""
MOST_ITEMS = 256
"""Elements of a vector that are looked at."""
MOST_CHARACTERS = 200
"""Characters of a label that are kept, at most."""

_SUBGRAPHS = 3
_INPUTS, _OUTPUTS = 2, 3
_CONTENT, _UNITS, _FILES = 3, 4, 6
_FILE_NAME, _FILE_KIND = 0, 2
_AXIS_LABELS = 2
_IMAGE, _NORMALIZATION = 2, 1
_COLORS = {1: "rgb", 2: "gray"}
"""Positions of fields in their tables, and numbers of the schema's enumerations and unions."""


def read(source: bytes) -> tuple[list[Table], list[Table]]:
    """What is said of each input and of each output, in the graph's order; empty without metadata.

    Of an input `normalization` (`mean` and `std` of (pixel - mean) / std, lists of 1 or more
    floats) and `color` (rgb, gray); of an output `labels`, a list of texts.
    """
    try:
        told = _metadata(source)
        subgraphs = [] if told is None else _tables(told, _SUBGRAPHS)
        if not subgraphs:
            return [], []
        inputs = [dict(_of_input(each)) for each in _tables(subgraphs[0], _INPUTS)]
        files = [list(_label_files(each)) for each in _tables(subgraphs[0], _OUTPUTS)]
        return inputs, [dict(_of_output(source, names)) for names in files]
    except DAMAGED:
        return [], []


def _metadata(source: bytes) -> Flat | None:
    model = tflite.Model.GetRootAs(source)
    for index in range(min(model.MetadataLength(), MOST_ITEMS)):
        entry = model.Metadata(index)
        if entry is None or entry.Name() != NAME or entry.Buffer() >= model.BuffersLength():
            continue
        buffer = model.Buffers(entry.Buffer())
        if buffer is None or not 8 <= buffer.DataLength() <= MOST_BYTES:
            continue
        data = buffer.DataAsNumpy().tobytes()
        if data[4:8] == IDENTIFIER:
            return Flat(bytearray(data), struct.unpack_from("<I", data)[0])
    return None


def _of_input(tensor: Flat) -> Iterator[tuple[str, Any]]:
    content = _table(tensor, _CONTENT)
    if content is not None and (image := _member(content, 0, _IMAGE)) is not None:
        color = _COLORS.get(_byte(image, 0))
        if color is not None:
            yield "color", color
    for unit in _tables(tensor, _UNITS):
        options = _member(unit, 0, _NORMALIZATION)
        if options is not None:
            mean, std = _floats(options, 0), _floats(options, 1)
            if mean and std and all(map(math.isfinite, (*mean, *std))) and min(std) > 0:
                yield "normalization", {"mean": mean, "std": std}


def _label_files(tensor: Flat) -> Iterator[str]:
    for file in _tables(tensor, _FILES):
        at = file.Offset(_offset(_FILE_NAME))
        if at and _byte(file, _FILE_KIND) == _AXIS_LABELS:
            yield file.String(at + file.Pos).decode()


def _of_output(source: bytes, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if names and (labels := _labels(source, names[0])):
        yield "labels", labels


def _labels(source: bytes, name: str) -> list[str]:
    """The lines of a file in the archive behind the model; none if it is not plain text."""
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as archive:
            entry = archive.getinfo(name)
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                return []
            with archive.open(entry) as file:
                data = file.read(MOST_BYTES + 1)
        text = data.decode() if len(data) <= MOST_BYTES else ""
    except (*DAMAGED, OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error):
        return []
    lines = [_printable(line) for line in text.rstrip().split("\n")] if text.strip() else []
    return [line or "?" for line in lines]


def _printable(line: str) -> str:
    """One line of text that a terminal obeys in nothing."""
    shown = "".join(c if c.isprintable() else " " for c in line[:MOST_CHARACTERS])
    return " ".join(shown.split())


def _offset(field: int) -> int:
    return 4 + 2 * field


def _table(flat: Flat, field: int) -> Flat | None:
    at = flat.Offset(_offset(field))
    return Flat(flat.Bytes, flat.Indirect(at + flat.Pos)) if at else None


def _tables(flat: Flat, field: int) -> list[Flat]:
    at = flat.Offset(_offset(field))
    if not at:
        return []
    start, count = flat.Vector(at), min(flat.VectorLen(at), MOST_ITEMS)
    return [Flat(flat.Bytes, flat.Indirect(start + 4 * index)) for index in range(count)]


def _member(flat: Flat, field: int, kind: int) -> Flat | None:
    """The table of a union, if it is of that kind; its kind stands in the field before."""
    return _table(flat, field + 1) if _byte(flat, field) == kind else None


def _byte(flat: Flat, field: int) -> int:
    at = flat.Offset(_offset(field))
    return int(flat.Get(number_types.Uint8Flags, at + flat.Pos)) if at else 0


def _floats(flat: Flat, field: int) -> list[float]:
    at = flat.Offset(_offset(field))
    if not at:
        return []
    start, count = flat.Vector(at), min(flat.VectorLen(at), MOST_ITEMS)
    return [float(flat.Get(number_types.Float32Flags, start + 4 * i)) for i in range(count)]
