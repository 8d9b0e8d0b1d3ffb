"""Broken and hostile files end in one sentence; the oddities of real exporters are understood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from stages.errors import StageError
from stages.importing.onnx.onnx_reader import NEWEST_OPSET, QONNX, read
from tests.stages.importing.graphs import graph, node

ONES = np.ones((2, 2), np.float32)


def small() -> onnx.ModelProto:
    return onnx.load_model_from_string(graph([node("Add", ["x", "w"])], {"w": ONES}, [1, 2]))


def refusal(source: bytes) -> str:
    with pytest.raises(StageError) as caught:
        read(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"\x1c\0\0\0TFL3" + bytes(64), "this is a TensorFlow Lite file; an ONNX file is accepted"),
        (
            b"PK\x03\x04" + bytes(64),
            "this is a ZIP archive, such as PyTorch writes; an ONNX file is accepted",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "this is a Git LFS pointer, not the file itself (run `git lfs pull`); "
            "an ONNX file is accepted",
        ),
        (b"", "the file holds no ONNX graph, or a graph without nodes"),
        (
            b"\xff" * 40,
            "the file cannot be read as ONNX (it is damaged or of another kind); "
            "check that it was downloaded whole",
        ),
    ],
)
def test_other_kinds_of_file(source: bytes, message: str) -> None:
    assert refusal(source) == message


@given(st.binary(max_size=200))
def test_noise_never_ends_in_another_error(noise: bytes) -> None:
    with pytest.raises(StageError):
        read(noise)


@given(st.data())
def test_damaged_files_never_end_in_another_error(data: st.DataObject) -> None:
    source = bytearray(small().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        source[data.draw(st.integers(0, len(source) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(source[: data.draw(st.integers(1, len(source)))]))
    except StageError as error:
        assert str(error)


def claim_huge(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def claim_negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-2, -2]


def claim_more(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [512, 1024]


def move_outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def age(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 3


def forget_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


def unsort(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nowhere"


def define_function(model: onnx.ModelProto) -> None:
    model.functions.add(name="Twice", domain="mine")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            claim_huge,
            "tensor 'w' claims the shape [1099511627776, 1099511627776]; "
            "at most 268,435,456 elements are accepted",
        ),
        (
            claim_negative,
            "tensor 'w' claims the shape [-2, -2]; at most 268,435,456 elements are accepted",
        ),
        (
            claim_more,
            "tensor 'w' of shape [512, 1024] should hold 2,097,152 bytes, but holds 16",
        ),
        (
            move_outside,
            "tensor 'w' lies in another file; only tensors inside the ONNX file are read; "
            "save the model as one file: `onnx.save(onnx.load(path), one_file)`",
        ),
        (
            age,
            f"the file uses ONNX opset 3; 7 to {NEWEST_OPSET} are accepted; "
            "convert it with `onnx.version_converter` or export it again",
        ),
        (forget_opset, "the file does not say which ONNX opset it uses; export it again"),
        (
            define_function,
            "the file defines functions of its own (Twice, ...); "
            "inline them with `onnx.inliner.inline_local_functions` and save it again",
        ),
    ],
)
def test_hostile_and_broken_files(damage: Callable[[onnx.ModelProto], None], message: str) -> None:
    model = small()
    damage(model)
    assert refusal(model.SerializeToString()) == message


@pytest.mark.parametrize("place", ["input", "output", "name", "initializer"])
def test_names_that_are_no_text(place: str) -> None:
    source = small().SerializeToString()
    written = {"input": b"\x0a\x01x", "output": b"\x12\x01y", "name": b"\x0a\x01x\x12"}
    at = source.index(written.get(place, b"\x42\x01w")) + 2
    message = refusal(source[:at] + b"\xff" + source[at + 1 :])
    assert message == (
        "the name b'\\xff' in the file is not UTF-8 text; check that it was downloaded whole"
    )


def test_what_the_checker_finds_is_one_sentence() -> None:
    model = small()
    unsort(model)
    message = refusal(model.SerializeToString())
    assert message.startswith("the file is not valid ONNX: ")
    assert "\n" not in message


def test_external_data_in_a_constant_node_is_refused() -> None:
    tensor = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor), node("Add", ["x", "c"])]
    assert "lies in another file" in refusal(graph(nodes, {}, [1]))


@pytest.mark.parametrize(
    "domain", ["onnx.brevitas", "finn.custom_op.general", "qonnx", "qonnx.custom_op.general"]
)
def test_quantizers_of_every_domain_without_its_import(domain: str) -> None:
    quant = helper.make_node("BipolarQuant", ["x", "s"], ["y"], domain=domain)
    source = graph([quant], {"s": np.ones(1, np.float32)}, [1, 3])
    read_graph = read(source)
    assert [item.domain for item in read_graph.nodes] == [QONNX]
    assert {item.domain for item in read_graph.model.opset_import} == {"", QONNX}


def test_layer_names_are_unique() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="act"),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    names = [item.layer for item in read(graph(nodes, {}, [1, 3])).nodes]
    assert names == ["act", "act#2", "Relu:y"]


def test_open_shapes_and_initializers_among_the_inputs() -> None:
    model = small()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 2]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert [
        (item.name, item.dtype, item.shape) for item in read(model.SerializeToString()).inputs
    ] == [("x", "float32", (None, 2))]
