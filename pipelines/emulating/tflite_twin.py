"""The TensorFlow Lite twin of an ONNX QDQ network in 8 bits, so that LiteRT can run it.

Scales, levels and weights are the file's own. Input and output are floats as there, but channels
come last. The twin does the network's work, as a converter would have written it: TensorFlow's SAME
puts a window one pixel off where a stride leaves ONNX's padding uneven, what a concatenation joins
is written on its grid, and average pools keep their input's. `exact` pads, quantizes and averages
apart instead, which costs operators that no converter would leave there, and computes the network's
own values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.benchmarks.qdq_pairs import Activation, Constant, NoTwinError, Pairs
from pipelines.emulating.tflite_windows import padding_of, strides_of
from stages.importing.onnx.onnx_reader import Node, SourceGraph, read
from stages.importing.sliding_windows import Windows, windows_of
from stages.importing.twins.tflite_operators import VALID
from stages.importing.twins.tflite_writer import Operation, Tensor, build, constant
from stages.numerics.quantization import Quantization

Array = np.ndarray[Any, Any]

_SHIFT = 128
"""From uint8 to int8."""
_ACTIVATIONS: Mapping[Activation, int] = {"none": 0, "relu": 1, "relu6": 3}
"""TensorFlow Lite's ActivationFunctionType."""


def twin(source: bytes, exact: bool = False) -> bytes:
    """Return the .tflite file of an ONNX QDQ file's twin, float32 NHWC in and float32 out.

    NoTwinError names the node that the twin cannot have.
    """
    return _Writer(read(source), exact).write()


class _Writer:
    """The twin under construction: tensors and operators as they are written."""

    def __init__(self, graph: SourceGraph, exact: bool) -> None:
        self._graph, self._exact = graph, exact
        self._tensors: dict[str, Tensor] = {}
        self._pairs = Pairs(graph)
        self._operations: list[Operation] = []

    def write(self) -> bytes:
        inputs = [self._input(item.name, item.shape) for item in self._graph.inputs]
        for node in self._graph.nodes:
            # Activations and the quantizers behind them belong to the operator before them.
            if node.op in _HANDLERS:
                _HANDLERS[node.op](self, node)
            elif node.op not in ("Relu", "Clip"):
                raise NoTwinError(f"'{node.layer}' is {node.kind}")
        outputs = [self._real(name) for name in self._graph.outputs]
        return build(self._operations, inputs, outputs)

    def _input(self, name: str, shape: tuple[int | None, ...]) -> Tensor:
        if len(shape) != 4 or None in shape[1:] or shape[0] not in (None, 1):
            raise NoTwinError(f"input '{name}' has the shape {list(shape)}")
        _, channels, height, width = (extent or 1 for extent in shape)
        self._tensors[name] = Tensor((1, height, width, channels), "float32", name=name)
        return self._tensors[name]

    def _real(self, name: str) -> Tensor:
        x = self._tensor(name)
        result = Tensor(x.shape, "float32", name=f"{name}.dequantize")
        self._operations.append(Operation("DEQUANTIZE", [x], [result], version=2))
        return result

    # -- operators ----------------------------------------------------------------------------

    def _quantize(self, node: Node) -> None:
        x = self._tensors.get(node.inputs[0])
        if x is None or node.outputs[0] in self._tensors:
            return
        of = self._quantization(node)
        if x.dtype == "float32":
            result = _stored(x.shape, of, node.layer)
            self._operations.append(Operation("QUANTIZE", [x], [result]))
            self._tensors[node.outputs[0]] = result
        elif (x.scale, x.zero_point) == of.stated:
            self._tensors[node.outputs[0]] = x
        else:
            raise NoTwinError(f"'{node.layer}' quantizes anew what is quantized")

    def _dequantize(self, node: Node) -> None:
        if not self._pairs.is_of_constant(node):
            self._tensors[node.outputs[0]] = self._tensor(node.inputs[0])

    def _conv(self, node: Node) -> None:
        x, weight = self._tensor(node.inputs[0]), self._pairs.weight(node)
        groups = int(node.attributes.get("group", 1))
        outputs, _, *kernel = weight.values.shape
        windows = windows_of(node.attributes, kernel, x.shape[1:3])
        shape = (1, *windows.output_extents(x.shape[1:3]), outputs)
        x, padding = self._placed(node, x, windows, 0)
        down, right = windows.dilations
        options = {"padding": padding} | strides_of(windows)
        options |= {"dilation_h_factor": down, "dilation_w_factor": right}
        if groups == 1:
            self._product(node, x, weight, (0, 2, 3, 1), 0, shape, "CONV_2D", "Conv2DOptions",
                          options, 3)  # fmt: skip
        elif groups == outputs == x.shape[-1]:
            options["depth_multiplier"] = 1
            self._product(node, x, weight, (1, 2, 3, 0), 3, shape, "DEPTHWISE_CONV_2D",
                          "DepthwiseConv2DOptions", options, 3)  # fmt: skip
        else:
            raise NoTwinError(f"'{node.layer}' has {groups} groups")

    def _gemm(self, node: Node) -> None:
        x, weight = self._tensor(node.inputs[0]), self._pairs.weight(node)
        if not node.attributes.get("transB"):
            raise NoTwinError(f"'{node.layer}' has weights that are not transposed")
        shape = (1, len(weight.values))
        self._product(node, x, weight, (0, 1), 0, shape, "FULLY_CONNECTED",
                      "FullyConnectedOptions", {}, 12)  # fmt: skip

    def _product(
        self,
        node: Node,
        x: Tensor,
        weight: Constant,
        order: tuple[int, ...],
        axis: int,
        shape: tuple[int, ...],
        op: str,
        table: str,
        options: dict[str, Any],
        version: int,
    ) -> None:
        scales = np.broadcast_to(weight.scale, len(weight.values)).astype(np.float32)
        of_sums = scales * _number(x.scale)
        bias = np.zeros(len(scales), np.int32)
        if len(node.inputs) > 2:
            stated = self._pairs.constant(node, 2)
            bias = np.round(stated.values * (stated.scale / of_sums)).astype(np.int32)
        operands = [
            x,
            constant(weight.values.transpose(order), "int8", scale=scales.tolist(), axis=axis),
            constant(bias, "int32", scale=of_sums.tolist()),
        ]
        result, activation = self._result(node, shape)
        options = {**options, "fused_activation_function": activation}
        self._operations.append(Operation(op, operands, [result], table, options, version=version))

    def _sum(self, node: Node) -> None:
        left, right = (self._tensor(name) for name in node.inputs)
        if left.shape != right.shape:
            raise NoTwinError(f"'{node.layer}' adds {list(left.shape)} and {list(right.shape)}")
        result, activation = self._result(node, tuple(left.shape))
        options = {"fused_activation_function": activation}
        self._operations.append(
            Operation("ADD", [left, right], [result], "AddOptions", options, version=2)
        )

    def _max_pool(self, node: Node) -> None:
        x = self._tensor(node.inputs[0])
        windows = windows_of(node.attributes, node.attributes["kernel_shape"], x.shape[1:3])
        placed, padding = self._placed(node, x, windows, -_SHIFT)
        shape = (1, *windows.output_extents(x.shape[1:3]), x.shape[-1])
        result = Tensor(shape, "int8", x.scale, x.zero_point, name=node.layer)
        options = {"padding": padding, "filter_height": windows.kernel[0]}
        options |= {"filter_width": windows.kernel[1]} | strides_of(windows)
        table = "Pool2DOptions"
        self._operations.append(
            Operation("MAX_POOL_2D", [placed], [result], table, options, version=2)
        )
        self._tensors[node.outputs[0]] = result

    def _average_pool(self, node: Node) -> None:
        x = self._tensor(node.inputs[0])
        windows = windows_of(node.attributes, node.attributes["kernel_shape"], x.shape[1:3])
        padding = padding_of(x.shape, windows, self._exact)
        if padding is None or (node.attributes.get("count_include_pad") and any(windows.pads)):
            raise NoTwinError(f"'{node.layer}' averages padding, or pads as TensorFlow cannot")
        shape = (1, *windows.output_extents(x.shape[1:3]), x.shape[-1])
        quantizer, _ = self._pairs.behind(node)
        options = {"padding": padding, "filter_height": windows.kernel[0]}
        options |= {"filter_width": windows.kernel[1]} | strides_of(windows)
        if self._exact:
            real = Tensor(x.shape, "float32", name=f"{node.layer}.dequantize")
            mean = Tensor(shape, "float32", name=f"{node.layer}.mean")
            result = _stored(shape, self._quantization(quantizer), node.layer)
            self._operations += [
                Operation("DEQUANTIZE", [x], [real], version=2),
                Operation("AVERAGE_POOL_2D", [real], [mean], "Pool2DOptions", options),
                Operation("QUANTIZE", [mean], [result]),
            ]
        else:
            result = Tensor(shape, "int8", x.scale, x.zero_point, name=node.layer)
            self._operations.append(
                Operation("AVERAGE_POOL_2D", [x], [result], "Pool2DOptions", options, version=2)
            )
        self._tensors[quantizer.outputs[0]] = result

    def _concat(self, node: Node) -> None:
        quantizer, _ = self._pairs.behind(node)
        of = self._quantization(quantizer)
        parts = [self._tensor(name) for name in node.inputs]
        if node.attributes.get("axis") not in (1, -3) or {len(x.shape) for x in parts} != {4}:
            raise NoTwinError(f"'{node.layer}' does not join channels of images")
        on_grid = [
            x if (x.scale, x.zero_point) == of.stated
            else self._anew(x, of, f"{node.layer}.quantize{at}")
            for at, x in enumerate(parts)
        ]  # fmt: skip
        shape = (*parts[0].shape[:3], sum(x.shape[-1] for x in parts))
        result = _stored(shape, of, node.layer)
        options = {"axis": 3, "fused_activation_function": 0}
        self._operations.append(
            Operation("CONCATENATION", on_grid, [result], "ConcatenationOptions", options,
                      version=2)
        )  # fmt: skip
        self._tensors[quantizer.outputs[0]] = result

    def _anew(self, x: Tensor, of: Quantization, name: str) -> Tensor:
        result = _stored(x.shape, of, name)
        self._operations.append(Operation("QUANTIZE", [x], [result], version=2))
        return result

    def _mean(self, node: Node) -> None:
        x = self._tensor(node.inputs[0])
        result, _ = self._result(node, (1, x.shape[-1]))
        axes = constant([1, 2], "int32")
        options = {"keep_dims": False}
        self._operations.append(
            Operation("MEAN", [x, axes], [result], "ReducerOptions", options, version=2)
        )

    def _flatten(self, node: Node) -> None:
        x = self._tensor(node.inputs[0])
        if len(x.shape) != 2:
            raise NoTwinError(f"'{node.layer}' flattens {list(x.shape)}")
        self._tensors[node.outputs[0]] = x

    # -- tensors ------------------------------------------------------------------------------

    def _placed(self, node: Node, x: Tensor, windows: Windows, border: int) -> tuple[Tensor, int]:
        """An operator's input and its padding, after an operator that pads where it must be."""
        if (padding := padding_of(x.shape, windows, self._exact)) is not None:
            return x, padding
        top, left, bottom, right = windows.pads
        pads = constant([[0, 0], [top, bottom], [left, right], [0, 0]], "int32")
        shape = (1, x.shape[1] + top + bottom, x.shape[2] + left + right, x.shape[3])
        padded = Tensor(shape, "int8", x.scale, x.zero_point, name=f"{node.layer}.pad")
        value = int(np.asarray(x.zero_point)) if border == 0 else border
        filled = constant([value], "int8", scale=x.scale, zero_point=x.zero_point)
        self._operations.append(
            Operation("PADV2", [x, pads, filled], [padded], "PadV2Options", version=2)
        )
        return padded, VALID

    def _result(self, node: Node, shape: tuple[int, ...]) -> tuple[Tensor, int]:
        """What an operator gives, by the quantizer behind it, and the activation between them."""
        quantizer, activation = self._pairs.behind(node)
        of = self._quantization(quantizer)
        if not self._exact and (joined := self._pairs.joined_by(quantizer)) is not None:
            of = self._quantization(joined)
        result = _stored(shape, of, node.layer)
        self._tensors[quantizer.outputs[0]] = result
        return result, _ACTIVATIONS[activation]

    def _quantization(self, node: Node) -> Quantization:
        """What a quantizer's levels mean, as of int8."""
        found = self._pairs.quantization(node)
        return Quantization.of_type(found.scale, found.zero_point.whole - _SHIFT, "int8")

    def _tensor(self, name: str) -> Tensor:
        found = self._tensors.get(name)
        if found is None or found.dtype == "float32":
            raise NoTwinError(f"'{name}' is not quantized")
        return found


def _stored(shape: Sequence[int], of: Quantization, name: str) -> Tensor:
    """A tensor of the file."""
    return Tensor(shape, of.dtype, *of.stated, name=name)


def _number(value: Any) -> Array:
    return np.asarray(value, np.float32)


_HANDLERS: Mapping[str, Callable[[_Writer, Node], None]] = {
    "QuantizeLinear": _Writer._quantize,
    "DequantizeLinear": _Writer._dequantize,
    "Conv": _Writer._conv,
    "Gemm": _Writer._gemm,
    "Add": _Writer._sum,
    "MaxPool": _Writer._max_pool,
    "AveragePool": _Writer._average_pool,
    "Concat": _Writer._concat,
    "GlobalAveragePool": _Writer._mean,
    "Flatten": _Writer._flatten,
}
