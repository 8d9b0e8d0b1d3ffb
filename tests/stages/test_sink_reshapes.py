"""What follows a product of rows is computed in its shape, whatever shape the model sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages.dialect.calls import shape_of
from stages.graph import interpret
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.builder import ModelBuilder
from stages.graph.composites import LINEAR, TE
from stages.kinds import Model
from stages.numerics import linear_quantizers, qlinear
from stages.numerics.quantization import Quantization
from stages.quantizing.sink_reshapes import SinkReshapes
from tests.stages.packaging.programs import assert_exact
from tests.targets import AVX2, skip_unless_runnable

op = relax.op
ROWS = (2, 3)
OUT = Quantization.of_type(0.5, 3, "int8")


class Net:
    """A product of 2 x 3 rows, and what follows in the model's own shape [2, 3, 8]."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.builder = ModelBuilder()
        self.x = self.builder.input("x", (*ROWS, 16), "uint8")
        weight = self.tensor((16, 8))
        self.y = qlinear.product(
            self.builder, "dense", self.x, weight, None, data_zero_point=3, weight_zero_point=0
        )

    def tensor(self, shape: tuple[int, ...], dtype: str = "int8") -> Any:
        return self.builder.tensor("t", self.rng.integers(-99, 99, shape).astype(dtype))

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr, "v")

    def model(self, *outputs: Any) -> Model:
        names = [f"y{number}" for number in range(len(outputs))]
        return self.builder.model(outputs, names, attrs={"numerics": "onnx"})

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": self.rng.integers(0, 256, (*ROWS, 16)).astype(np.uint8)}


def shapes(model: Model) -> list[tuple[int, ...]]:
    """Shapes of sums and of what follows, without what the model returns."""
    calls = [b for b in bindings_of(model.module["main"]) if isinstance(b.value, relax.Call)]
    return [shape_of(b.var.ty) for b in calls if str(b.value.op.name) != "relax.reshape"]


def assert_in_rows(model: Model, inputs: dict[str, np.ndarray[Any, Any]]) -> None:
    found = SinkReshapes(model).run()
    assert all(shape[-1:] != (8,) or len(shape) == 2 for shape in shapes(found)), shapes(found)
    expected = interpret.run(model, inputs)
    for name, value in interpret.run(found, inputs).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (8,), (1, 8), (1, 1, 8), (2, 3, 8)])
def test_constants_broadcast_as_before(shape: tuple[int, ...]) -> None:
    net = Net()
    y = net.emit(op.add(net.y, net.tensor(shape, "int32")))
    y = qlinear.rescaled(net.builder, "out", y, np.asarray(1e-3, np.float32), OUT)
    assert_in_rows(net.model(y), net.inputs())


def test_computed_tensors_go_along() -> None:
    """Those of the same shape, and scalars; what is no product's keeps its own shape."""
    net = Net()
    wide = net.emit(op.astype(net.x, "int32"))
    every = net.emit(op.strided_slice(wide, [2], [0], [8]))
    largest = net.emit(op.max(wide, [0, 1, 2], keepdims=True))
    y = net.emit(op.add(net.emit(op.add(net.y, every)), largest))
    model, inputs = net.model(net.emit(op.multiply(y, net.y))), net.inputs()
    assert shapes(SinkReshapes(model).run()).count((6, 8)) == 4
    found, expected = (interpret.run(m, inputs)["y0"] for m in (SinkReshapes(model).run(), model))
    np.testing.assert_array_equal(found, expected)


def test_what_broadcasts_along_other_axes_stays() -> None:
    net = Net()
    y = net.emit(op.add(net.y, net.tensor((2, 1, 1), "int32")))
    model = net.model(y)
    inputs = net.inputs()
    assert (2, 3, 8) in shapes(SinkReshapes(model).run())
    np.testing.assert_array_equal(
        interpret.run(SinkReshapes(model).run(), inputs)["y0"], interpret.run(model, inputs)["y0"]
    )


def test_a_kernel_computes_what_follows() -> None:
    skip_unless_runnable(AVX2)
    net = Net()
    y = net.emit(op.add(net.y, net.tensor((8,), "int32")))
    scale = net.builder.tensor("scale", np.linspace(0.1, 1, 8).astype(np.float32))
    zero = net.builder.tensor("zero", np.zeros((), np.int32))
    y = net.emit(linear_quantizers.dequantize_linear(y, scale, zero))
    model, inputs = net.model(net.emit(op.nn.relu(y))), net.inputs()
    packed, _ = assert_exact(model, inputs, AVX2)
    kinds = [str(function.attrs["composite"]) for _, function in calls_of(packed)]
    assert kinds == [TE, LINEAR, TE], "what lays the input out, and copies the output"
