"""What ONNX Runtime's default session knows of an ONNX graph, and what it fuses in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stages.importing.onnx.double_quantizers import (
    DEQUANTIZE,
    QUANTIZE,
    SCALE,
    Readers,
    constants_of,
)
from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.numerics.onnx_islands import DEFAULT, UNOPTIMIZED, Island, Session

Array = np.ndarray[Any, Any]
_REDUCTIONS = ("ReduceMean", "ReduceSum")
_WEIGHTS = ("int2", "uint2", "int4", "uint4", "int8", "uint8")
_SMALLEST_BLOCK = 16
_SUMS_ROWS = 19
"""From this opset on AveragePool of floats adds up a window row by row."""
NBITS = "MatMulNBits at accuracy level 4, which quantizes activations again"
ONE_PAIR = "one pair of quantizers of two, on the grid that both hold"


def session_of(graph: SourceGraph) -> Session:
    """The facts about a graph, by the layers of its nodes."""
    own = [node for node in graph.nodes if not node.domain]
    pools = (node.layer for node in own if is_wrong_pool(node.op, node.attributes))
    reductions = (node.layer for node in own if node.op in _REDUCTIONS)
    return Session(
        reductions=frozenset(reductions),
        wrong_pools=frozenset(pools),
        signed=frozenset(_signed(graph)),
        sums_columns=graph.opset < _SUMS_ROWS,
    )


def is_wrong_pool(op: str, attributes: Mapping[str, Any]) -> bool:
    """Whether QLinearAveragePool divides the sums of a pool by counts that are not its own."""
    rounds_up, counts_pads = attributes.get("ceil_mode"), attributes.get("count_include_pad")
    return bool(op == "AveragePool" and rounds_up and counts_pads)


def _signed(graph: SourceGraph) -> Iterator[str]:
    """Quantizers that stay int8, on both sides of a tensor (`qdq_s8_to_u8.cc`).

    Every reader of dequantized values gets a dequantizer of its own first; the tensor becomes uint8
    if there is one then.
    """
    readers = Readers(graph, constants_of(graph))
    for node in graph.nodes:
        if node.op == DEQUANTIZE:
            producer = readers.producers.get(readers.root(node.inputs[0]))
            if producer is None or graph.nodes[producer].op != QUANTIZE:
                yield node.layer
        if node.op != QUANTIZE:
            continue
        reading = [graph.nodes[index] for index in readers.of(node.outputs[0])]
        count = sum(readers.copies(each) for each in reading)
        if count != 1 or reading[0].op != DEQUANTIZE or node.outputs[0] in readers.outputs:
            yield node.layer
            yield from (each.layer for each in reading if each.op == DEQUANTIZE)


def islands(graph: SourceGraph) -> Iterator[Island]:
    """What is fused before integers are looked for: of a graph whose pairs are joined."""
    constants = constants_of(graph)
    readers = Readers(graph, constants)
    for node in graph.nodes:
        if node.op == DEQUANTIZE and node.inputs[1] == f"{node.layer}{SCALE}":
            yield Island(node.layer, ONE_PAIR, DEFAULT)
        elif node.op in ("MatMul", "Gemm") and _is_of_few_bits(graph, node, readers):
            yield Island(node.layer, NBITS, UNOPTIMIZED)


def _is_of_few_bits(graph: SourceGraph, node: Node, readers: Readers) -> bool:
    """Whether a product reads dequantized constants, and data that are no dequantized bytes.

    The selector of `qdq_selectors.cc` takes weights [K, N] with one scale, one a column, or one for
    blocks of 16, 32, ... rows.
    """
    if node.domain or any(node.attributes.get(name) for name in ("transA", "transB")):
        return False
    data, weights = (readers.producers.get(readers.root(name)) for name in node.inputs[:2])
    if weights is None:
        return False
    source = graph.nodes[weights]
    if source.op != DEQUANTIZE:
        return False
    stored, scale = (readers.constants.get(name) for name in source.inputs[:2])
    if stored is None:
        stored = _quantized(graph, source, readers)
    if stored is None or scale is None:
        return False
    if stored.ndim != 2 or str(stored.dtype) not in _WEIGHTS:
        return False
    if len(readers.of(source.outputs[0])) != 1 or source.outputs[0] in readers.outputs:
        return False
    axis = int(source.attributes.get("axis", 1))
    block = int(source.attributes.get("block_size", 0))
    if block:
        fits = axis == 0 and block >= _SMALLEST_BLOCK and block.bit_count() == 1
    else:
        fits = scale.ndim == 0 or (axis == 1 and scale.shape == stored.shape[1:])
    return fits and not (data is not None and _gives_bytes(graph, graph.nodes[data], readers))


def _quantized(graph: SourceGraph, node: Node, readers: Readers) -> Array | None:
    """Constant floats that the graph itself quantizes, in the type of their integers."""
    producer = readers.producers.get(readers.root(node.inputs[0]))
    if producer is None or graph.nodes[producer].op != QUANTIZE:
        return None
    values, _, *zero_point = (readers.constants.get(name) for name in graph.nodes[producer].inputs)
    if values is None or not zero_point or zero_point[0] is None:
        return None
    return values.astype(zero_point[0].dtype)


def _gives_bytes(graph: SourceGraph, node: Node, readers: Readers) -> bool:
    """Whether a node dequantizes bytes."""
    if node.op != DEQUANTIZE or not node.has(2):
        return node.op == DEQUANTIZE
    zero_point = readers.constants.get(node.inputs[2])
    return zero_point is None or zero_point.dtype.itemsize == 1
