"""The oracle against executors that are not ours: onnxruntime and qonnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from stages.errors import StageError
from stages.importing import evaluate
from stages.importing.onnx import source_arithmetic as arithmetic
from tests.stages.importing.graphs import FINN, TFC, execute_qonnx, graph, node, real_data

RNG = np.random.default_rng(7)
X = RNG.integers(-8, 9, (2, 6, 9, 11)).astype(np.float32)
W = RNG.integers(-4, 5, (4, 6, 3, 3)).astype(np.float32)
DEPTHWISE = RNG.integers(-4, 5, (12, 1, 3, 3)).astype(np.float32)
BIAS = RNG.integers(-9, 10, 4).astype(np.float32)
NORM = {
    name: values.astype(np.float32)
    for name, values in {
        "g": RNG.uniform(0.5, 2, 6),
        "b": RNG.uniform(-1, 1, 6),
        "m": RNG.uniform(-1, 1, 6),
        "v": RNG.uniform(0.5, 2, 6),
    }.items()
}


def run_ort(source: bytes, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


EXACT: dict[str, tuple[onnx.NodeProto, dict[str, Any]]] = {
    "conv": (node("Conv", ["x", "w"]), {"w": W}),
    "conv_bias_pads": (
        node("Conv", ["x", "w", "b"], pads=[1, 2, 0, 1], strides=[2, 1]),
        {"w": W, "b": BIAS},
    ),
    "conv_dilated": (node("Conv", ["x", "w"], dilations=[2, 3], pads=[2, 2, 2, 2]), {"w": W}),
    "conv_groups": (node("Conv", ["x", "w"], group=2), {"w": W[:, :3]}),
    "conv_depthwise": (node("Conv", ["x", "w"], group=6, strides=[1, 2]), {"w": DEPTHWISE}),
    "conv_same_upper": (node("Conv", ["x", "w"], auto_pad="SAME_UPPER", strides=[2, 2]), {"w": W}),
    "conv_same_lower": (node("Conv", ["x", "w"], auto_pad="SAME_LOWER", strides=[2, 2]), {"w": W}),
    "conv_valid": (node("Conv", ["x", "w"], auto_pad="VALID"), {"w": W}),
    "max_pool": (
        node("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        {},
    ),
    "max_pool_ceil": (node("MaxPool", ["x"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), {}),
    "average_pool": (node("AveragePool", ["x"], kernel_shape=[2, 2], pads=[1, 0, 1, 0]), {}),
    "average_pool_padded": (
        node("AveragePool", ["x"], kernel_shape=[2, 4], pads=[1, 1, 1, 1], count_include_pad=1),
        {},
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_windows_over_whole_numbers_equal_onnxruntime(case: str) -> None:
    """Sums of small whole numbers are exact in float32, so any order gives the same bits."""
    operator, constants = EXACT[case]
    source = graph([operator], constants, X.shape)
    mine, theirs = evaluate(source=source, inputs={"x": X})["y"], run_ort(source, X)
    if case.startswith("average"):
        np.testing.assert_allclose(mine, theirs, rtol=3e-7)
    else:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("opset", [8, 9, 13, 15])
def test_batch_norm_is_inference_in_every_opset(opset: int) -> None:
    operator = node("BatchNormalization", ["x", "g", "b", "m", "v"], momentum=0.9)
    source = graph([operator], NORM, X.shape, opset=opset)
    mine = evaluate(source=source, inputs={"x": X})["y"]
    np.testing.assert_allclose(mine, run_ort(source, X), rtol=2e-6, atol=2e-6)


def test_one_dimensional_convolutions_are_left_to_the_reference() -> None:
    source = graph([node("Conv", ["x", "w"])], {"w": W[:, :, 0]}, X.shape[:3])
    np.testing.assert_array_equal(
        evaluate(source=source, inputs={"x": X[..., 0]})["y"], run_ort(source, X[..., 0])
    )


@given(
    bits=st.integers(1, 8),
    signed=st.booleans(),
    narrow=st.booleans(),
    rounding=st.sampled_from(
        ["ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN", "round", "Half_Even"]
    ),
    scale=st.sampled_from([1.0, 0.25, 2.0, 0.3]),
    zero_point=st.sampled_from([0.0, 1.0, 1.5, -2.0]),
    x=st.lists(
        st.one_of(
            st.integers(-600, 600).map(lambda value: value / 4), st.floats(-300, 300, width=32)
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_quant_equals_qonnx(
    bits: int,
    signed: bool,
    narrow: bool,
    rounding: str,
    scale: float,
    zero_point: float,
    x: list[float],
) -> None:
    quant = pytest.importorskip("qonnx.custom_op.general.quant").quant
    values = np.array(x, np.float32)
    scales, zeros = np.array(scale, np.float32), np.array(zero_point, np.float32)
    theirs = quant(values, scales, zeros, np.array(bits, np.float32), signed, narrow, rounding)
    mine = arithmetic.quant(values, scales, zeros, bits, signed, narrow, rounding)
    np.testing.assert_array_equal(mine, theirs.astype(np.float32))


@given(st.lists(st.floats(-2, 2, width=32), min_size=1), st.sampled_from([1.0, 0.5, 0.3]))
def test_bipolar_quant_equals_qonnx(x: list[float], scale: float) -> None:
    theirs = pytest.importorskip("qonnx.custom_op.general.bipolar_quant").binary_quant
    values, scales = np.array([*x, 0.0, -0.0], np.float32), np.array(scale, np.float32)
    np.testing.assert_array_equal(
        arithmetic.bipolar_quant(values, scales), theirs(values, scales).astype(np.float32)
    )


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("axis", [1, 3])
def test_multi_threshold_equals_qonnx(channels: int, axis: int) -> None:
    theirs = pytest.importorskip("qonnx.custom_op.general.multithreshold").multithreshold
    x = RNG.integers(-4, 5, (2, 5, 4, 5)).astype(np.float32)
    thresholds = RNG.integers(-4, 5, (channels, 3)).astype(np.float32)
    mine = arithmetic.multi_threshold(x, thresholds, 0.5, -1.0, axis)
    np.testing.assert_array_equal(mine, theirs(x, thresholds, 0.5, -1.0, axis == 3))


def test_wrong_inputs_and_operators_are_one_sentence() -> None:
    source = graph([node("Relu", ["x"])], {}, [1, 3])
    with pytest.raises(StageError, match=r"takes the inputs \['x'\], not \['z'\]"):
        evaluate(source=source, inputs={"z": np.zeros((1, 3), np.float32)})
    unknown = helper.make_node("Unheard", ["x"], ["y"], domain="elsewhere")
    with pytest.raises(StageError, match="cannot be executed: Node type 'Unheard'"):
        evaluate(source=graph([unknown], {}, [1, 3]), inputs={"x": np.zeros((1, 3), np.float32)})
    source = graph([node("Add", ["x", "w"])], {"w": np.ones((2, 2), np.float32)}, [1, 3])
    with pytest.raises(StageError, match="cannot be executed: "):
        evaluate(source=source, inputs={"x": np.zeros((1, 3), np.float32)})


@pytest.mark.parametrize("name", ["TFC_1W1A", "TFC_1W2A"])
def test_brevitas_digits_as_qonnx_has_them(name: str) -> None:
    source = real_data(f"{TFC}/{name}.onnx").read_bytes()
    data = np.load(real_data("data/mnist_test_2000.npz"))
    for image in mnist(data)[:10]:
        theirs = execute_qonnx(source, {"0": image})
        (result,) = evaluate(source=source, inputs={"0": image}).values()
        np.testing.assert_allclose(result, theirs[next(iter(theirs))], rtol=1e-5, atol=1e-5)


def mnist(data: Any) -> np.ndarray[Any, Any]:
    """Digits as the networks take them: float32 [N, 1, 1, 28, 28] in 0 .. 1."""
    images = next(data[key] for key in data.files if data[key].ndim >= 3)
    scaled = images.reshape(-1, 1, 1, 28, 28).astype(np.float32)
    return scaled / np.float32(255) if scaled.max() > 1 else scaled


def test_finn_model_gives_its_published_answer() -> None:
    folder = real_data(f"{FINN}/model.onnx").parent
    x = np.load(folder / "input.npy").astype(np.float32).reshape(-1, 1, 1, 28, 28)
    source = (folder / "model.onnx").read_bytes()
    published = np.load(folder / "expected_output.npy").ravel()
    for image, answer in zip(x, published, strict=True):
        inputs = {"global_in": image}
        mine = evaluate(source=source, inputs=inputs)["global_out"].ravel()
        assert mine == answer == execute_qonnx(source, inputs)["global_out"].ravel()
