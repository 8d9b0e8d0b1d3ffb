"""Two pairs of quantizers in a row, of which ONNX Runtime 1.32 makes one, with another grid.

Its default session removes what stands in the middle of quantize, dequantize, quantize, dequantize
and gives the outer two the grid of the numbers that both pairs can hold: a rounding less, and other
levels. Source: `double_qdq_pairs_remover.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stages.dialect.calls import BYTES
from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.numerics.quantization import Quantization

Array = np.ndarray[Any, Any]
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
SCALE, ZERO_POINT = ".joined_scale", ".joined_zero_point"
"""What the grid of a joined pair is called, behind the layer that dequantizes."""
PASSES = 10
"""How often ONNX Runtime goes over a graph at most."""
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""Operators that change nothing where one operand is this number; the second one if order counts.
"""


def constants_of(graph: SourceGraph) -> dict[str, Array]:
    """Tensors whose values stand in the file, as initializers or as nodes."""
    values = {
        node.outputs[0]: np.asarray(node.attributes["value"])
        for node in graph.nodes
        if node.op == "Constant" and not node.domain and "value" in node.attributes
    }
    return graph.constants | values


class Readers:
    """Who reads a tensor once all nodes that change nothing are gone."""

    def __init__(self, graph: SourceGraph, constants: Mapping[str, Array]) -> None:
        self.outputs = frozenset(graph.outputs)
        self.constants = constants
        self._same: dict[str, str] = {}
        self.producers: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            source = _unchanged(node, constants)
            if source is not None and node.outputs[0] not in self.outputs:
                self._same[node.outputs[0]] = self.root(source)
                continue
            self.producers.update((name, index) for name in node.outputs)
            for name in node.inputs:
                self._readers.setdefault(self.root(name), []).append(index)

    def root(self, tensor: str) -> str:
        """The tensor that has the same values and is computed."""
        return self._same.get(tensor, tensor)

    def copies(self, node: Node) -> int:
        """How many a node becomes: every reader of a DQ's values gets its own, and the caller."""
        if node.op != DEQUANTIZE:
            return 1
        return max(1, len(self.of(node.outputs[0])) + (node.outputs[0] in self.outputs))

    def of(self, tensor: str) -> list[int]:
        """The nodes that read a tensor, one entry an operand."""
        return self._readers.get(tensor, [])


def _unchanged(node: Node, constants: Mapping[str, Array]) -> str | None:
    """The operand that a node gives back as it is."""
    if node.domain or not node.inputs:
        return None
    if node.op == "Identity" or (node.op == "Cast" and node.attributes.get("to") == 1):
        return node.inputs[0]  # floats are all that is asked about here
    if node.op == "Dropout":
        return node.inputs[0] if len(node.inputs) < 3 and not any(node.outputs[1:]) else None
    if node.op not in _NEUTRAL or len(node.inputs) != 2:
        return None
    for other, kept in ((1, 0), (0, 1)):
        value = constants.get(node.inputs[other])
        counts = other == 0 and node.op in ("Sub", "Div")
        if value is not None and value.size == 1 and value.ndim <= 1 and not counts:
            return node.inputs[kept] if value.item() == _NEUTRAL[node.op] else None
    return None


def join_double_quantizers(graph: SourceGraph) -> SourceGraph:
    """`graph` as ONNX Runtime executes it: of two pairs in a row the outer quantizers are left.

    Nodes keep their order and names; those in the middle give tensors that nothing reads.
    """
    constants = constants_of(graph)
    readers = Readers(graph, constants)
    nodes, added = list(graph.nodes), dict[str, Array]()
    for _ in range(PASSES):
        grids = _pass(nodes, readers, constants | added)
        if grids is None:
            break
        added |= grids
    if nodes == list(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes), constants=graph.constants | added)


def _pass(
    nodes: list[Node], readers: Readers, constants: Mapping[str, Array]
) -> dict[str, Array] | None:
    """Join what one pass over the graph joins; the new grids, None where there was nothing to join.

    What was joined is left to the next pass.
    """
    added, ends_of_joined = dict[str, Array](), set[int]()
    for index, node in enumerate(nodes):
        chain = _chain(nodes, index, readers) if node.op == DEQUANTIZE else None
        if chain is None or index in ends_of_joined:
            continue
        outer, last = chain[0], chain[3]
        first, second = (_quantization(nodes, pair, constants) for pair in (chain[:2], chain[2:]))
        if first is None or second is None or first.dtype != second.dtype:
            continue
        ends = [nodes[outer].inputs[1:3], nodes[last].inputs[1:3]]
        if first != second:
            found = _common(first, second)
            if found is None:
                continue
            names = [f"{nodes[last].layer}{part}" for part in (SCALE, ZERO_POINT)]
            zero_point = np.asarray(found.zero_point.whole, found.dtype)
            added |= dict(zip(names, (np.asarray(found.scale), zero_point), strict=True))
            ends = [tuple(names)] * 2
        ends_of_joined.add(last)
        tensor = nodes[outer].outputs[0]
        nodes[outer] = replace(nodes[outer], inputs=(nodes[outer].inputs[0], *ends[0]))
        nodes[last] = replace(nodes[last], inputs=(tensor, *ends[1]))
        readers.of(tensor)[:] = [last]
    return added if ends_of_joined else None


def _chain(nodes: list[Node], index: int, readers: Readers) -> list[int] | None:
    """The four quantizers around the DQ at `index`, if each is read by the next one alone."""
    outer = readers.producers.get(readers.root(nodes[index].inputs[0]))
    if outer is None or nodes[outer].op != QUANTIZE:
        return None
    found = [outer]
    for op in (DEQUANTIZE, QUANTIZE, DEQUANTIZE):
        tensor = nodes[found[-1]].outputs[0]
        reading = readers.of(tensor)
        if len(reading) != 1 or tensor in readers.outputs or nodes[reading[0]].op != op:
            return None
        found.append(reading[0])
    return found if found[1] == index else None  # else what was there is gone


def _quantization(
    nodes: list[Node], pair: list[int], constants: Mapping[str, Array]
) -> Quantization | None:
    """What both quantizers of a pair state, of bytes, in numbers that stand in the file."""
    found = []
    for index in pair:
        names = nodes[index].inputs[1:3]
        values = [constants.get(name) for name in names if name]
        if len(values) != 2 or any(each is None or each.size != 1 for each in values):
            return None
        scale, zero_point = (np.asarray(each).reshape(-1)[0] for each in values)
        if scale.dtype != np.float32 or str(zero_point.dtype) not in BYTES:
            return None
        found.append(Quantization.of_type(scale, int(zero_point), str(zero_point.dtype)))
    return found[0] if found[0] == found[1] else None


def _common(first: Quantization, second: Quantization) -> Quantization | None:
    """The quantization of numbers in the ranges of both, every step in float32."""
    ends = [
        [np.float32(numerator) * each.scale for numerator in each.levels.numerators]
        for each in (first, second)
    ]
    low, high = max(each[0] for each in ends), min(each[1] for each in ends)
    scale = np.float32((high - low) / np.float32(255))
    if not 0 < scale < np.inf:
        return None
    exact = np.float32(np.float32(first.levels.low) - low / scale)
    zero_point = np.copysign(np.floor(abs(exact) + np.float32(0.5)), exact)
    return Quantization.of_type(scale, int(zero_point), first.dtype)
