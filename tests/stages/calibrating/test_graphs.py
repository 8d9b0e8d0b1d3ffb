"""What folding leaves of a graph, and which of its tensors get a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages.calibrating import quantized, run
from stages.calibrating.fold_into_layers import fold
from stages.calibrating.roles import roles
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Golden, Model
from stages.numerics import qonnx_operators
from stages.options import CalibrateOptions
from tests.stages.importing.compiling import in_relax

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


class Net:
    """A float graph under construction, from `x` to `y`."""

    def __init__(self, *shape: int) -> None:
        self.builder = ModelBuilder()
        self.shape = shape
        self.x = self.builder.input("x", shape, "float32")

    def tensor(self, value: Array) -> Any:
        return self.builder.tensor("c", np.asarray(value, np.float32))

    def emit(self, call: Any, name: str = "op") -> Any:
        return self.builder.emit(call, name)

    def conv(self, x: Any, channels: int, kernel: int = 3, name: str = "conv", **more: Any) -> Any:
        depth = int(x.ty.shape[1])
        weight = self.tensor(floats(channels, depth, kernel, kernel))
        padding = [kernel // 2] * 4
        return self.emit(relax.op.nn.conv2d(x, weight, padding=padding, **more), name)

    def norm(self, x: Any, channels: int) -> Any:
        operands = [floats(channels), floats(channels), floats(channels), floats(channels) ** 2]
        tensors = [self.tensor(value) for value in operands]
        return self.emit(qonnx_operators.batch_norm(x, *tensors, epsilon=1e-3), "norm")

    def finish(self, *outputs: Any) -> Model:
        return self.builder.model(outputs, [f"y{i}" for i in range(len(outputs))])

    def samples(self, count: int = 6) -> Golden:
        return Golden({"x": floats(count, *self.shape)}, {})


def operators(model: Model) -> list[str]:
    values = [binding.value for binding in bindings_of(model.module["main"])]
    return [str(value.op.name).removeprefix("relax.") for value in values if hasattr(value, "op")]


def same_function(before: Model, after: Model, shape: tuple[int, ...]) -> None:
    inputs = {"x": floats(*shape)}
    expected, found = interpret.run(before, inputs), interpret.run(after, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-4)


def quantized_names(model: Model) -> set[str]:
    return {str(variable.name) for variable in roles(model.module["main"]).quantized}


def close(net: Net, model: Model, share: float = 0.05) -> Model:
    """Check that the quantized model's outputs are near the float one's; the integer model."""
    samples = net.samples()
    made = run(model=model, samples=samples, options=CalibrateOptions())
    for sample in samples.inputs["x"]:
        expected, found = (interpret.run(each, {"x": sample}) for each in (model, made))
        for name, value in expected.items():
            assert np.abs(found[name] - value).max() <= share * np.abs(value).max()
    return made


def test_norms_scales_and_biases_fold_into_a_convolution() -> None:
    net = Net(1, 3, 6, 6)
    y = net.conv(net.x, 4)
    y = net.emit(relax.op.add(y, net.tensor(floats(1, 4, 1, 1))))
    y = net.norm(y, 4)
    y = net.emit(relax.op.multiply(net.tensor(floats(4, 1, 1)), y))
    y = net.emit(relax.op.subtract(net.tensor(np.array(2.0)), y))
    y = net.emit(relax.op.divide(y, net.tensor(np.array(0.5))))
    before = net.finish(net.emit(relax.op.nn.relu(y)))
    after = fold(before)
    assert operators(after) == ["nn.conv2d", "add", "nn.relu"]
    same_function(before, after, net.shape)


def test_a_matrix_product_takes_in_its_transposed_weights_and_bias() -> None:
    net = Net(2, 5)
    weight = net.emit(relax.op.permute_dims(net.tensor(floats(7, 5)), [1, 0]), "transposed")
    y = net.emit(relax.op.matmul(net.x, weight), "dense")
    y = net.emit(relax.op.multiply(y, net.tensor(np.array(0.25))))
    before = net.finish(net.emit(relax.op.add(y, net.tensor(floats(7)))))
    after = fold(before)
    assert operators(after) == ["matmul", "add"]
    same_function(before, after, net.shape)


def test_what_two_read_is_not_folded() -> None:
    net = Net(1, 3, 6, 6)
    y = net.conv(net.x, 4)
    before = net.finish(net.emit(relax.op.nn.relu(y)), net.norm(y, 4))
    after = fold(before)
    assert operators(after) == ["nn.conv2d", "nn.relu", "qnn.batch_norm"]
    same_function(before, after, net.shape)


@pytest.mark.parametrize("kernel_layout", ["OHWI", "HWIO"])
def test_nhwc_becomes_nchw_between_transposes(kernel_layout: str) -> None:
    net = Net(1, 6, 5, 3)
    ohwi = floats(4, 3, 3, 3)
    weight = ohwi.transpose(["OHWI".index(axis) for axis in kernel_layout])
    layouts = {"data_layout": "NHWC", "kernel_layout": kernel_layout}
    padding = [1, 0, 1, 2]
    call = relax.op.nn.conv2d(net.x, net.tensor(weight), padding=padding, strides=[2, 1], **layouts)
    y = net.emit(call, "conv")
    y = net.emit(relax.op.add(y, net.tensor(floats(4))))
    y = net.emit(relax.op.nn.relu(y), "relu")
    y = net.emit(relax.op.nn.max_pool2d(y, [2, 2], layout="NHWC"), "pool")
    before = net.finish(y)
    after = fold(before)
    assert operators(after) == [
        "permute_dims", "nn.conv2d", "add", "permute_dims", "nn.relu",
        "permute_dims", "nn.max_pool2d", "permute_dims",
    ]  # fmt: skip
    inputs = {"x": floats(*net.shape)}
    np.testing.assert_allclose(
        in_relax(before, inputs), interpret.run(after, inputs)["y0"], rtol=1e-4, atol=1e-4
    )


def test_layers_of_a_channels_last_file_are_quantized_as_any() -> None:
    """Transposes before and after each convolution, the bias behind them."""
    net = Net(1, 6, 6, 3)
    y = net.emit(relax.op.permute_dims(net.x, [0, 3, 1, 2]), "conv.nchw")
    y = net.emit(relax.op.permute_dims(net.conv(y, 4), [0, 2, 3, 1]), "conv.nhwc")
    y = net.emit(relax.op.nn.relu(net.emit(relax.op.add(y, net.tensor(floats(4))), "bias")), "relu")
    y = net.emit(relax.op.permute_dims(y, [0, 3, 1, 2]), "last.nchw")
    y = net.emit(relax.op.permute_dims(net.conv(y, 2, name="last"), [0, 2, 3, 1]), "last.nhwc")
    model = net.finish(net.emit(relax.op.add(y, net.tensor(floats(2))), "last.bias"))
    made = operators(close(net, model))
    assert made.count("qnn.rescale") == 2 and "qnn.qlinear_add" not in made
    assert made.count("qnn.quantize_linear") == made.count("qnn.dequantize_linear") == 1


def test_a_layer_has_one_grid_behind_its_bias_and_relu() -> None:
    net = Net(1, 3, 6, 6)
    y = net.emit(relax.op.nn.relu(net.norm(net.conv(net.x, 4), 4)), "relu")
    y = net.emit(relax.op.nn.max_pool2d(y, [2, 2], strides=[2, 2]), "pool")
    y = net.emit(relax.op.reshape(y, (1, 36)), "flat")
    y = net.emit(relax.op.matmul(y, net.tensor(floats(36, 5))), "dense")
    model = net.finish(y)
    assert quantized_names(fold(model)) == {"x", "relu", "dense"}
    made = close(net, model)
    assert {"qnn.conv2d", "qnn.dense"} <= set(operators(made))
    assert "matmul" not in operators(made)


def test_a_chain_of_functions_of_one_tensor_is_one_table() -> None:
    net = Net(1, 3, 6, 6)
    x = net.conv(net.x, 4)
    y = net.emit(relax.op.clip(net.emit(relax.op.add(x, net.tensor(np.array(3.0)))), 0, 6))
    y = net.emit(relax.op.multiply(x, y))
    y = net.emit(relax.op.multiply(y, net.tensor(np.array(1 / 6))), "swish")
    model = net.finish(net.conv(y, 2, name="last"))
    assert quantized_names(fold(model)) == {"x", "conv", "swish", "last"}
    assert operators(close(net, model)).count("qnn.table") == 1


def test_operands_of_a_concatenation_share_its_grid() -> None:
    net = Net(1, 3, 6, 6)
    left, right = net.conv(net.x, 4, name="left"), net.conv(net.x, 4, name="right")
    y = net.emit(relax.op.concat([left, right], 1), "both")
    model = net.finish(net.conv(y, 2, name="last"))
    made = close(net, model)
    assert "qnn.table" not in operators(made) and "concat" in operators(made)
    found = roles(fold(model).module["main"])
    assert {str(a.name): str(b.name) for a, b in found.shared.items()} == {
        "left": "both", "right": "both",
    }  # fmt: skip


def test_a_constant_map_behind_a_convolution_is_no_bias() -> None:
    net = Net(1, 3, 6, 6)
    y = net.emit(relax.op.add(net.conv(net.x, 3), net.tensor(floats(3, 6, 6))), "position")
    model = net.finish(y)
    assert quantized_names(fold(model)) == {"x", "conv", "position"}
    assert "qnn.qlinear_add" in operators(close(net, model))


def test_sums_of_two_tensors_and_of_a_tensor_and_a_constant() -> None:
    net = Net(1, 3, 6, 6)
    y = net.conv(net.x, 3)
    y = net.emit(relax.op.add(y, net.x), "sum")
    y = net.emit(relax.op.add(y, net.tensor(floats(3, 6, 6))), "position")
    model = net.finish(net.emit(relax.op.nn.relu(y), "relu"))
    assert quantized_names(fold(model)) == {"x", "conv", "sum", "relu"}
    assert operators(close(net, model)).count("qnn.qlinear_add") == 2


def test_a_softmax_at_the_end_stays_float() -> None:
    net = Net(1, 8)
    y = net.emit(relax.op.matmul(net.x, net.tensor(floats(8, 5))), "dense")
    model = net.finish(net.emit(relax.op.nn.softmax(y), "softmax"))
    assert quantized_names(fold(model)) == {"x", "dense"}


def test_a_tensor_of_zeros_does_no_harm() -> None:
    net = Net(1, 3, 6, 6)
    y = net.emit(relax.op.multiply(net.conv(net.x, 4), net.tensor(np.zeros((4, 1, 1)))), "none")
    model = net.finish(net.emit(relax.op.add(net.conv(y, 3, name="last"), net.x), "sum"))
    made = quantized(model=model, samples=net.samples(), options=CalibrateOptions())
    result = interpret.run(made, {"x": floats(1, 3, 6, 6)})["y0"]
    assert np.isfinite(result).all() and np.abs(result).max() > 0


def test_a_large_bias_on_small_weights_still_fits() -> None:
    net = Net(1, 3, 6, 6)
    weight = net.tensor(floats(4, 3, 1, 1) * np.float32(1e-9))
    y = net.emit(relax.op.nn.conv2d(net.x, weight), "conv")
    model = net.finish(net.emit(relax.op.add(y, net.tensor(floats(1, 4, 1, 1) * 100)), "bias"))
    close(net, model, 0.01)
