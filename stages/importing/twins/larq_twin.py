"""The Larq twin of a network with bipolar layers: what Larq Compute Engine runs in its place.

A convolution of bipolar activations with bipolar weights becomes LceBconv2d, with the batch norm
behind it as its factors; other quantizers are identities and other layers float32, as Larq's own
converter leaves them. Windows lie where TensorFlow's SAME puts them, one pixel off where a stride
leaves ONNX's padding uneven: the twin does the network's work, and may differ in its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stages.errors import StageError
from stages.importing.onnx import source_arithmetic as arithmetic
from stages.importing.onnx.onnx_importer import package_outputs
from stages.importing.onnx.onnx_reader import Node, SourceGraph, read
from stages.importing.sliding_windows import Windows, windows_of
from stages.importing.twins import tflite_operators as operations
from stages.importing.twins.tflite_operators import F32, PACKED, VALID
from stages.importing.twins.tflite_writer import Operation, Tensor, build, constant

Array = np.ndarray[Any, Any]


class NoTwinError(StageError):
    """A network has no Larq twin; the message says why."""


def twin(source: bytes) -> bytes:
    """Return the .tflite file of a QONNX file's twin, float32 NCHW in and float32 out.

    NoTwinError names what Larq has no operator for, or says that no layer is bipolar.
    """
    return _Writer(read(source)).write()


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the twin, NHWC; of packed signs also their channels and the size of each."""

    tensor: Tensor
    channels: int
    size: float | None = None

    @property
    def extents(self) -> tuple[int, int]:
        """Height and width."""
        return self.tensor.shape[1], self.tensor.shape[2]


class _Writer:
    def __init__(self, graph: SourceGraph) -> None:
        self._graph = graph
        self._constants = dict(graph.constants)
        self._values: dict[str, Value] = {}
        self._operations: list[Operation] = []
        self._folded: set[str] = set()
        """Batch norms that are factors of the layers before them."""
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)

    def write(self) -> bytes:
        inputs = [self._input(item.name, item.shape) for item in self._graph.inputs]
        outputs, cut = package_outputs(self._graph)
        for node in self._graph.nodes:
            if node.layer not in self._folded and node not in cut:
                self._convert(node)
        if not any(operation.op == "LceBconv2d" for operation in self._operations):
            raise NoTwinError("no convolution is of bipolar operands")
        return build(self._operations, inputs, [self._values[name].tensor for name in outputs])

    def _input(self, name: str, shape: tuple[int | None, ...]) -> Tensor:
        """The file's input in ONNX's layout; what is inside reads it channels last."""
        batch, *extents = shape
        if len(extents) != 3 or None in extents or batch not in (None, 1):
            raise NoTwinError(f"input '{name}' has the shape {list(shape)}")
        channels, height, width = (extent or 1 for extent in extents)
        stated = Tensor((1, channels, height, width), F32, name=name)
        last = Tensor((1, height, width, channels), F32)
        self._operations.append(
            Operation("TRANSPOSE", [stated, constant([0, 2, 3, 1], "int32")], [last])
        )
        self._values[name] = Value(last, channels)
        return stated

    def _convert(self, node: Node) -> None:
        if all(name in self._constants for name in node.inputs) and node.op in _QUANTIZERS:
            arguments = [self._constants[name] for name in node.inputs]
            self._constants[node.outputs[0]] = _QUANTIZERS[node.op](node, arguments)
        elif node.op in _HANDLERS:
            _HANDLERS[node.op](self, node)
        else:
            raise NoTwinError(f"'{node.layer}' is {node.kind}")

    # -- operators ----------------------------------------------------------------------------

    def _quantizer(self, node: Node) -> None:
        if node.op == "Quant" and not (int(self._constant(node, 3)) == 1 and _is_signed(node)):
            self._values[node.outputs[0]] = self._real(node)
            return
        x, size = self._real(node), self._constant(node, 1)
        if size.size != 1 or float(size.min()) <= 0:
            raise NoTwinError(f"'{node.layer}' has a scale for each channel")
        packed = Tensor((*x.tensor.shape[:-1], operations.words_of(x.channels)), PACKED)
        result = Value(packed, x.channels, float(size.min()))
        self._add(node, operations.lce_quantize(x.tensor, packed), result)

    def _conv(self, node: Node) -> None:
        x, weight = self._value(node), self._constant(node, 1)
        if weight.ndim != 4 or weight.shape[1] != x.channels:
            raise NoTwinError(f"'{node.layer}' has weights of {list(weight.shape)}")
        windows, padding = self._windows(node, x, weight.shape[2:])
        bias = self._constant(node, 2) if len(node.inputs) > 2 else np.zeros(len(weight))
        factor, addend, output = self._normed(node, bias)
        result = self._image(x, windows, len(weight))
        if x.size is None:
            scaled = weight * factor.reshape(-1, 1, 1, 1)
            made = operations.conv_2d(x.tensor, scaled, addend, windows, padding, result.tensor)
        else:
            factors = _sizes(node, weight) * factor * x.size, addend
            made = operations.lce_bconv_2d(
                x.tensor, weight < 0, factors, windows, padding, result.tensor
            )
        self._add(node, made, result, output)

    def _normed(self, node: Node, bias: Array) -> tuple[Array, Array, str]:
        """Factor and addend of each channel, and the tensor they give, by a batch norm behind."""
        output = node.outputs[0]
        behind = self._readers.get(output, [])
        if [reader.op for reader in behind] != ["BatchNormalization"]:
            return np.ones_like(bias), bias, output
        (norm,) = behind
        gamma, beta, mean, variance = (self._constant(norm, index) for index in range(1, 5))
        factor = gamma / np.sqrt(variance + norm.attributes.get("epsilon", 1e-5))
        self._folded.add(norm.layer)
        return factor, (bias - mean) * factor + beta, norm.outputs[0]

    def _max_pool(self, node: Node) -> None:
        x = self._value(node)
        windows, padding = self._windows(node, x, node.attributes["kernel_shape"])
        result = self._image(x, windows, x.channels)
        if x.size is None:
            made = operations.pool_2d("MAX_POOL_2D", x.tensor, windows, padding, result.tensor)
        else:
            packed = Tensor((*result.tensor.shape[:-1], x.tensor.shape[-1]), PACKED)
            result = Value(packed, x.channels, x.size)
            made = operations.lce_bmaxpool_2d(x.tensor, windows, padding, packed)
        self._add(node, made, result)

    def _mean(self, node: Node) -> None:
        x = self._real(node)
        whole = Windows(x.extents, (1, 1), (1, 1), (0, 0, 0, 0))
        result = self._image(x, whole, x.channels)
        made = operations.pool_2d("AVERAGE_POOL_2D", x.tensor, whole, VALID, result.tensor)
        self._add(node, made, result)

    def _relu(self, node: Node) -> None:
        x = self._real(node)
        result = Value(Tensor(x.tensor.shape, F32), x.channels)
        self._add(node, Operation("RELU", [x.tensor], [result.tensor]), result)

    def _sum(self, node: Node) -> None:
        left, right = (self._real(node, index).tensor for index in (0, 1))
        if left.shape != right.shape:
            raise NoTwinError(f"'{node.layer}' adds {list(left.shape)} and {list(right.shape)}")
        result = Value(Tensor(left.shape, F32), left.shape[-1])
        self._add(node, Operation("ADD", [left, right], [result.tensor], "AddOptions"), result)

    def _flatten(self, node: Node) -> None:
        x = self._real(node)
        if prod(x.extents) != 1:
            raise NoTwinError(f"'{node.layer}' flattens an image of {list(x.extents)}")
        result = Value(Tensor((1, x.channels), F32), x.channels)
        shape = constant(result.tensor.shape, "int32")
        self._add(node, Operation("RESHAPE", [x.tensor, shape], [result.tensor]), result)

    def _dense(self, node: Node) -> None:
        x, weight = self._real(node), self._constant(node, 1)
        weight = weight if node.attributes.get("transB") else weight.T
        bias = self._constant(node, 2) if len(node.inputs) > 2 else np.zeros(len(weight))
        tensors = [x.tensor, constant(weight, F32), constant(bias, F32)]
        result = Value(Tensor((1, len(weight)), F32), len(weight))
        table = "FullyConnectedOptions"
        self._add(node, Operation("FULLY_CONNECTED", tensors, [result.tensor], table), result)

    # -- tensors ------------------------------------------------------------------------------

    def _windows(self, node: Node, x: Value, kernel: tuple[int, ...]) -> tuple[Windows, int]:
        """A node's windows, and the padding that gives as many."""
        windows = windows_of(node.attributes, kernel, x.extents)
        padding = operations.padding_of(x.extents, windows)
        if padding is None:
            raise NoTwinError(f"'{node.layer}' is padded with {list(windows.pads)}")
        return windows, padding

    def _image(self, x: Value, windows: Windows, channels: int) -> Value:
        shape = (1, *windows.output_extents(x.extents), channels)
        return Value(Tensor(shape, F32), channels)

    def _value(self, node: Node, index: int = 0) -> Value:
        if node.inputs[index] not in self._values:
            raise NoTwinError(f"'{node.layer}' reads a constant as its data")
        return self._values[node.inputs[index]]

    def _real(self, node: Node, index: int = 0) -> Value:
        found = self._value(node, index)
        if found.size is not None:
            raise NoTwinError(f"'{node.layer}' reads signs, and Larq packs them")
        return found

    def _constant(self, node: Node, index: int) -> Array:
        if node.inputs[index] not in self._constants:
            raise NoTwinError(f"'{node.layer}' has no constant parameters")
        return self._constants[node.inputs[index]]

    def _add(self, node: Node, made: Operation, result: Value, name: str = "") -> None:
        self._operations.append(made)
        self._values[name or node.outputs[0]] = result


def _sizes(node: Node, weight: Array) -> Array:
    """The one size of each channel's weights."""
    sizes = np.abs(weight.reshape(len(weight), -1))
    if not (sizes == sizes[:, :1]).all() or not sizes.all():
        raise NoTwinError(f"the weights of '{node.layer}' are not bipolar")
    return np.asarray(sizes[:, 0])


def _is_signed(node: Node) -> bool:
    return bool(node.attributes.get("signed", 0))


def _quantized(node: Node, arguments: list[Array]) -> Array:
    x, scale, zero_point, bits = arguments
    is_narrow = bool(node.attributes.get("narrow", 0))
    rounding = str(node.attributes.get("rounding_mode", "ROUND"))
    return arithmetic.quant(x, scale, zero_point, int(bits), _is_signed(node), is_narrow, rounding)


_QUANTIZERS: Mapping[str, Callable[[Node, list[Array]], Array]] = {
    "BipolarQuant": lambda _, arguments: arithmetic.bipolar_quant(*arguments),
    "Quant": _quantized,
}

_HANDLERS: Mapping[str, Callable[[_Writer, Node], None]] = {
    "BipolarQuant": _Writer._quantizer,
    "Quant": _Writer._quantizer,
    "Conv": _Writer._conv,
    "MaxPool": _Writer._max_pool,
    "GlobalAveragePool": _Writer._mean,
    "Relu": _Writer._relu,
    "Add": _Writer._sum,
    "Flatten": _Writer._flatten,
    "Gemm": _Writer._dense,
}
