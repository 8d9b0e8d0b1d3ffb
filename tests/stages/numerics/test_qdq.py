"""QDQ graphs become integers: fused as ONNX Runtime does, and else without changing a result."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from stages.dialect.calls import dtype_of, is_op, storage_dtype
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model
from stages.numerics import linear_quantizers
from stages.numerics.qdq import to_integers
from stages.numerics.quantization_grid import Grid
from tests.stages.dialect.test_legalize import in_relax

RNG = np.random.default_rng(5)


class Net:
    """A QDQ graph under construction."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "int8") -> None:
        self.builder = ModelBuilder()
        self.input = self.builder.input("x", shape, dtype)
        self.dtype = dtype

    def grid(self, scale: Any, zero_point: Any, dtype: str | None = None) -> tuple[Any, Any]:
        kind = dtype or self.dtype
        points = np.broadcast_to(np.asarray(zero_point, storage_dtype(kind)), np.shape(scale))
        return (
            self.builder.tensor("scale", np.asarray(scale, np.float32)),
            self.builder.tensor("zero_point", points, kind),
        )

    def dequantize(self, data: Any, scale: Any, zero_point: Any = 0, dtype: Any = None) -> Any:
        call = linear_quantizers.dequantize_linear(data, *self.grid(scale, zero_point, dtype))
        return self.builder.emit(call, "dq")

    def quantize(self, data: Any, scale: Any, zero_point: Any = 0, reciprocal: bool = False) -> Any:
        low, high = (-128, 127) if self.dtype == "int8" else (0, 255)
        call = linear_quantizers.quantize_linear(
            data, *self.grid(scale, zero_point), low=low, high=high, reciprocal=reciprocal
        )
        return self.builder.emit(call, "q")

    def emit(self, call: Any, name: str = "op") -> Any:
        return self.builder.emit(call, name)

    def weights(self, shape: tuple[int, ...], axis: int, dtype: str = "int8") -> Any:
        extents = [extent if i == axis else 1 for i, extent in enumerate(shape)]
        high = 127 if dtype == "int8" else 7
        values = RNG.integers(-high, high + 1, shape).astype(np.int8)
        stored = self.builder.tensor("weights", values, dtype)
        scales = RNG.uniform(0.002, 0.01, extents).astype(np.float32)
        return self.dequantize(stored, scales, np.zeros(extents), dtype)

    def finish(self, *outputs: Any) -> Model:
        names = [f"y{i}" for i in range(len(outputs))]
        return self.builder.model(outputs, names, attrs={"numerics": "onnx", "quantization": "{}"})


def sample(shape: tuple[int, ...], dtype: str = "int8") -> dict[str, Array]:
    low = -128 if dtype == "int8" else 0
    return {"x": RNG.integers(low, low + 256, shape).astype(dtype)}


def operators(model: Model) -> list[str]:
    found = [binding.value for binding in bindings_of(model.module["main"])]
    return [str(value.op.name).removeprefix("relax.") for value in found if hasattr(value, "op")]


def compare(before: Model, inputs: dict[str, Array], numerics: str, steps: float) -> list[str]:
    """Check that rewriting changes no result by more than `steps`; the operators left."""
    after = to_integers(before, numerics)
    expected = interpret.run(before, inputs)
    found = interpret.run(after, inputs)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        difference = np.abs(found[name].astype(np.float64) - value.astype(np.float64)).max()
        assert difference <= steps, (name, difference)
    if len(found) == 1:
        assert np.array_equal(in_relax(after, inputs), next(iter(found.values())))
    assert str(after.module["main"].attrs["numerics"]) == "onnx"
    return operators(after)


def conv_net(dtype: str = "int8", bias: str = "int32", weights: str = "int8") -> Model:
    net = Net((1, 6, 5, 5), dtype)
    x = net.dequantize(net.input, 0.05, 3)
    w = net.weights((4, 3, 3, 3), 0, weights)
    y = net.emit(relax.op.nn.conv2d(x, w, padding=[1, 0, 1, 2], strides=[2, 1], groups=2), "conv")
    if bias == "int32":
        values = RNG.integers(-2000, 2000, 4).astype(np.int32)
        b = net.dequantize(net.builder.tensor("bias", values), 0.0003, 0, "int32")
        y = net.emit(relax.op.add(y, net.emit(relax.op.reshape(b, (1, 4, 1, 1)))))
    elif bias == "float32":
        b = net.builder.tensor("bias", RNG.normal(size=(1, 4, 1, 1)).astype(np.float32))
        y = net.emit(relax.op.add(y, b))
    y = net.emit(relax.op.nn.relu(y))
    return net.finish(net.quantize(y, 0.04, -100 if dtype == "int8" else 10))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_convolution_becomes_qlinear_conv(dtype: str) -> None:
    left = compare(conv_net(dtype, "none"), sample((1, 6, 5, 5), dtype), "onnx", 1)
    assert "qnn.conv2d" in left and "qnn.rescale" in left
    assert not any("linear" in name or name == "nn.conv2d" for name in left)


def test_a_float_bias_is_rounded_to_the_accumulators() -> None:
    left = compare(conv_net(bias="float32"), sample((1, 6, 5, 5)), "onnx", 1)
    assert "qnn.rescale" in left and "nn.conv2d" not in left


def test_narrow_weights_are_added_as_integers() -> None:
    left = compare(conv_net(bias="none", weights="int4"), sample((1, 6, 5, 5)), "onnx", 1)
    assert "qnn.rescale" in left


def test_an_integer_bias_is_taken_as_it_is() -> None:
    """Like ONNX Runtime, which does not look at the scale of an int32 bias."""
    model = to_integers(conv_net(), "onnx")
    kept = [value for value in model.params.values() if value.dtype == np.int32]
    assert len(kept) == 1 and np.abs(kept[0]).max() > 100


@pytest.mark.parametrize("bias", ["none", "float32", "int32"])
def test_other_numerics_keep_a_float_epilogue(bias: str) -> None:
    left = compare(conv_net(bias=bias), sample((1, 6, 5, 5)), "torch", 1)
    assert "qnn.conv2d" in left and "nn.conv2d" not in left and "qnn.rescale" not in left
    assert left.index("qnn.dequantize_linear") < left.index("qnn.quantize_linear")


def test_a_product_with_transposed_weights() -> None:
    net = Net((2, 3, 8))
    x = net.dequantize(net.input, 0.1, -3)
    w = net.emit(relax.op.permute_dims(net.weights((5, 8), 0), [1, 0]))
    y = net.emit(relax.op.matmul(x, w), "dense")
    left = compare(net.finish(net.quantize(y, 0.1, 7)), sample((2, 3, 8)), "onnx", 1)
    assert "qnn.dense" in left and "matmul" not in left


def test_a_product_with_a_float_result() -> None:
    net = Net((2, 8))
    x = net.dequantize(net.input, 0.1, -3)
    y = net.emit(relax.op.matmul(x, net.weights((8, 5), 1)), "dense")
    left = compare(net.finish(y), sample((2, 8)), "onnx", 1e-5)
    assert "qnn.dense" in left and "matmul" not in left


def test_values_that_only_move_stay_integers() -> None:
    net = Net((1, 4, 6, 6))
    x = net.dequantize(net.input, 0.1, -3)
    y = net.emit(relax.op.nn.max_pool2d(x, [2, 2], strides=[2, 2]))
    y = net.emit(relax.op.nn.relu(y))
    y = net.emit(relax.op.permute_dims(y, [0, 2, 3, 1]))
    y = net.emit(relax.op.concat([y, y], 3))
    parts = net.emit(relax.op.split(y, 2, 3), "parts")
    part = net.emit(relax.TupleGetItem(parts, 1), "part")
    y = net.quantize(net.emit(relax.op.reshape(part, (1, 36))), 0.1, -3)
    left = compare(net.finish(y), sample((1, 4, 6, 6)), "torch", 0)
    assert not any("linear" in name for name in left)


@given(st.data())
def test_a_grid_is_reshaped_with_its_tensor(data: st.DataObject) -> None:
    """Where it can be: dequantizing before and after gives the same."""
    extents = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4)
    shape = tuple(data.draw(extents))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cut = data.draw(st.integers(0, axis)), data.draw(st.integers(axis + 1, len(shape)))
    into = (*[1] * cut[0], prod(shape[:axis]), shape[axis], *shape[axis + 1 : cut[1]])
    into = (*into, prod(shape[cut[1] :]))
    along = [n if i == axis else 1 for i, n in enumerate(shape)]
    scale = RNG.uniform(0.1, 1.0, along).astype(np.float32)
    zero_point = RNG.integers(-9, 9, along)
    values = RNG.integers(-128, 128, shape)
    found = Grid(scale, zero_point, "int8").reshaped(shape, into)
    assert found is not None
    expected = ((values - zero_point) * scale).reshape(into)
    np.testing.assert_array_equal((values.reshape(into) - found.zero_point) * found.scale, expected)


@pytest.mark.parametrize(
    ("varies", "into"), [((3, 4, 1), (12,)), ((1, 4, 1), (2, 6, 2)), ((1, 4, 1), (4, 3, 2))]
)
def test_a_grid_whose_axis_is_gone_is_none(varies: tuple[int, ...], into: tuple[int, ...]) -> None:
    scale = RNG.uniform(0.1, 1.0, varies).astype(np.float32)
    shape = tuple(np.maximum(varies, (3, 4, 1)).tolist()) if into == (12,) else (3, 4, 2)
    assert Grid(scale, np.zeros(varies, np.int64), "int8").reshaped(shape, into) is None


def test_a_chain_of_one_byte_is_a_table() -> None:
    net = Net((1, 300))
    x = net.dequantize(net.input, 0.05, -3)
    three, sixth = (net.builder.tensor("c", np.array(value, np.float32)) for value in (3, 1 / 6))
    y = net.emit(relax.op.clip(net.emit(relax.op.add(x, three)), 0, 6))
    y = net.emit(relax.op.multiply(net.emit(relax.op.multiply(x, y)), sixth), "hardswish")
    left = compare(net.finish(net.quantize(y, 0.03, -10, True)), sample((1, 300)), "torch", 0)
    assert left == ["qnn.table"]


def test_sums_and_products_of_two() -> None:
    for function in (relax.op.add, relax.op.multiply):
        net = Net((1, 3, 4, 4), "uint8")
        x = net.dequantize(net.input, 0.05, 3)
        other = net.builder.tensor("other", RNG.integers(0, 256, (3, 1, 1)).astype(np.uint8))
        y = net.emit(function(x, net.dequantize(other, 0.02, 140)))
        left = compare(
            net.finish(net.quantize(y, 0.07, 99)), sample((1, 3, 4, 4), "uint8"), "onnx", 1
        )
        assert len(left) == 1


def test_concatenated_grids_go_through_tables() -> None:
    net = Net((1, 3, 4))
    x = net.dequantize(net.input, 0.05, 3)
    other = net.builder.tensor("other", RNG.integers(-128, 128, (1, 2, 4)).astype(np.int8))
    y = net.emit(relax.op.concat([x, net.dequantize(other, 0.02, 14)], 1))
    left = compare(net.finish(net.quantize(y, 0.05, 3)), sample((1, 3, 4)), "onnx", 0)
    assert left == ["qnn.table", "concat"]


def test_a_mean_over_the_image() -> None:
    net = Net((1, 3, 5, 4))
    y = net.emit(relax.op.mean(net.dequantize(net.input, 0.05, 3), [2, 3], keepdims=True))
    left = compare(net.finish(net.quantize(y, 0.02, 5)), sample((1, 3, 5, 4)), "onnx", 1)
    assert "qnn.rescale" in left and "mean" not in left


def test_what_fits_no_rule_stays_an_island() -> None:
    net = Net((1, 3, 5, 4))
    x = net.dequantize(net.input, 0.05, 3)
    y = net.emit(relax.op.subtract(x, net.emit(relax.op.mean(x, [2, 3], keepdims=True))))
    left = compare(net.finish(net.quantize(y, 0.02, 5), y), sample((1, 3, 5, 4)), "onnx", 0)
    assert left == ["qnn.dequantize_linear", "mean", "subtract", "qnn.quantize_linear"]


def test_two_readers_keep_the_float_result() -> None:
    """ONNX Runtime does not fuse an operator whose float result something else reads."""
    net = Net((1, 4))
    x = net.dequantize(net.input, 0.05, 3)
    y = net.emit(relax.op.add(x, net.dequantize(net.input, 0.03, 1)))
    left = compare(net.finish(net.quantize(y, 0.02, 5), y), sample((1, 4)), "onnx", 0)
    assert "qnn.qlinear_add" not in left


def test_parameters_that_nothing_reads_are_gone() -> None:
    before = conv_net()
    after = to_integers(before, "onnx")
    kinds = {dtype_of(each.ty) for each in after.module["main"].params}
    assert kinds == {"int8", "int32", "float32"}
    assert sum(value.dtype == np.float32 for value in after.params.values()) == 1
    assert not any(
        is_op(b.value, "relax.add") and dtype_of(b.var.ty) == "float32"
        for b in bindings_of(after.module["main"])
    )
