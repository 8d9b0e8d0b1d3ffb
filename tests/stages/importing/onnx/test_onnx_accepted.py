"""What ONNX Runtime and qonnx accept and exporters write: order, domains, infinities, scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from stages.dialect.dtypes import limits, parse
from stages.errors import StageError
from stages.graph import interpret
from stages.importing import Oracle
from stages.importing import run as import_
from stages.importing.onnx.onnx_reader import QONNX, read
from stages.options import ImportOptions
from tests.stages.importing.graphs import execute_qonnx, graph, node
from tests.stages.importing.onnx.integer_graphs import MICROSOFT, build, compare

Array = np.ndarray[Any, Any]
F32 = np.float32
RNG = np.random.default_rng(0)


def scalar(value: float) -> Array:
    return np.array(value, F32)


def test_nodes_may_stand_in_any_order() -> None:
    """As Runtime sorts them; those in order stay where they are, and so do their names."""
    nodes = [node("Relu", ["b"]), node("Neg", ["x"], "a"), node("Add", ["a", "c"], "b")]
    source = build(nodes, {"x": ("float32", [1, 4])}, {"c": scalar(1)}, {"y": ("float32", 2)})
    assert [each.op for each in read(source).nodes] == ["Neg", "Add", "Relu"]
    compare(source, {"x": np.arange(-2, 2, dtype=F32).reshape(1, 4)}, compiled=False)


def test_a_cycle_is_refused() -> None:
    nodes = [node("Relu", ["b"], "a"), node("Relu", ["a"], "b"), node("Relu", ["x"])]
    source = build(nodes, {"x": ("float32", [1, 4])}, {}, {"y": ("float32", 2)})
    with pytest.raises(StageError, match="must be topologically sorted"):
        read(source)


def _added(*, computed: bool) -> bytes:
    names = ("a", "as", "az", "b", "bs", "bz", "ys", "yz")
    scales = {name: scalar(0.1) for name in ("as", "bs", "ys")}
    zero_points = {name: np.array(3, np.uint8) for name in ("az", "bz", "yz")}
    made = helper.make_node("QLinearAdd", names, ["y"], domain=MICROSOFT)
    inputs: dict[str, tuple[str, list[int]]] = {name: ("uint8", [1, 8]) for name in "ab"}
    if computed:
        inputs |= dict.fromkeys(scales, ("float32", [])) | dict.fromkeys(zero_points, ("uint8", []))
        scales, zero_points = {}, {}
    model = onnx.load_model_from_string(
        build([made], inputs, scales | zero_points, {"y": ("uint8", 2)})
    )
    del model.opset_import[0]
    return bytes(model.SerializeToString())


def test_only_the_domain_in_use_has_to_be_imported() -> None:
    data = {name: RNG.integers(0, 256, (1, 8)).astype(np.uint8) for name in "ab"}
    compare(_added(computed=False), data, fuse=True)
    for seed in range(20):  # as inputs, at many scales
        rng = np.random.default_rng(seed)
        scales = {name: rng.uniform(0.01, 0.3, ()).astype(F32) for name in ("as", "bs", "ys")}
        zero_points = {name: rng.integers(0, 256, (), np.uint8) for name in ("az", "bz", "yz")}
        inputs = {key: np.asarray(each) for key, each in {**data, **scales, **zero_points}.items()}
        compare(_added(computed=True), inputs, fuse=True, compiled=not seed)


INFINITE = {
    "mask": ([node("Add", ["x", "m"], "a"), node("Softmax", ["a"], axis=-1)], -np.inf, 1e-6),
    "maximum": ([node("Max", ["x", "m"])], -np.inf, 0),
    "minimum": ([node("Min", ["x", "m"])], np.inf, 0),
    "clip": ([node("Clip", ["x", "m", ""])], -np.inf, 0),
    "pad": ([node("Pad", ["x", "p", "m"], "a"), node("Max", ["a", "o"])], -np.inf, 0),
    "division": ([node("Div", ["x", "m"])], np.inf, 0),
}


@pytest.mark.parametrize("name", INFINITE)
def test_constants_may_be_infinite(name: str) -> None:
    nodes, value, error = INFINITE[name]
    constants = {"m": scalar(value), "p": np.array([0, 0, 0, 1]), "o": scalar(-1)}
    if name == "mask":
        constants["m"] = np.array([[0, value, 0, value]], F32)
    read_by = {each for made in nodes for each in made.input}
    constants = {key: each for key, each in constants.items() if key in read_by}
    source = build(nodes, {"x": ("float32", [1, 4])}, constants, {"y": ("float32", 2)}, opset=13)
    compare(source, {"x": np.arange(-2, 2, dtype=F32).reshape(1, 4)}, steps=error)


def _dequantized(dtype: str, way: str, has_point: bool, seed: int) -> bytes:
    """x + DequantizeLinear of constants whose scales have both signs, or are 0."""
    rng = np.random.default_rng(seed)
    low, high = limits(dtype)
    if dtype[0] != "u" and parse(dtype).bits > 4:
        low += 1
    shape = {"tensor": (), "axis": (4,), "block": (3, 4)}[way]
    scale = np.asarray(rng.choice([-1, 0, 1], shape) * rng.uniform(0.01, 1, shape), F32)
    kind = getattr(TensorProto, dtype.upper())
    stored = helper.tensor_dtype_to_np_dtype(kind)
    tensors = {
        "q": numpy_helper.from_array(rng.integers(low, high + 1, (6, 4)).astype(stored), "q"),
        "s": numpy_helper.from_array(scale, "s"),
    }
    if has_point:
        zero_points = rng.integers(0 if dtype[0] == "u" else -1, 2, shape)
        tensors["z"] = numpy_helper.from_array(np.asarray(zero_points).astype(stored), "z")
        if dtype == "int8":  # away from the ends, which have no opposite beside a zero point
            tensors["q"] = numpy_helper.from_array(
                rng.integers(-120, 120, (6, 4)).astype(stored), "q"
            )
    attributes = {"tensor": {}, "axis": {"axis": 1}, "block": {"axis": 0, "block_size": 2}}[way]
    nodes = [node("DequantizeLinear", list(tensors), "w", **attributes), node("Add", ["x", "w"])]
    return build(nodes, {"x": ("float32", [6, 4])}, tensors, {"y": ("float32", 2)})


@settings(max_examples=40)
@given(
    st.sampled_from(["int4", "uint4", "int8", "uint8"]),
    st.sampled_from(["tensor", "axis", "block"]),
    st.booleans(),
    st.integers(0, 1 << 16),
)
def test_scales_of_constants_may_be_negative_or_0(
    dtype: str, way: str, has_point: bool, seed: int
) -> None:
    source = _dequantized(dtype, way, has_point, seed)
    model = compare(source, {"x": np.zeros((6, 4), F32)}, compiled=False)
    for name, value in model.params.items():
        assert value.dtype != F32 or (value > 0).all(), name


def _convolved(scale: float, weight_scale: Array) -> bytes:
    """Conv between quantizers."""
    weights = RNG.integers(-127, 128, (5, 2, 3, 3)).astype(np.int8)
    constants = {
        **{"s": scalar(scale), "z": np.array(3, np.int8), "w": weights, "ws": weight_scale},
        **{"b": np.arange(-200, 300, 100, dtype=np.int32), "bs": weight_scale * F32(scale)},
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("DequantizeLinear", ["w", "ws"], "f", axis=0),
        node("DequantizeLinear", ["b", "bs"], "a", axis=0),
        node("Conv", ["d", "f", "a"], "c"),
        node("QuantizeLinear", ["c", "s", "z"], "r"),
        node("DequantizeLinear", ["r", "s", "z"]),
    ]
    inputs = {"x": ("float32", [1, 2, 6, 6])}
    return build(nodes, inputs, constants, {"y": ("float32", 4)}, opset=13)


@pytest.mark.parametrize("name", ["negative", "subnormal"])
def test_a_quantized_convolution_with_unusual_scales(name: str) -> None:
    """Negative ones of the weights; subnormal ones, by which every quotient is infinite."""
    scale = 0.05 if name == "negative" else 1e-40
    signs = np.array([-1, 1, -1, 1, 1], F32) if name == "negative" else np.ones(5, F32)
    source = _convolved(scale, signs * F32(0.01))
    x = RNG.normal(size=(1, 2, 6, 6)).astype(F32)
    compare(source, {"x": x}, fuse=True, compiled=False)


def test_what_has_no_opposite_or_is_computed_keeps_its_sign() -> None:
    tensors = {"q": np.full((6, 4), -128, np.int8), "s": scalar(-0.5)}
    nodes = [node("DequantizeLinear", ["q", "s"], "w"), node("Add", ["x", "w"])]
    source = build(nodes, {"x": ("float32", [6, 4])}, tensors, {"y": ("float32", 2)})
    with pytest.raises(StageError, match="the integer -128 of int8, which has no opposite"):
        import_(source=source, options=ImportOptions())
    nodes = [node("DequantizeLinear", ["x", "s"])]
    source = build(nodes, {"x": ("int8", [6, 4])}, {"s": scalar(-0.5)}, {"y": ("float32", 2)})
    with pytest.raises(StageError, match="which is not positive everywhere"):
        import_(source=source, options=ImportOptions())


REFUSED = {
    "weights that are NaN": (
        node("MatMul", ["x", "w"]),
        {"w": np.array([[1, np.nan]] * 4, F32)},
        "reads 'w', which holds NaN",
    ),
    "infinite weights": (
        node("MatMul", ["x", "w"]),
        {"w": np.array([[1, np.inf]] * 4, F32)},
        r"reads 'w', which holds inf; weights and scales up to 1e\+30 are accepted",
    ),
    "a scale of 3e38": (
        helper.make_node("BipolarQuant", ["x", "w"], ["y"], domain=QONNX),
        {"w": scalar(3e38)},
        r"reads 'w', which holds 3e\+38; weights and scales up to 1e\+30 are accepted",
    ),
    "an empty operand": (
        node("Add", ["x", ""]),
        {},
        "not valid ONNX: .* input 1 is marked single but has an empty string",
    ),
    "an empty operand of Microsoft's": (
        helper.make_node("QLinearSoftmax", ["x", "w", "", "w", ""], ["y"], domain=MICROSOFT),
        {"w": scalar(1)},
        "leaves out its operand 4, which is required",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_with_is_one_sentence(name: str) -> None:
    made, constants, message = REFUSED[name]
    source = graph([made], constants, [1, 4], domains=[QONNX, MICROSOFT])
    with pytest.raises(StageError, match=message) as error:
        import_(source=source, options=ImportOptions())
    assert str(error.value).count("\n") <= 1


def test_operands_that_microsofts_operators_need() -> None:
    """As ONNX Runtime's own schemas have them."""
    from stages.importing.onnx import operand_checks

    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = {
        (each.domain, each.name): each for each in getattr(state, "get_all_operator_schema", list)()
    }
    if not schemas:
        pytest.skip("this ONNX Runtime does not tell its schemas")
    for key, required in operand_checks._REQUIRED.items():
        if key[0] == MICROSOFT:
            found = schemas[key].inputs
            single = [i for i, each in enumerate(found) if "Single" in str(each.option)]
            variadic = [i for i, each in enumerate(found) if "Variadic" in str(each.option)]
            assert required[: len(single)] == tuple(single), key
            assert len(required) == len(single) or variadic, key


QUANT = {"s": scalar(0.5), "z": scalar(0), "b": scalar(4)}


def _quant(domain: str, tensors: dict[str, Array]) -> bytes:
    made = helper.make_node(
        "Quant", ["x", *tensors], ["y"], domain=domain, signed=1, narrow=0, rounding_mode="ROUND"
    )
    return graph([made], tensors, [1, 6], domains=[domain] if domain else [])


def test_quant_without_a_domain_is_qonnx_all_the_same() -> None:
    x = {"x": np.linspace(-6, 6, 6, dtype=F32).reshape(1, 6)}
    found, expected = (
        interpret.run(import_(source=source, options=ImportOptions()), x)["y"]
        for source in (_quant("", QUANT), _quant(QONNX, QUANT))
    )
    assert np.array_equal(found, expected)
    assert np.array_equal(Oracle(read(_quant("", QUANT)))(x)["y"], expected)


def test_zero_point_and_bit_width_may_be_int64() -> None:
    tensors = {**QUANT, "z": np.array(0), "b": np.array(4)}
    x = {"x": np.linspace(-6, 6, 6, dtype=F32).reshape(1, 6)}
    source = _quant(QONNX, tensors)
    found = interpret.run(import_(source=source, options=ImportOptions()), x)["y"]
    assert np.array_equal(found, execute_qonnx(source, x)["y"])
    with pytest.raises(StageError, match="the zero point 'z' of type int64; float32, or 0"):
        import_(source=_quant(QONNX, {**tensors, "z": np.array(2)}), options=ImportOptions())
