"""Fields of the schema that have a successor, and what belongs to an operator: counts and options.

LiteRT is asked throughout: which of two fields it reads, and what it refuses.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from flatbuffers import flexbuffers

from stages.errors import StageError
from stages.importing import run
from stages.importing.tflite import larq
from stages.importing.tflite import tflite_reader as reader
from stages.importing.tflite.flatbuffer import fields_of
from stages.importing.tflite.operand_counts import MANY, OPERANDS, OPTIONS
from stages.importing.tflite.tflite_converters import CONVERTERS, FLOAT
from stages.importing.twins import tflite_writer as writer
from stages.options import ImportOptions
from tests.stages.importing.tflite.comparing import Tensor, agrees, constant
from tests.stages.importing.tflite_models import build, run_reference, single

BEHIND = 1 << 12
"""Where bytes lie that are outside the flatbuffer."""


def _product() -> bytes:
    a = Tensor((1, 8), "int8", scale=0.5, zero_point=3)
    b = Tensor((1, 8), "int8", scale=0.25, zero_point=-2)
    y = Tensor((1, 8), "int8", scale=0.5, zero_point=1)
    return single("MUL", [a, b], [y], "MulOptions")


def _with_codes(source: bytes, old: int, new: int) -> bytes:
    """A file with one operator code, whose two numbers are replaced."""
    raw = bytearray(source)
    table = tflite.Model.GetRootAs(source).OperatorCodes(0)._tab
    for slot, form, number in ((0, "b", old), (3, "i", new)):
        struct.pack_into(f"<{form}", raw, table.Pos + table.Offset(4 + 2 * slot), number)
    return bytes(raw)


@pytest.mark.parametrize(("old", "new"), [(18, 18), (0, 18), (18, 0), (18, 3), (-5, 18)])
def test_the_larger_of_both_operator_numbers_counts(old: int, new: int) -> None:
    """0 is what an absent field reads as; 3 would be a convolution."""
    source = _with_codes(_product(), old, new)
    assert [each.kind for each in reader.read(source).operators] == ["MUL"]
    values = np.arange(-4, 4, dtype=np.int8).reshape(1, 8) * 16
    agrees(source, values, values[:, ::-1].copy())


def _buffer_of(**members: Any) -> Any:
    """A writer of buffers that lie behind the flatbuffer, with or without bytes inside it."""

    def write(b: Any, tensor: Tensor | None) -> Any:
        if tensor is None or tensor.data is None:
            return writer._table(b, "Buffer", [])
        inside = [("Data", b.CreateNumpyVector(np.full(16, 9, np.uint8)))] * members["inside"]
        return writer._table(b, "Buffer", [*inside, ("Offset", BEHIND), ("Size", 16)])

    return write


@pytest.mark.parametrize("inside", [False, True])
def test_bytes_of_a_buffer_may_lie_behind_the_flatbuffer(
    inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes inside it come first."""
    monkeypatch.setattr(writer, "_buffer", _buffer_of(inside=inside))
    x, y = Tensor((4,), "float32"), Tensor((4,), "float32")
    source = single("ADD", [x, constant(np.zeros(4), "float32")], [y], "AddOptions")
    values = np.arange(4, dtype=np.float32)
    whole = source.ljust(BEHIND, b"\0") + values.tobytes()
    (found,) = agrees(whole, values)
    assert np.array_equal(found, values * 2) != inside
    if not inside:
        with pytest.raises(StageError, match="the bytes of a buffer lie outside the file"):
            run(source=whole[:-1], options=ImportOptions())


def test_custom_options_may_lie_behind_the_flatbuffer(monkeypatch: pytest.MonkeyPatch) -> None:
    options = writer.flexible(channels_in=64)
    table = writer._table

    def behind(b: Any, name: str, members: Sequence[tuple[str, Any]]) -> Any:
        if name == "Operator":
            members = [
                *(each for each in members if each[0] != "CustomOptions"),
                ("LargeCustomOptionsOffset", BEHIND),
                ("LargeCustomOptionsSize", len(options)),
            ]
        return table(b, name, members)

    monkeypatch.setattr(writer, "_table", behind)
    x, y = Tensor((1, 64), "float32"), Tensor((1, 2), "int32")
    source = single("LceQuantize", [x], [y], custom_options=b"elsewhere").ljust(BEHIND, b"\0")
    (found,) = reader.read(source + options).operators
    assert flexbuffers.Loads(found.custom_options) == {"channels_in": 64}
    assert larq.with_options(found, ("channels_in",)).option("channels_in") == 64
    with pytest.raises(StageError, match="custom options lie outside the file"):
        reader.read(source + options[:-1])


def test_every_imported_operator_has_its_count_of_operands() -> None:
    assert OPERANDS.keys() == {*CONVERTERS, *FLOAT}


@pytest.mark.parametrize("kind", [each for each in OPERANDS if each in reader.BUILTINS.values()])
def test_litert_refuses_more_operands(kind: str) -> None:
    count = OPERANDS[kind][1] + 1
    if count > MANY:
        return
    x = [Tensor((1,), "float32", name=f"x{i}") for i in range(count)]
    y = Tensor((1,), "float32", name="y")
    source = single(kind, x, [y], version=2 if kind == "BROADCAST_TO" else 1)
    with pytest.raises(StageError, match=f"has {count} operands; it takes"):
        run(source=source, options=ImportOptions())
    with pytest.raises((RuntimeError, ValueError)):
        kernels = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
        run_reference(source, *[np.ones(1, np.float32)] * count, kernels=kernels)


def test_options_of_another_operators_table_are_not_read() -> None:
    """SUB's table says RELU; ADD has no options then."""
    x, y = Tensor((6,), "int8", scale=0.5, name="x"), Tensor((6,), "int8", scale=0.5, name="y")
    values = np.arange(-3, 3, dtype=np.int8)
    for table, low in (("SubOptions", -6), ("AddOptions", 0)):
        source = single("ADD", [x, x], [y], table, fused_activation_function=1)
        (found,) = agrees(source, values)
        assert found.min() == low


def test_operators_without_options_have_zeros() -> None:
    x, y = (Tensor((1, 4), "float32", name=name) for name in "xy")
    agrees(single("SOFTMAX", [x], [y]), np.arange(4, dtype=np.float32).reshape(1, 4))
    wide = [Tensor((4,), "int16", scale=scale) for scale in (1 / 16, 1 / 16, 1 / 8)]
    values = np.arange(4, dtype=np.int16) * 1001
    agrees(single("ADD", wide[:2], wide[2:]), values, values[::-1].copy())


IGNORED = {
    "depth_multiplier": "follows from the shapes",
    "num_splits": "of SPLIT_V follows from its outputs",
}
"""Options that LiteRT does not go by either."""


def test_every_option_of_an_imported_operator_is_read() -> None:
    folder = Path(reader.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    for kind, table in OPTIONS.items():
        for name, _, _ in fields_of(getattr(tflite, table)):
            spelled = re.sub(r"_mask$|_[hw]_factor$", "", name)
            assert spelled in text or name in IGNORED, f"{kind}: {name}"


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_gelu_by_tanh_is_not_taken_for_the_other(dtype: str) -> None:
    scale = {} if dtype == "float32" else {"scale": 0.02}
    x, y = (Tensor((256,), dtype, **scale, name=name) for name in "xy")  # type: ignore[arg-type]
    source = single("GELU", [x], [y], "GeluOptions", approximate=True)
    if dtype == "int8":
        agrees(source, np.arange(-128, 128, dtype=np.int8))
        return
    with pytest.raises(StageError, match="approximates by tanh"):
        run(source=source, options=ImportOptions())


WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "the type of positions": (
        lambda: single(
            "ARG_MAX",
            [Tensor((6,), "float32"), constant(0, "int32")],
            [Tensor((), "int64")],
            "ArgMaxOptions",
            output_type=tflite.TensorType.INT32,
        ),
        "gives int32, but the file states int64",
    ),
    "the type of a shape": (
        lambda: single(
            "SHAPE", [Tensor((6,), "float32")], [Tensor((1,), "int32")], "ShapeOptions", out_type=0
        ),
        "gives the type 0",
    ),
    "an activation of a norm": (
        lambda: single(
            "L2_NORMALIZATION",
            [Tensor((1, 6), "float32")],
            [Tensor((1, 6), "float32")],
            "L2NormOptions",
            fused_activation_function=1,
        ),
        "has a fused activation",
    ),
    "values that are packed": (
        lambda: single(
            "PACK",
            [Tensor((6,), "float32")],
            [Tensor((1, 6), "float32")],
            "PackOptions",
            values_count=2,
        ),
        "packs 2 values",
    ),
    "parts that are unpacked": (
        lambda: single(
            "UNPACK",
            [Tensor((1, 6), "float32")],
            [Tensor((6,), "float32")],
            "UnpackOptions",
            num=2,
        ),
        "unpacks 2 of 1 parts",
    ),
}
"""Options that contradict their operator, which LiteRT goes by all the same."""


@pytest.mark.parametrize("name", WRONG)
def test_options_that_contradict_are_refused(name: str) -> None:
    made, message = WRONG[name]
    with pytest.raises(StageError, match=message):
        run(source=made(), options=ImportOptions())


def test_a_custom_operator_is_named_whatever_it_reads() -> None:
    """It may name scratch memory as an operand; a builtin may not."""
    x, scratch, y, z = (Tensor((4,), "int8", scale=0.5, name=name) for name in ("x", "s", "y", "z"))
    custom = writer.Operation("XC_conv2d_v2", [x, scratch], [y])
    source = build([custom, writer.Operation("ADD", [y, y], [z], "AddOptions")], [x], [z])
    with pytest.raises(StageError, match=r"XC_conv2d_v2 .*is a custom operator") as error:
        run(source=source, options=ImportOptions())
    assert "damaged" not in str(error.value)
    builtin = build([writer.Operation("ADD", [x, scratch], [y], "AddOptions")], [x], [y])
    with pytest.raises(StageError, match=r"damaged.*no operator before it computes"):
        run(source=builtin, options=ImportOptions())


@pytest.mark.parametrize(("axis", "zero_points"), [(99, [0]), (-1, [0]), (2, [0]), (0, [])])
def test_quantization_that_litert_refuses(
    axis: int, zero_points: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a tensor with one scale, which has no use for an axis."""

    def write(b: Any, tensor: Tensor) -> Any:
        members = [
            ("Scale", b.CreateNumpyVector(np.array([tensor.scale], np.float32))),
            ("ZeroPoint", b.CreateNumpyVector(np.array(zero_points, np.int64))),
            ("QuantizedDimension", axis),
        ]
        return writer._table(b, "QuantizationParameters", members)

    monkeypatch.setattr(writer, "_quantization", write)
    x, y = (Tensor((1, 4), "int8", scale=0.5, name=name) for name in "xy")
    source = single("ADD", [x, x], [y], "AddOptions")
    with pytest.raises(StageError, match=r"along axis|0 zero points"):
        run(source=source, options=ImportOptions())
    with pytest.raises((RuntimeError, ValueError)):
        run_reference(source, np.ones((1, 4), np.int8))
