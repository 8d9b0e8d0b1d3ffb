"""QONNX's convolutions and pools of channels-last data, written as ONNX's own between transposes.

qonnx's executor does the same: it transposes data and weights, and has ONNX Runtime compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from stages.importing.onnx.domains import QONNX, graphs_of

CHANNELS_LAST = "qonnx.custom_op.channels_last"
TRANSPOSED = ("Conv", "MaxPool")
"""Operators of that domain which are written so."""
_QUANTIZERS = ("Quant", "IntQuant", "BipolarQuant")


def write_channels_first(model: ModelProto) -> None:
    """Write channels-last operators as ONNX's own."""
    for graph in graphs_of(model.graph):
        if any(node.domain == CHANNELS_LAST for node in graph.node):
            _Graph(graph).rewrite()


class _Graph:
    """One graph that passed the checks."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output}
        self._readers = Counter(name for node in graph.node for name in node.input)
        self._readers.update(output.name for output in graph.output)

    def rewrite(self) -> None:
        """Put transposes around operators whose attributes tell their rank; others stay."""
        written = GraphProto(
            node=[each for node in self._graph.node for each in self._channels_first(node)]
        )
        del self._graph.node[:]
        self._graph.node.extend(written.node)

    def _channels_first(self, node: NodeProto) -> Iterator[NodeProto]:
        kernel = [each.ints for each in node.attribute if each.name == "kernel_shape"]
        is_channels_last = node.domain == CHANNELS_LAST and node.op_type in TRANSPOSED
        if not (is_channels_last and kernel and node.input and len(node.output) == 1):
            yield node
            return
        axes = range(len(kernel[0]) + 2)
        first, last = [0, axes[-1], *axes[1:-1]], [0, *axes[2:], 1]
        name, (output,) = node.name or f"{node.op_type}:{node.output[0]}", node.output
        result = NodeProto()
        result.CopyFrom(node)
        result.name, result.domain = name, ""
        yield _transpose(node.input[0], f"{name}.first", first)
        result.input[0] = f"{name}.first"
        has_weights = node.op_type == "Conv" and len(node.input) > 1
        if has_weights and not self._transpose_tensors(node, first):
            yield _transpose(node.input[1], f"{name}.weights", first)
            result.input[1] = f"{name}.weights"
        result.output[0] = f"{name}.result"
        yield result
        yield _transpose(f"{name}.result", output, last)

    def _transpose_tensors(self, node: NodeProto, order: Sequence[int]) -> bool:
        """Transpose the constants that the weights are made of, if nothing else reads them."""
        weights, made = node.input[1], self._producers.get(node.input[1])
        names = [weights]
        if made is not None and made.domain == QONNX and made.op_type in _QUANTIZERS:
            names = list(made.input)
        tensors = [self._tensors.get(name) for name in names]
        if self._readers[weights] != 1:
            return False
        for name, tensor in zip(names, tensors, strict=True):
            if tensor is None or len(tensor.dims) not in (0, 1, len(order)):
                return False
            is_shaped = len(tensor.dims) == len(order)
            if int(np.prod(tensor.dims)) > 1 and not (is_shaped and self._readers[name] == 1):
                return False
        for tensor in tensors:
            if tensor is not None and len(tensor.dims) == len(order):
                value = numpy_helper.to_array(tensor).transpose(order)
                transposed = numpy_helper.from_array(np.ascontiguousarray(value), tensor.name)
                tensor.CopyFrom(transposed)
        return True


def _transpose(data: str, result: str, order: Sequence[int]) -> NodeProto:
    return helper.make_node("Transpose", [data], [result], name=f"{result}.transposed", perm=order)
