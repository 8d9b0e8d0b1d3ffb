"""Metadata of tflite-support: what they say of images and classes, and what they cannot break."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.recipe.load import load_recipe
from stages import importing
from stages.importing.tflite import metadata
from tests.stages.importing.tflite_models import Tensor, single

SHAPE = (1, 8, 8, 3)
LABELS = "labels.txt"


def table(b: Any, fields: dict[int, tuple[str, Any]]) -> Any:
    """A table of a schema that no package has: by the positions of its fields."""
    b.StartObject(1 + max(fields))
    for at, (kind, value) in fields.items():
        if kind == "table":
            b.PrependUOffsetTRelativeSlot(at, value, 0)
        else:
            b.PrependUint8Slot(at, value, 0)
    return b.EndObject()


def vector(b: Any, items: Sequence[Any]) -> Any:
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return b.EndVector()


def floats(b: Any, values: Sequence[float]) -> Any:
    b.StartVector(4, len(values), 4)
    for value in reversed(values):
        b.PrependFloat32(value)
    return b.EndVector()


def told(mean: Sequence[float], std: Sequence[float], file: str = LABELS) -> bytes:
    """Metadata of one RGB input and of one output with a file of labels."""
    b = flatbuffers.Builder(256)
    options = table(b, {0: ("table", floats(b, mean)), 1: ("table", floats(b, std))})
    unit = table(b, {0: ("byte", 1), 1: ("table", options)})
    content = table(b, {0: ("byte", 2), 1: ("table", table(b, {0: ("byte", 1)}))})
    given = table(b, {3: ("table", content), 4: ("table", vector(b, [unit]))})
    named = table(b, {0: ("table", b.CreateString(file)), 2: ("byte", 2)})
    got = table(b, {6: ("table", vector(b, [named]))})
    parts = {2: ("table", vector(b, [given])), 3: ("table", vector(b, [got]))}
    b.Finish(table(b, {3: ("table", vector(b, [table(b, parts)]))}), file_identifier=b"M001")
    return bytes(b.Output())


def model(said: bytes | None, labels: bytes | None = None, dtype: str = "float32") -> bytes:
    """A model of 192 pixels that are 192 classes, with a file of labels behind it."""
    scale = None if dtype == "float32" else 1 / 128
    given, got = (Tensor(shape, dtype, scale, 128 if scale else 0) for shape in (SHAPE, (1, 192)))
    source = single("RESHAPE", [given], [got], "ReshapeOptions", new_shape=[1, 192], metadata=said)
    if labels is None:
        return source
    file = io.BytesIO(source)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(LABELS, labels, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def inputs_of(source: bytes, folder: Path) -> Any:
    (folder / "net.tflite").write_bytes(source)
    found = importing.describe(source=source)
    assert not found["unsupported"]
    (folder / "net.yaml").write_text(importing.starter_recipe(found, "net.tflite", "net"))
    recipe = load_recipe(str(folder / "net.yaml")).recipe
    return next(iter(recipe.inputs.values()))


def test_pixels_are_normalized_as_the_file_says(tmp_path: Path) -> None:
    spec = inputs_of(model(told([127.5], [127.5])), tmp_path)
    assert (spec.scale, spec.mean, spec.std, spec.color) == (1, (127.5,) * 3, (127.5,) * 3, "rgb")
    spec = inputs_of(model(told([1, 2, 3e-7], [4, 5, 6])), tmp_path)
    assert (spec.mean, spec.std) == (pytest.approx((1, 2, 3e-7)), (4, 5, 6))


def test_stored_pixels_need_nothing_where_both_steps_undo_each_other(tmp_path: Path) -> None:
    assert inputs_of(model(told([127.5], [127.5]), dtype="uint8"), tmp_path).mean == ()
    assert inputs_of(model(told([0], [255]), dtype="uint8"), tmp_path).std == (255,) * 3


def test_labels_are_lines_of_plain_text() -> None:
    lines = [f"class {n}" for n in range(191)] + ["\x1b[31mred\u2028  é"]
    source = model(told([0], [1]), "\n".join(lines).encode() + b"\n\n")
    (output,) = importing.describe(source=source)["outputs"]
    assert output["labels"] == [*lines[:-1], "[31mred é"]


@pytest.mark.parametrize(
    "source",
    [
        model(told([float("nan")], [1]), b"a\n"),
        model(told([1], [0]), b"\xff\xfe"),
        model(told([], [])),
        model(told([1, 2], [3]), b"a\n" * metadata.MOST_BYTES),
        model(told([1], [-1], "../../labels.txt"), b"a\n"),
        model(told([1e38] * 7, [1e-38] * 7), b""),
        model(b"M001M001M001"),
        model(b""),
    ],
)
def test_what_is_wrong_counts_as_not_said(source: bytes, tmp_path: Path) -> None:
    assert inputs_of(source, tmp_path).mean == ()
    assert len(importing.describe(source=source)["outputs"][0].get("labels", [""])) == 1


@given(st.data())
def test_no_flipped_byte_is_more_than_a_hint_lost(data: st.DataObject) -> None:
    said = bytearray(told([127.5], [127.5]))
    for _ in range(data.draw(st.integers(1, 4))):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    inputs, outputs = metadata.read(model(bytes(said), b"a\nb\n"))
    assert isinstance(inputs, list) and isinstance(outputs, list)
