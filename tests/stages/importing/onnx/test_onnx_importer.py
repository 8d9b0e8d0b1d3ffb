"""An imported module computes what its source graph computes; what cannot be imported is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import evaluate, run
from stages.importing.onnx import onnx_converters as converters
from stages.importing.onnx.onnx_reader import QONNX
from stages.kinds import Model
from stages.options import GoldenOptions, ImportOptions
from tests.stages.importing.graphs import FINN, TFC, graph, node, real_data
from tests.stages.importing.onnx.test_oracle import BIAS, DEPTHWISE, EXACT, NORM, W, X
from tests.stages.importing.vectors import golden

IMAGE = X[:1]
ROW = np.arange(-3, 3, dtype=np.float32).reshape(1, 6)
MATRIX = np.arange(-12, 12, dtype=np.float32).reshape(6, 4)
SCALAR = {"s": np.array(0.5, np.float32), "z": np.array(0, np.float32)}


def import_(source: bytes, **inputs: tuple[int, ...]) -> Model:
    return run(source=source, options=ImportOptions(inputs=inputs))


def refusal(source: bytes, **inputs: tuple[int, ...]) -> str:
    with pytest.raises(StageError) as caught:
        import_(source, **inputs)
    return str(caught.value)


def quant(bits: float = 2, **attributes: Any) -> tuple[onnx.NodeProto, dict[str, Any]]:
    operator = helper.make_node("Quant", ["x", "s", "z", "n"], ["y"], domain=QONNX, **attributes)
    return operator, {**SCALAR, "n": np.array(bits, np.float32)}


def qonnx(op: str, constants: dict[str, Any], **attributes: Any) -> Any:
    operator = helper.make_node(op, ["x", *constants], ["y"], domain=QONNX, **attributes)
    return operator, constants


SAME: dict[str, tuple[onnx.NodeProto, dict[str, Any], np.ndarray[Any, Any]]] = {
    **{
        name: (operator, constants, IMAGE)
        for name, (operator, constants) in EXACT.items()
        if not name.endswith("ceil")
    },
    "conv_depth_multiplier": (node("Conv", ["x", "w"], group=6), {"w": DEPTHWISE}, IMAGE),
    "conv_one_value_bias": (
        node("Conv", ["x", "w", "b"], kernel_shape=[3, 3]),
        {"w": W, "b": BIAS},
        IMAGE,
    ),
    "gemm": (node("Gemm", ["x", "w"]), {"w": MATRIX}, ROW),
    "gemm_everything": (
        node("Gemm", ["x", "w", "b"], transB=1, alpha=0.5, beta=2.0),
        {"w": MATRIX.reshape(4, 6), "b": BIAS},
        ROW,
    ),
    "matmul": (node("MatMul", ["x", "w"]), {"w": MATRIX}, ROW),
    "add": (node("Add", ["x", "x"]), {}, IMAGE),
    "sub_constant_first": (node("Sub", ["s", "x"]), SCALAR, IMAGE),
    "mul_per_channel": (node("Mul", ["x", "g"]), {"g": NORM["g"].reshape(6, 1, 1)}, IMAGE),
    "div": (node("Div", ["x", "s"]), {"s": np.array(3, np.float32)}, IMAGE),
    "batch_norm": (node("BatchNormalization", ["x", "g", "b", "m", "v"]), NORM, IMAGE),
    "batch_norm_rank_2": (node("BatchNormalization", ["x", "g", "b", "m", "v"]), NORM, ROW),
    "relu": (node("Relu", ["x"]), {}, IMAGE),
    "sign": (node("Sign", ["x"]), {}, IMAGE),
    "clip": (
        node("Clip", ["x", "low", "high"]),
        {"low": np.array(-2, np.float32), "high": np.array(3, np.float32)},
        IMAGE,
    ),
    "clip_above": (node("Clip", ["x", "", "high"]), {"high": np.array(3, np.float32)}, IMAGE),
    "global_average_pool": (node("GlobalAveragePool", ["x"]), {}, IMAGE),
    "reduce_mean": (node("ReduceMean", ["x"], axes=[-1, 2], keepdims=1), {}, IMAGE),
    "transpose": (node("Transpose", ["x"], perm=[0, 2, 3, 1]), {}, IMAGE),
    "transpose_reversed": (node("Transpose", ["x"]), {}, IMAGE),
    "dropout": (node("Dropout", ["x"]), {}, IMAGE),
    "quant": (*quant(signed=1, narrow=1), IMAGE),
    "quant_unsigned_default_rounding": (*quant(3, signed=0, narrow=0), IMAGE),
    "quant_floor": (*quant(3, signed=1, narrow=0, rounding_mode="floor"), IMAGE),
    "quant_one_signed_bit": (*quant(1, signed=1, narrow=1), IMAGE),
    "quant_one_unsigned_bit": (*quant(1, signed=0, narrow=0), IMAGE),
    "bipolar": (*qonnx("BipolarQuant", {"s": SCALAR["s"]}), IMAGE),
    "thresholds": (
        *qonnx(
            "MultiThreshold",
            {"t": np.array([[3, -1, 0]], np.float32)},
            out_dtype="INT2",
            out_bias=-2.0,
        ),
        IMAGE,
    ),
    "thresholds_nhwc": (
        *qonnx(
            "MultiThreshold",
            {"t": np.tile(np.array([[-1, 0, 3]], np.float32), (11, 1))},
            out_dtype="UINT2",
            data_layout="NHWC",
        ),
        IMAGE,
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_imported_operators_compute_what_the_source_does(case: str) -> None:
    operator, constants, x = SAME[case]
    source = graph([operator], constants, x.shape, opset=13, domains=[QONNX])
    model = import_(source)
    expected = evaluate(source=source, inputs={"x": x})["y"]
    found = interpret.run(model, {"x": x})
    assert list(found) == ["y"]
    np.testing.assert_array_equal(found["y"], expected)


UNARY = (
    "Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "GlobalMaxPool", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Neg", "Reciprocal", "Round", "Sigmoid", "Sqrt", "Tanh",
)  # fmt: skip
AXES = {"axes": np.array([2, 3])}
SLOPES = {"slopes": np.array([-1, 0, 0.5, 2], np.float32).reshape(4, 1, 1)}
WEIGHTS = {"fours": np.arange(1, 5, dtype=np.float32), "eights": np.arange(8, dtype=np.float32)}
IN_FLOAT: dict[str, tuple[onnx.NodeProto, dict[str, Any]]] = {
    **{op: (node(op, ["x"], "a"), {}) for op in UNARY},
    **{op: (node(op, ["x", "axes"], "a"), AXES) for op in ("ReduceMax", "ReduceMin", "ReduceSum")},
    **{op: (node(op, ["x", "x", "x"], "a"), {}) for op in ("Max", "Min", "Sum")},
    "LayerNormalization": (node("LayerNormalization", ["x", "eights"], "a"), WEIGHTS),
    "InstanceNormalization": (node("InstanceNormalization", ["x", "fours", "fours"], "a"), WEIGHTS),
    "GroupNormalization": (
        node("GroupNormalization", ["x", "fours", "fours"], "a", num_groups=2),
        WEIGHTS,
    ),
    "Softmax": (node("Softmax", ["x"], "a", axis=1), {}),
    "LogSoftmax": (node("LogSoftmax", ["x"], "a"), {}),
    "Concat": (node("Concat", ["x", "x"], "a", axis=1), {}),
    "DepthToSpace": (node("DepthToSpace", ["x"], "a", blocksize=2, mode="CRD"), {}),
    "SpaceToDepth": (node("SpaceToDepth", ["x"], "a", blocksize=2), {}),
    "Expand": (node("Expand", ["x", "to"], "a"), {"to": np.array([1, 4, 6, 8])}),
    "PRelu": (node("PRelu", ["x", "slopes"], "a"), SLOPES),
    "Pad": (node("Pad", ["x", "by"], "a"), {"by": np.array([0, 0, 1, 0, 0, 0, 2, 1])}),
    "Pow": (node("Pow", ["x", "e"], "a"), {"e": np.array(2, np.float32)}),
    "Slice": (
        node("Slice", ["x", "from", "to"], "a"),
        {"from": np.array([0, 1]), "to": np.array([1, 3])},
    ),
}


def test_every_such_operator_is_compared() -> None:
    assert set(IN_FLOAT) == set(converters.IN_FLOAT)


@pytest.mark.parametrize("op", IN_FLOAT)
def test_other_operators_stand_beside_quantizers(op: str) -> None:
    """In float, as the source has them, with what sums and functions of floats may differ by."""
    operator, constants = IN_FLOAT[op]
    x = np.random.default_rng(0).uniform(0.25, 3, (1, 4, 6, 8)).astype(np.float32)
    last = node("Mul", ["a", "one"])
    named = {**constants, "one": np.ones((), np.float32)}
    source = graph([operator, last], named, x.shape, opset=21, domains=[QONNX])
    expected = evaluate(source=source, inputs={"x": x})["y"]
    found = interpret.run(import_(source), {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "constants", "shape"),
    [
        ([node("Flatten", ["x"], axis=2)], {}, (6, 99)),
        ([node("Flatten", ["x"], axis=0)], {}, (1, 594)),
        ([node("Reshape", ["x", "t"])], {"t": np.array([0, 2, -1])}, (1, 2, 297)),
        ([node("Squeeze", ["x", "t"])], {"t": np.array([0])}, (6, 9, 11)),
        ([node("Squeeze", ["x"])], {}, (6, 9, 11)),
        ([node("Unsqueeze", ["x", "t"])], {"t": np.array([-1, 0])}, (1, 1, 6, 9, 11, 1)),
        (
            [
                node("Shape", ["x"], "shape"),
                node("Gather", ["shape", "zero"], "batch"),
                node("Unsqueeze", ["batch", "axis"], "batches"),
                node("Concat", ["batches", "rest"], "target", axis=0),
                node("Reshape", ["x", "target"]),
            ],
            {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])},
            (1, 594),
        ),
    ],
)
def test_shapes(nodes: list[onnx.NodeProto], constants: Any, shape: tuple[int, ...]) -> None:
    source = graph(nodes, constants, IMAGE.shape, rank=len(shape))
    found = interpret.run(import_(source), {"x": IMAGE})["y"]
    assert found.shape == shape
    np.testing.assert_array_equal(found, evaluate(source=source, inputs={"x": IMAGE})["y"])


def test_the_module_speaks_the_words_of_the_source() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "stem.weight"], ["a"], name="layer1.0.conv1"),
        helper.make_node("Relu", ["a"], ["result"], name="layer1.0.relu"),
    ]
    source = graph(nodes, {"stem.weight": W}, IMAGE.shape, output="result", domains=[QONNX])
    main = import_(source).module["main"]
    assert [parameter.name for parameter in main.params] == ["x", "stem.weight"]
    names = [binding.var.name for block in main.body.blocks for binding in block.bindings]
    assert names[:2] == ["layer1.0.conv1", "layer1.0.relu"]
    assert int(main.attrs["num_input"]) == 1
    assert list(main.attrs["output_names"]) == ["result"]
    assert main.attrs["numerics"] == "qonnx"


def test_constant_arithmetic_is_folded_and_weights_are_not() -> None:
    nodes = [
        node("Pow", ["v", "half"], "d"),
        node("Div", ["x", "d"], "a"),
        node("MatMul", ["a", "w"]),
    ]
    constants: dict[str, Any] = {
        "v": np.array([4, 9, 16, 25, 36, 49], np.float32),
        "half": np.array(0.5, np.float32),
        "w": MATRIX,
    }
    model = import_(graph(nodes, constants, (1, 6)))
    assert {name: value.tolist() for name, value in model.params.items()} == {
        "d": [2, 3, 4, 5, 6, 7],
        "w": MATRIX.tolist(),
    }


def test_an_open_batch_is_one_sample_and_other_open_extents_must_be_stated() -> None:
    source = graph([node("Relu", ["x"])], {}, ["batch", 6])
    assert interpret.run(import_(source), {"x": ROW})["y"].shape == (1, 6)
    source = graph([node("Relu", ["x"])], {}, [1, "features"])
    assert refusal(source) == (
        "the file leaves the shape of input 'x' open: [1, ?]; state it in the recipe's inputs"
    )
    assert interpret.run(import_(source, x=(1, 6)), {"x": ROW})["y"].shape == (1, 6)
    assert refusal(source, x=(2, 6)) == (
        "input 'x' is given the shape [2, 6], but the file says [1, ?]"
    )
    assert refusal(source, x=(1, 1 << 40)) == (
        "input 'x' has the shape [1, 1099511627776]; every extent must be at least 1 and the whole "
        "at most 268,435,456 elements; state another in the recipe's inputs"
    )
    assert refusal(source, data=(1, 6)) == "the model has no input 'data'; its inputs are ['x']"


def test_a_ranking_at_the_end_is_left_to_the_caller() -> None:
    nodes = [
        node("MatMul", ["x", "w"], "logits"),
        helper.make_node("TopK", ["logits", "k"], ["best", "y"]),
    ]
    source = graph(nodes, {"w": MATRIX, "k": np.array([1])}, (1, 6))
    found = interpret.run(import_(source), {"x": ROW})
    assert list(found) == ["logits"]
    vectors = golden(source=source, options=GoldenOptions(samples=3))
    assert {name: value.shape for name, value in vectors.outputs.items()} == {"logits": (3, 1, 4)}


@pytest.mark.parametrize(
    "path", [f"{TFC}/TFC_1W1A.onnx", f"{TFC}/TFC_1W2A.onnx", f"{FINN}/model.onnx"]
)
def test_real_networks_equal_their_oracle(path: str) -> None:
    source = real_data(path).read_bytes()
    model = import_(source)
    vectors = golden(source=source, options=GoldenOptions(samples=4, seed=3))
    for sample in range(4):
        found = interpret.run(model, {name: v[sample] for name, v in vectors.inputs.items()})
        for name, value in vectors.outputs.items():
            np.testing.assert_array_equal(found[name], value[sample])
