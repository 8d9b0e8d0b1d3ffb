"""Writing a filled network as an ONNX file: quantized (QDQ) or float32.

The quantized form is the one that quantization tools write and runtimes recognize: every tensor
passes QuantizeLinear and DequantizeLinear, weights are int8 with a scale per output channel, and
biases int32 at the input's scale times the weights'. The float form holds the same real weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from stages.importing.zoo.filling import Filled, Weights
from stages.importing.zoo.network import INPUT, Layer
from stages.importing.zoo.qonnx_writer import IR_VERSION, OPSET

Array = np.ndarray[Any, Any]

OUTPUT = "out"
_OPS = {
    "conv": "Conv",
    "dense": "Gemm",
    "add": "Add",
    "concat": "Concat",
    "max_pool": "MaxPool",
    "average_pool": "AveragePool",
    "global_average_pool": "GlobalAveragePool",
}


def write(filled: Filled, batch: int, *, quantized: bool) -> bytes:
    """The file's bytes: `data` float32 [batch, C, H, W] to `out` float32 [batch, classes]."""
    return _Writer(filled, quantized).write(batch)


class _Writer:
    def __init__(self, filled: Filled, quantized: bool) -> None:
        self._filled, self._quantized = filled, quantized
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._float: dict[str, str] = {}
        """Layer → the float32 tensor its readers take."""

    def write(self, batch: int) -> bytes:
        layers = self._filled.network.layers
        self._float[INPUT] = self._through_quantizers(INPUT, INPUT, INPUT)
        for layer in layers:
            is_last = layer is layers[-1]
            raw = self._operator(layer, is_last)
            result = OUTPUT if is_last else f"{layer.name}_dequantized"
            self._float[layer.name] = self._through_quantizers(layer.name, raw, layer.name, result)
        shape = [batch, *self._filled.network.image]
        image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, shape)
        scores = [batch, layers[-1].shape[0]]
        graph = helper.make_graph(
            self._nodes,
            "network",
            [image],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, scores)],
            initializer=list(self._initializers.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="bitkiln",
            ir_version=IR_VERSION,
        )
        return bytes(model.SerializeToString(deterministic=True))

    def _operator(self, layer: Layer, is_last: bool) -> str:
        """The layer's node and the activation behind it; the name of the float tensor."""
        inputs = [self._float[name] for name in layer.inputs]
        if layer.op == "dense":
            inputs = [self._flattened(layer.inputs[0])]
        if layer.op in ("conv", "dense"):
            weights = self._filled.weights[layer.name]
            scale = self._filled.tensors[layer.inputs[0]].scale
            inputs += [self._weight(layer.name, weights), self._bias(layer.name, weights, scale)]
        unquantized_last = is_last and not self._quantized
        result = OUTPUT if unquantized_last else f"{layer.name}_out"
        self._node(_OPS[layer.op], layer.name, inputs, result, **_attributes(layer))
        if layer.activation == "none":
            return result
        active = f"{layer.name}_{layer.activation}_out"
        bounds = []
        if layer.activation == "relu6":
            bounds = [self._scalar("zero", np.float32(0)), self._scalar("six", np.float32(6))]
        op = "Clip" if bounds else "Relu"
        self._node(op, f"{layer.name}.{layer.activation}", [result, *bounds], active)
        return active

    def _flattened(self, source: str) -> str:
        flat = f"{source}_flat"
        self._node("Flatten", f"{source}.flatten", [self._float[source]], flat, axis=1)
        return self._through_quantizers(f"{source}.flat", flat, source)

    def _through_quantizers(self, name: str, tensor: str, layer: str, result: str = "") -> str:
        """The tensor behind QuantizeLinear and DequantizeLinear as a layer has them."""
        if not self._quantized:
            return tensor
        of = self._filled.tensors[layer]
        scale = self._scalar(f"scale_{float(of.scale)!r}", of.scale)
        stored_zero = np.dtype(of.dtype).type(of.zero_point.whole)
        zero_point = self._scalar(f"zero_point_{of.dtype}_{of.zero_point}", stored_zero)
        stored, real = f"{name}_quantized", result or f"{name}_dequantized"
        self._node("QuantizeLinear", f"{name}.quantize", [tensor, scale, zero_point], stored)
        self._node("DequantizeLinear", f"{name}.dequantize", [stored, scale, zero_point], real)
        return real

    def _weight(self, layer: str, weights: Weights) -> str:
        if not self._quantized:
            scales = weights.scales.reshape(-1, *(1,) * (weights.values.ndim - 1))
            return self._tensor(f"{layer}.weight", weights.values.astype(np.float32) * scales)
        return self._dequantized(f"{layer}.weight", weights.values, weights.scales)

    def _bias(self, layer: str, weights: Weights, scale: np.float32) -> str:
        scales = weights.scales * scale
        if not self._quantized:
            return self._tensor(f"{layer}.bias", weights.bias.astype(np.float32) * scales)
        return self._dequantized(f"{layer}.bias", weights.bias, scales)

    def _dequantized(self, name: str, values: Array, scales: Array) -> str:
        zeros = np.zeros(len(scales), values.dtype)
        inputs = [
            self._tensor(f"{name}_quantized", values),
            self._tensor(f"{name}_scale", scales),
            self._tensor(f"{name}_zero_point", zeros),
        ]
        self._node("DequantizeLinear", f"{name}.dequantize", inputs, name, axis=0)
        return name

    def _node(
        self, op: str, name: str, inputs: Sequence[str], output: str, **attributes: Any
    ) -> None:
        self._nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))

    def _tensor(self, name: str, value: Array) -> str:
        array = np.ascontiguousarray(value)
        self._initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def _scalar(self, name: str, value: np.generic) -> str:
        """A scalar initializer, shared by all nodes that need this value."""
        if name not in self._initializers:
            self._initializers[name] = onnx.numpy_helper.from_array(np.asarray(value), name)
        return name


def _attributes(layer: Layer) -> dict[str, Any]:
    if layer.op == "dense":
        return {"transB": 1}
    if layer.op == "concat":
        return {"axis": 1}
    if layer.op not in ("conv", "max_pool", "average_pool"):
        return {}
    attributes: dict[str, Any] = {
        "kernel_shape": list(layer.kernel),
        "strides": [layer.stride, layer.stride],
        "pads": list(layer.pads),
    }
    if layer.op == "conv" and layer.groups > 1:
        attributes["group"] = layer.groups
    return attributes
