"""Files that break the format's rules: one error each, whatever is wrong with them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tflite
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import StageError
from stages.importing import describe, run
from stages.importing.tflite.tflite_reader import read
from stages.options import ImportOptions
from tests.stages.importing.tflite.comparing import Tensor, constant
from tests.stages.importing.tflite_models import Operation, build, single


def small() -> bytes:
    """A convolution, a sum and a change of shape."""
    x = Tensor((1, 4, 4, 2), "int8", scale=0.5, zero_point=3, name="x")
    weights = constant(np.ones((3, 1, 1, 2), np.int8), scale=[0.1, 0.2, 0.3])
    bias = constant(np.arange(3, dtype=np.int32), scale=[0.05, 0.1, 0.15])
    y = Tensor((1, 4, 4, 3), "int8", scale=0.25, name="conv")
    z = Tensor((1, 4, 4, 3), "int8", scale=0.5, name="sum")
    flat = Tensor((1, 48), "int8", scale=0.5, name="flat")
    operations = [
        Operation(
            "CONV_2D", [x, weights, bias], [y], "Conv2DOptions", {"stride_h": 1, "stride_w": 1}
        ),
        Operation("ADD", [y, y], [z], "AddOptions"),
        Operation("RESHAPE", [z, constant(np.array([1, 48], np.int32))], [flat]),
    ]
    return build(operations, [x], [flat])


SMALL = small()


def _model(source: bytes | bytearray) -> Any:
    return tflite.Model.GetRootAs(source)


def _field(table: Any, slot: int) -> int:
    """Where a field of a table lies."""
    offset = table._tab.Offset(4 + 2 * slot)
    assert offset
    return int(offset + table._tab.Pos)


def _vector(table: Any, slot: int) -> int:
    """Where a vector's elements lie; its length is in the four bytes before."""
    return int(table._tab.Vector(table._tab.Offset(4 + 2 * slot)))


def _tensor(model: Any, name: bytes) -> Any:
    graph = model.Subgraphs(0)
    found = (graph.Tensors(index) for index in range(graph.TensorsLength()))
    return next(tensor for tensor in found if tensor.Name() == name)


def _put(kind: str, where: Callable[[Any], int], value: float) -> bytes:
    source = bytearray(SMALL)
    struct.pack_into(f"<{kind}", source, where(_model(SMALL)), value)
    return bytes(source)


def _operator(model: Any, index: int) -> Any:
    return model.Subgraphs(0).Operators(index)


def _scale(model: Any) -> int:
    return _vector(_tensor(model, b"x").Quantization(), 2)


def _weights(model: Any) -> Any:
    return model.Subgraphs(0).Tensors(int(_operator(model, 0).Inputs(1)))


DAMAGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a zero scale": (lambda: _put("f", _scale, 0.0), "scale 0.0"),
    "a negative scale": (lambda: _put("f", _scale, -1.0), "scale -1.0"),
    "a scale that is NaN": (lambda: _put("f", _scale, np.nan), "scale nan"),
    "an infinite scale": (lambda: _put("f", _scale, np.inf), "scale inf"),
    "a huge scale": (lambda: _put("f", _scale, 3e38), r"scale 3.*e\+38; .*at most 1e\+30"),
    "a zero point outside": (
        lambda: _put("q", lambda m: _vector(_tensor(m, b"x").Quantization(), 3), 200),
        "zero point 200",
    ),
    "scales along a missing axis": (
        lambda: _put("f", lambda m: _vector(_weights(m), 0), 0),
        "scales along axis",
    ),
    "an unknown tensor": (
        lambda: _put("i", lambda m: _vector(_operator(m, 1), 1), 99),
        "refer to tensor 99",
    ),
    "a negative tensor": (
        lambda: _put("i", lambda m: _vector(_operator(m, 1), 1), -7),
        "refer to tensor -7",
    ),
    "an unknown operator code": (
        lambda: _put("I", lambda m: _field(_operator(m, 2), 0), 17),
        "has code 17",
    ),
    "an unknown buffer": (
        lambda: _put("I", lambda m: _field(_weights(m), 2), 1000),
        "buffer 1000",
    ),
    "a buffer of other size": (
        lambda: _put("i", lambda m: _vector(_weights(m), 0) + 4, 5),
        "its buffer has 6",
    ),
    "a negative extent": (
        lambda: _put("i", lambda m: _vector(_tensor(m, b"x"), 0), -4),
        "at most 8",
    ),
    "an absurd shape": (
        lambda: _put("i", lambda m: _vector(_tensor(m, b"x"), 0), 1 << 30),
        "elements are accepted",
    ),
    "an absurd rank": (
        lambda: _put("I", lambda m: _vector(_tensor(m, b"x"), 0) - 4, 200),
        "damaged",
    ),
    "a vector longer than the file": (
        lambda: _put("I", lambda m: _vector(m.Subgraphs(0), 0) - 4, 1 << 31),
        "2,147,483,648 tensors",
    ),
    "no subgraph": (lambda: _put("I", lambda m: _vector(m, 2) - 4, 0), "no subgraph"),
    "a cycle": (
        lambda: _put(
            "i",
            lambda m: _vector(_operator(m, 1), 1),
            int(_operator(_model(SMALL), 2).Outputs(0)),
        ),
        "no operator before it computes",
    ),
    "a tensor computed twice": (
        lambda: _put(
            "i",
            lambda m: _vector(_operator(m, 1), 2),
            int(_operator(_model(SMALL), 0).Outputs(0)),
        ),
        "computed twice",
    ),
    "a constant computed": (
        lambda: _put(
            "i",
            lambda m: _vector(_operator(m, 1), 2),
            int(_operator(_model(SMALL), 0).Inputs(1)),
        ),
        "or a constant",
    ),
    "a constant input": (
        lambda: _put(
            "i",
            lambda m: _vector(m.Subgraphs(0), 1),
            int(_operator(_model(SMALL), 0).Inputs(1)),
        ),
        "is a constant",
    ),
    "nothing": (lambda: SMALL[:8], "cannot be read"),
    "another format": (lambda: b"\x00" * 100, "no TensorFlow Lite file"),
}


def test_the_file_is_sound() -> None:
    graph = read(SMALL)
    assert [operator.kind for operator in graph.operators] == ["CONV_2D", "ADD", "RESHAPE"]
    assert [operator.layer for operator in graph.operators] == ["conv", "sum", "flat"]
    assert graph.operators[0].options["stride_h"] == 1
    run(source=SMALL, options=ImportOptions())


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_error(name: str) -> None:
    source, message = DAMAGED[name][0](), DAMAGED[name][1]
    with pytest.raises(StageError, match=message):
        read(source)


def test_constants_are_views_of_the_file() -> None:
    graph = read(SMALL)
    (weights,) = [t for t in graph.tensors if t.dtype == "int8" and t.data is not None]
    assert weights.data is not None
    assert not weights.data.flags.owndata
    assert not weights.data.flags.writeable


@settings(max_examples=300)
@given(data=st.data())
def test_flipped_and_cut_files_never_crash(data: st.DataObject) -> None:
    """Either the file is still sound, or there is one error."""
    source = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(8, len(source) - 1))
        source[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(8, len(source))))
    try:
        describe(source=bytes(source[:cut]))
        run(source=bytes(source[:cut]), options=ImportOptions())
    except StageError:
        pass


def test_everything_unsupported_is_in_one_error() -> None:
    x, y = Tensor((4,), "float32", name="x"), Tensor((4,), "float32", name="y")
    w = Tensor((4,), "float32", name="w")
    operations = [
        Operation("Mystery", [x], [y]),
        Operation("BUCKETIZE", [y], [w], "BucketizeOptions"),
    ]
    source = build(operations, [x], [w])
    with pytest.raises(StageError) as found:
        run(source=source, options=ImportOptions())
    lines = str(found.value).splitlines()
    assert [line.split("(")[0].strip() for line in lines[1:]] == ["Mystery", "BUCKETIZE"]


def test_an_output_of_no_elements_is_one_error() -> None:
    x = Tensor((4,), "int8", scale=0.5)
    y = Tensor((0,), "int8", scale=0.5, name="y")
    source = single("SLICE", [x, *map(constant, ([0], [0]))], [y], "SliceOptions")
    with pytest.raises(StageError, match="SLICE"):
        run(source=source, options=ImportOptions())


def test_names_are_made_unique() -> None:
    x, y, z = (Tensor((4,), "int8", scale=0.5, name="same") for _ in range(3))
    operations = [Operation("ADD", [x, x], [y], "AddOptions")]
    operations.append(Operation("ADD", [y, x], [z], "AddOptions"))
    graph = read(build(operations, [x], [z]))
    assert len({tensor.name for tensor in graph.tensors}) == 3


def test_bias_scales_may_state_the_axis_of_the_weights() -> None:
    """As in published models: a bias of one dimension, quantized along dimension 3."""
    x = Tensor((1, 2, 2, 1), "int8", scale=0.5)
    weights = constant(np.ones((1, 1, 1, 2), np.int8), scale=[0.1, 0.2], axis=3)
    bias = constant(np.ones(2, np.int32), scale=[0.05, 0.1], axis=3)
    y = Tensor((1, 2, 2, 2), "int8", scale=0.5)
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "depth_multiplier": 2}
    source = single(
        "DEPTHWISE_CONV_2D", [x, weights, bias], [y], "DepthwiseConv2DOptions", **options
    )
    run(source=source, options=ImportOptions())


def test_description() -> None:
    found = describe(source=SMALL)
    assert found["format"] == "TensorFlow Lite"
    assert found["operators"] == {"ADD": 1, "CONV_2D": 1, "RESHAPE": 1}
    (entry,) = found["inputs"]
    assert entry == {
        "name": "x",
        "dtype": "int8",
        "shape": [1, 4, 4, 2],
        "smallest": -128.0,
        "largest": 127.0,
        "scale": 0.5,
        "zero_point": 3,
    }
    (layer,) = found["layers"]
    assert layer["weights"] == {"bits": 8, "encoding": "signed"}
    assert layer["activations"] == {"bits": 8, "encoding": "asymmetric"}
    assert found["unsupported"] == []
