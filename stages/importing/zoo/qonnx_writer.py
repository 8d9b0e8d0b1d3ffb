"""Writing QONNX files: nodes are added one by one and executed at once on a sample.

Executing while writing is what calibration stands on: the statistics of a layer are known when
its batch normalization is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from stages.importing.onnx import source_arithmetic as arithmetic
from stages.importing.onnx.onnx_reader import QONNX
from stages.importing.sliding_windows import Windows

Array = np.ndarray[Any, Any]

OPSET = 13
IR_VERSION = 8
"""As old as opset 13 allows, so that older readers take the file too."""


@dataclass(frozen=True)
class Quantizer:
    """A QONNX quantizer with one scale for the whole tensor.

    `bipolar` means BipolarQuant: `scale` where the value is at least 0, else `-scale`.
    """

    scale: float
    bits: int
    signed: bool = False
    narrow: bool = False
    zero_point: float = 0.0
    bipolar: bool = False

    def levels(self) -> tuple[float, float]:
        """Smallest and largest value."""
        if self.bipolar:
            return -self.scale, self.scale
        low, high = arithmetic.quant_limits(self.bits, self.signed, self.narrow)
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    @property
    def unit(self) -> float:
        """What all values are whole multiples of: half the scale at a half-integer zero point."""
        halves = self.zero_point != int(self.zero_point)
        return self.scale / 2 if halves else self.scale

    @property
    def largest(self) -> int:
        """The largest value in units; bipolar ones are odd."""
        return int(max(abs(level) for level in self.levels()) / self.unit)

    def apply(self, x: Array) -> Array:
        """Quantize and dequantize."""
        scale = np.asarray(self.scale, np.float32)
        zero_point = np.asarray(self.zero_point, np.float32)
        if self.bipolar:
            return arithmetic.bipolar_quant(x, scale)
        return arithmetic.quant(x, scale, zero_point, self.bits, self.signed, self.narrow, "ROUND")


@dataclass(frozen=True)
class BatchNorm:
    """Parameters of a batch normalization, float32 [channels] each."""

    gamma: Array
    beta: Array
    mean: Array
    variance: Array
    epsilon: float


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph and its value on the sample."""

    name: str
    value: Array


class QonnxWriter:
    """One QONNX graph under construction; every node's output tensor is `<node>_out`."""

    def __init__(self, name: str, input_name: str, sample: Array) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self.input = Tensor(input_name, sample)

    def quantize(self, node: str, x: Tensor, quantizer: Quantizer) -> Tensor:
        """Quant or BipolarQuant."""
        inputs = [x.name, self._scalar("scale", quantizer.scale)]
        attributes: dict[str, Any] = {}
        if not quantizer.bipolar:
            inputs.append(self._scalar("zero_point", quantizer.zero_point))
            inputs.append(self._scalar("bits", quantizer.bits))
            attributes = {
                "signed": int(quantizer.signed),
                "narrow": int(quantizer.narrow),
                "rounding_mode": "ROUND",
            }
        op = "BipolarQuant" if quantizer.bipolar else "Quant"
        return self._add(op, node, inputs, quantizer.apply(x.value), domain=QONNX, **attributes)

    def weights(self, layer: str, value: Array, quantizer: Quantizer) -> Tensor:
        """A weight tensor as an initializer and the quantizer behind it."""
        return self.quantize(f"{layer}.weight_quant", self.constant(layer, value), quantizer)

    def constant(self, layer: str, value: Array) -> Tensor:
        """Weights that stay float."""
        return Tensor(self._tensor(f"{layer}.weight", value), np.asarray(value, np.float32))

    def conv(
        self, node: str, x: Tensor, weight: Tensor, stride: int, pad: int, groups: int = 1
    ) -> Tensor:
        """Conv with a square kernel."""
        kernel = weight.value.shape[2]
        windows = Windows((kernel, kernel), (stride, stride), (1, 1), (pad, pad, pad, pad))
        own: dict[str, Any] = {"group": groups} if groups > 1 else {}
        return self._add(
            "Conv",
            node,
            [x.name, weight.name],
            arithmetic.conv2d(x.value, weight.value, windows, groups),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            **own,
        )

    def batch_norm(self, node: str, x: Tensor, norm: BatchNorm) -> Tensor:
        """BatchNormalization at inference."""
        arrays = (norm.gamma, norm.beta, norm.mean, norm.variance)
        names = ("weight", "bias", "running_mean", "running_var")
        inputs = [
            self._tensor(f"{node}.{name}", array) for name, array in zip(names, arrays, strict=True)
        ]
        value = arithmetic.batch_norm(x.value, *arrays, norm.epsilon)
        return self._add("BatchNormalization", node, [x.name, *inputs], value, epsilon=norm.epsilon)

    def relu(self, node: str, x: Tensor) -> Tensor:
        """Relu."""
        return self._add("Relu", node, [x.name], np.maximum(x.value, np.float32(0)))

    def add(self, node: str, left: Tensor, right: Tensor) -> Tensor:
        """Add."""
        return self._add("Add", node, [left.name, right.name], left.value + right.value)

    def max_pool(self, node: str, x: Tensor, kernel: int, stride: int, pad: int) -> Tensor:
        """MaxPool with a square kernel."""
        windows = Windows((kernel, kernel), (stride, stride), (1, 1), (pad, pad, pad, pad))
        return self._add(
            "MaxPool",
            node,
            [x.name],
            arithmetic.max_pool2d(x.value, windows),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def global_average_pool(self, node: str, x: Tensor) -> Tensor:
        """GlobalAveragePool."""
        value = x.value.mean(axis=(2, 3), keepdims=True, dtype=np.float32)
        return self._add("GlobalAveragePool", node, [x.name], value)

    def flatten(self, node: str, x: Tensor) -> Tensor:
        """Flatten to [N, features]."""
        return self._add("Flatten", node, [x.name], x.value.reshape(len(x.value), -1), axis=1)

    def gemm(self, node: str, x: Tensor, weight: Tensor, bias: Array, output: str) -> Tensor:
        """Gemm with weights [outputs, features]; `output` names the result."""
        inputs = [x.name, weight.name, self._tensor(f"{node}.bias", bias)]
        value = x.value @ weight.value.T + bias
        return self._add("Gemm", node, inputs, value, output=output, transB=1)

    def finish(self, output: Tensor, batch: int = 1, also: Sequence[Tensor] = ()) -> bytes:
        """The file's bytes, for `batch` inputs at a time, with further outputs; equal graphs give
        equal bytes."""
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [self._info(self.input, batch)],
            [self._info(each, batch) for each in (output, *also)],
            initializer=list(self._initializers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(QONNX, 1)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="bitkiln", ir_version=IR_VERSION
        )
        return bytes(model.SerializeToString(deterministic=True))

    def _add(
        self,
        op: str,
        node: str,
        inputs: Sequence[str],
        value: Array,
        *,
        output: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Tensor:
        result = output or f"{node}_out"
        self._nodes.append(
            helper.make_node(op, list(inputs), [result], name=node, domain=domain, **attributes)
        )
        return Tensor(result, np.asarray(value, np.float32))

    def _tensor(self, name: str, value: Array) -> str:
        array = np.ascontiguousarray(value, np.float32)
        self._initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def _scalar(self, kind: str, value: float) -> str:
        """A scalar initializer, shared by all nodes that need this value."""
        name = f"{kind}_{float(value)!r}"
        scalar = np.asarray(value, np.float32)
        self._initializers.setdefault(name, onnx.numpy_helper.from_array(scalar, name))
        return name

    @staticmethod
    def _info(tensor: Tensor, batch: int) -> onnx.ValueInfoProto:
        """A float32 value for a batch, whatever the size of the calibration sample."""
        shape = [batch, *tensor.value.shape[1:]]
        return helper.make_tensor_value_info(tensor.name, onnx.TensorProto.FLOAT, shape)
