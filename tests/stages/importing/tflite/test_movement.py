"""Operators that move values, and folded shapes, against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing import run
from stages.options import ImportOptions
from tests.stages.importing.tflite.comparing import (
    Tensor,
    agrees,
    compiled,
    constant,
    imported,
    thorough,
)
from tests.stages.importing.tflite_models import Operation, build, run_reference, single

Array = np.ndarray[Any, Any]
DTYPES = st.sampled_from(["int8", "uint8", "int16", "int32", "float32"])


def numbered(shape: Sequence[int], dtype: str = "int32") -> Array:
    """A tensor whose values tell where they come from."""
    return np.arange(np.prod(shape), dtype=np.int64).reshape(tuple(shape)).astype(dtype)


def vector(*values: int) -> Tensor:
    return constant(np.array(values, np.int32))


@st.composite
def strided(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A STRIDED_SLICE with any bounds and masks that leaves something."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    count = draw(st.integers(1, len(shape)))
    bound = st.integers(-6, 6)
    begin, end = ([draw(bound) for _ in range(count)] for _ in range(2))
    strides = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in range(count)]
    mask = st.integers(0, (1 << count) - 1)
    masks: dict[str, Any] = {
        "begin_mask": draw(mask),
        "end_mask": draw(mask),
        "shrink_axis_mask": draw(mask),
    }
    kind = draw(st.integers(0, 2))
    if kind:
        masks["ellipsis_mask" if kind == 1 else "new_axis_mask"] = 1 << draw(
            st.integers(0, count - 1)
        )
    for i in range(count):
        if masks["shrink_axis_mask"] >> i & 1:
            strides[i] = 1
            masks["begin_mask"] &= ~(1 << i)
    dtype = draw(DTYPES)
    data, output = Tensor(shape, dtype), Tensor((), dtype)
    operands = [data, *(vector(*values) for values in (begin, end, strides))]
    source = single("STRIDED_SLICE", operands, [output], "StridedSliceOptions", **masks)
    return source, numbered(shape, dtype)


@thorough
@given(case=strided())
def test_strided_slice(case: tuple[bytes, Array]) -> None:
    try:
        expected = run_reference(*case)[0]
    except RuntimeError:
        assume(False)
    assume(expected.size)
    try:
        found = imported(*case)[0]
    except StageError as error:
        # LiteRT reads a position outside an axis that is dropped as if it were inside.
        assert "takes position" in str(error)
        return
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


DATA = Tensor((2, 3, 4), "int8", scale=0.5)
LIKE: dict[str, Any] = {"dtype": "int8", "scale": 0.5}
MOVES: dict[str, tuple[str, list[Any], list[Any], str, dict[str, Any]]] = {
    "reshape": ("RESHAPE", [DATA, vector(4, -1)], [(4, 6)], "ReshapeOptions", {}),
    "reshape by option": ("RESHAPE", [DATA], [(6, 4)], "ReshapeOptions", {"new_shape": [6, 4]}),
    "transpose": ("TRANSPOSE", [DATA, vector(2, 0, 1)], [(4, 2, 3)], "TransposeOptions", {}),
    "slice": ("SLICE", [DATA, vector(0, 1, 2), vector(2, -1, 1)], [(2, 2, 1)], "SliceOptions", {}),
    "expand": ("EXPAND_DIMS", [DATA, vector(-1)], [(2, 3, 4, 1)], "ExpandDimsOptions", {}),
    "split": ("SPLIT", [vector(2), DATA], [(2, 3, 2)] * 2, "SplitOptions", {"num_splits": 2}),
    "split_v": (
        "SPLIT_V",
        [DATA, vector(1, -1), vector(1)],
        [(2, 1, 4), (2, 2, 4)],
        "SplitVOptions",
        {"num_splits": 2},
    ),
    "unpack": ("UNPACK", [DATA], [(2, 4)] * 3, "UnpackOptions", {"num": 3, "axis": 1}),
    "gather": ("GATHER", [DATA, vector(2, 0)], [(2, 2, 4)], "GatherOptions", {"axis": 1}),
    "tile": ("TILE", [DATA, vector(2, 1, 3)], [(4, 3, 12)], "TileOptions", {}),
}


def _file(name: str) -> bytes:
    op, operands, shapes, table, options = MOVES[name]
    outputs = [Tensor(shape, **LIKE) for shape in shapes]
    version = 1 if op in ("RESHAPE", "EXPAND_DIMS") else 2
    return single(op, operands, outputs, table, version=version, **options)


@pytest.mark.parametrize("name", MOVES)
def test_moving(name: str) -> None:
    agrees(_file(name), numbered((2, 3, 4), "int8"))


@pytest.mark.parametrize("name", [n for n, move in MOVES.items() if len(move[2]) == 1])
def test_moving_compiled(name: str) -> None:
    source, x = _file(name), numbered((2, 3, 4), "int8")
    assert np.array_equal(compiled(source, x), imported(source, x)[0])


@pytest.mark.parametrize(("batch", "along"), [(0, 1), (1, 0), (2, 0)])
def test_reverse_sequence(batch: int, along: int) -> None:
    shape = (3, 2, 4)
    lengths = constant(np.array([2, 1, 3, 0][: shape[batch]], np.int32))
    data, output = Tensor(shape, "int32"), Tensor(shape, "int32")
    options: dict[str, Any] = {"seq_dim": along, "batch_dim": batch}
    operands = [data, lengths if along == 0 else constant(np.array([2, 1, 0], np.int32))]
    source = single("REVERSE_SEQUENCE", operands, [output], "ReverseSequenceOptions", **options)
    agrees(source, numbered(shape))


def test_squeeze() -> None:
    data = Tensor((1, 3, 1, 2), "int8", scale=0.5)
    for dims, shape in ([], (3, 2)), ([2], (1, 3, 2)), ([-2, 0], (3, 2)):
        output = Tensor(shape, **LIKE)
        source = single("SQUEEZE", [data], [output], "SqueezeOptions", squeeze_dims=dims)
        agrees(source, numbered((1, 3, 1, 2), "int8"))


def test_pack() -> None:
    data = [Tensor((2, 3), "int8", scale=0.5) for _ in range(2)]
    for axis, shape in (0, (2, 2, 3)), (-1, (2, 3, 2)):
        output = Tensor(shape, **LIKE)
        source = single("PACK", data, [output], "PackOptions", axis=axis, values_count=2)
        agrees(source, numbered((2, 3), "int8"), numbered((2, 3), "int8") + np.int8(10))


@pytest.mark.parametrize(
    ("first", "second"),
    [("float32", "int32"), ("int8", "float32"), ("int32", "int8"), ("int16", "int32")],
)
def test_cast(first: str, second: str) -> None:
    source = single("CAST", [Tensor((6,), first)], [Tensor((6,), second)], "CastOptions")
    agrees(source, np.array([-2.5, -1, 0, 1.5, 2.5, 99]).astype(first))


def dynamic_batch(batch: int, *, is_open: bool = False) -> bytes:
    """SHAPE, STRIDED_SLICE, PACK, RESHAPE: what converters write for a batch left open."""
    signature = (-1, 2, 3) if is_open else None
    x = Tensor((batch, 2, 3), "int8", scale=0.5, signature=signature)
    y = Tensor((batch, 6), "int8", scale=0.5)
    shape, first = Tensor((3,), "int32"), Tensor((), "int32")
    packed, rest = Tensor((2,), "int32"), constant(np.int32(6))
    one, zero = vector(1), vector(0)
    slicing = {"shrink_axis_mask": 1}
    operations = [
        Operation("SHAPE", [x], [shape], "ShapeOptions", {"out_type": 2}),
        Operation(
            "STRIDED_SLICE", [shape, zero, one, one], [first], "StridedSliceOptions", slicing
        ),
        Operation("PACK", [first, rest], [packed], "PackOptions", {"values_count": 2}),
        Operation("RESHAPE", [x, packed], [y], "ReshapeOptions"),
    ]
    return build(operations, [x], [y])


def test_the_dynamic_batch_idiom_is_folded() -> None:
    source = dynamic_batch(2)
    agrees(source, numbered((2, 2, 3), "int8"))
    model = run(source=source, options=ImportOptions())
    assert [binding.value.op.name for binding in bindings_of(model.module["main"])[:-1]] == [
        "relax.reshape"
    ]
    assert not model.params


def test_folded_arithmetic() -> None:
    """Shapes that are computed: twice the first extent, and what then remains."""
    x, y = Tensor((4, 6), "float32"), Tensor((8, 3), "float32")
    shape, double, half = Tensor((2,), "int32"), Tensor((2,), "int32"), vector(2, 0)
    moved = Tensor((2,), "int32")
    operations = [
        Operation("SHAPE", [x], [shape], "ShapeOptions", {"out_type": 2}),
        Operation("MUL", [shape, half], [double], "MulOptions"),
        Operation("ADD", [double, vector(0, -1)], [moved], "AddOptions"),
        Operation("RESHAPE", [x, moved], [y], "ReshapeOptions"),
    ]
    agrees(build(operations, [x], [y]), numbered((4, 6), "float32"))


def test_a_batch_of_the_recipe() -> None:
    """Shapes are inferred from the inputs, so that a folded shape follows the batch."""
    source = dynamic_batch(1, is_open=True)
    model = run(source=source, options=ImportOptions(inputs={"t0": (3, 2, 3)}))
    x = numbered((3, 2, 3), "int8")
    (found,) = interpret.run(model, {"t0": x}).values()
    assert np.array_equal(found, x.reshape(3, 6))


def test_a_shape_that_the_file_fixes_is_kept() -> None:
    with pytest.raises(StageError, match=r"given the shape \[3, 2, 3\], but the file says"):
        run(source=dynamic_batch(1), options=ImportOptions(inputs={"t0": (3, 2, 3)}))
    with pytest.raises(StageError, match="no input 'x'"):
        run(source=dynamic_batch(1), options=ImportOptions(inputs={"x": (3, 2, 3)}))


BAD: dict[str, tuple[str, list[Any], str, dict[str, Any], str]] = {
    "a shape of other size": ("RESHAPE", [DATA, vector(5, -1)], "ReshapeOptions", {}, "batch of 1"),
    "a negative extent": ("RESHAPE", [DATA, vector(-2, -12)], "ReshapeOptions", {}, "the shape"),
    "a missing axis": ("GATHER", [DATA, vector(0)], "GatherOptions", {"axis": 3}, "axis 3"),
    "indices outside": ("GATHER", [DATA, vector(3)], "GatherOptions", {"axis": 1}, "outside"),
    "no permutation": ("TRANSPOSE", [DATA, vector(0, 0, 1)], "TransposeOptions", {}, "orders"),
    "no split": ("SPLIT", [vector(1), DATA], "SplitOptions", {"num_splits": 2}, "2 parts"),
    "a slice outside": (
        "SLICE",
        [DATA, vector(0, 2, 0), vector(1, 2, 1)],
        "SliceOptions",
        {},
        "takes",
    ),
    "a stride of 0": (
        "STRIDED_SLICE",
        [DATA, vector(0), vector(1), vector(0)],
        "StridedSliceOptions",
        {},
        "stride of 0",
    ),
    "too few operands": ("TRANSPOSE", [DATA], "TransposeOptions", {}, "has 1 operand; it takes 2"),
    "counts below 1": ("TILE", [DATA, vector(0, 1, 1)], "TileOptions", {}, "repeats"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_one_error(name: str) -> None:
    op, operands, table, options, message = BAD[name]
    source = single(op, operands, [Tensor((1,), **LIKE)] * 1, table, **options)
    with pytest.raises(StageError, match=message):
        run(source=source, options=ImportOptions())
