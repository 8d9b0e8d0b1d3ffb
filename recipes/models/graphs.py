"""ONNX graphs under construction, float or quantized as tools write it, with random weights that
keep values around 1 where a caller has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
OPSET = 17


class Net:
    """A graph whose one input has a shape; names of tensors are those of their nodes."""

    def __init__(self, shape: Sequence[int], seed: int = 0, input_name: str = "x") -> None:
        self.rng = np.random.default_rng(seed)
        self.shape, self.input = tuple(shape), input_name
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """A tensor of the file."""
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A node of one result."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def split(self, x: str, sizes: Sequence[int], axis: int, name: str) -> list[str]:
        """Parts along an axis."""
        parts = [f"{name}.{number}" for number in range(len(sizes))]
        inputs = [x, self.constant(f"{name}.sizes", sizes, np.int64)]
        self.nodes.append(helper.make_node("Split", inputs, parts, name, axis=axis))
        return parts

    def reshape(self, x: str, shape: Sequence[int], name: str) -> str:
        """Another shape."""
        return self.op("Reshape", [x, self.constant(f"{name}.shape", shape, np.int64)], name)

    def weights(self, name: str, shape: Sequence[int], depth: int, gain: float = 1.0) -> str:
        """Normal, of a variance that keeps that of `depth` numbers (He et al. 2015)."""
        return self.constant(name, self.rng.normal(size=shape) * gain / np.sqrt(depth))

    def conv(
        self, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1
    ) -> str:
        """A convolution with a bias, half its window padded."""
        depth = inputs * kernel * kernel
        weight = self.weights(f"{name}.w", (outputs, inputs, kernel, kernel), depth, 1.4)
        bias = self.constant(f"{name}.b", self.rng.normal(size=outputs) / 4)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.op("Conv", [x, weight, bias], name, pads=pads, strides=strides)

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A product with weights, and a bias."""
        product = self.op(
            "MatMul", [x, self.weights(f"{name}.w", (inputs, outputs), inputs)], f"{name}.p"
        )
        bias = self.constant(f"{name}.b", self.rng.normal(size=outputs) / 4)
        return self.op("Add", [product, bias], name)

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The file, its shapes inferred."""
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "exported",
            [helper.make_tensor_value_info(self.input, kind, self.shape)],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.constants,
        )
        imports = [helper.make_opsetid("", OPSET)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=imports, ir_version=9)
        )


class QdqNet(Net):
    """A network whose tensors pass QuantizeLinear and DequantizeLinear."""

    def grid(self, x: str, scale: float, zero_point: int = 128) -> str:
        """A tensor on a grid of uint8."""
        grid = [
            self.constant(f"{x}.scale", scale),
            self.constant(f"{x}.zero", zero_point, np.uint8),
        ]
        stored = self.op("QuantizeLinear", [x, *grid], f"{x}.q")
        return self.op("DequantizeLinear", [stored, *grid], f"{x}.dq")

    def stored(self, name: str, values: Any, scale: float, zero_point: int = 0) -> str:
        """Weights as they are stored, dequantized."""
        inputs = [
            self.constant(f"{name}.q", values, values.dtype),
            self.constant(f"{name}.scale", np.full(len(values), scale)),
            self.constant(f"{name}.zero", np.full(len(values), zero_point), values.dtype),
        ]
        return self.op("DequantizeLinear", inputs, name, axis=0)
