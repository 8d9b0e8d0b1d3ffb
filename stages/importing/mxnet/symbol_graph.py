"""What of an MXNet symbol a package computes: its outputs, its inputs, the nodes between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.importing.importer import needed_nodes
from stages.importing.mxnet.mxnet_converters import POSTPROCESSING, converter_of
from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.unsupported import Problems, Unsupported, UnsupportedError

Array = np.ndarray[Any, Any]

_FIRST_PARAMETER = {
    "Convolution": 1, "Convolution_v1": 1, "FullyConnected": 1, "BatchNorm": 1, "BatchNorm_v1": 1,
    "CuDNNBatchNorm": 1, "QConvolution": 1, "QConvolution_v1": 1, "QFullyConnected": 1,
    "_sg_mkldnn_conv": 1, "_sg_onednn_conv": 1, "_sg_mkldnn_fully_connected": 1,
    "_sg_onednn_fully_connected": 1, "_contrib_quantized_conv": 1,
    "_contrib_quantized_fully_connected": 1, "Embedding": 1,
}  # fmt: skip
"""Operators whose inputs from this position on are parameters, where variables feed them."""


def heads_of(symbol: Symbol) -> tuple[tuple[tuple[int, int], ...], tuple[Node, ...]]:
    """The outputs that a package computes, and the last operators that it leaves to its caller."""
    heads: list[tuple[int, int]] = []
    cut: list[Node] = []
    for head in symbol.heads:
        node = symbol.nodes[head[0]]
        if node.op in POSTPROCESSING and node.inputs and _is_computed(symbol, node.inputs[0]):
            cut.append(node)
            head = node.inputs[0]
        if head not in heads:
            heads.append(head)
    return tuple(heads), tuple(cut)


def _is_computed(symbol: Symbol, value: tuple[int, int]) -> bool:
    return symbol.nodes[value[0]].op != "null"


def needed_positions(symbol: Symbol) -> list[int]:
    """Positions of the nodes that the outputs depend on, ascending."""
    return needed_nodes(
        range(len(symbol.nodes)),
        [position for position, _ in heads_of(symbol)[0]],
        lambda position: (source for source, _ in symbol.nodes[position].inputs),
        lambda position: (position,),
    )


def graph_inputs(symbol: Symbol, params: Mapping[str, Array]) -> tuple[int, ...]:
    """Positions of the variables that are inputs: no parameters, and read as data."""
    needed = needed_positions(symbol)
    as_data = {position for position, _ in heads_of(symbol)[0]}
    for position in needed:
        node = symbol.nodes[position]
        last = _FIRST_PARAMETER.get(node.op, len(node.inputs))
        as_data.update(source for source, _ in node.inputs[:last])
    return tuple(
        position
        for position in needed
        if symbol.nodes[position].op == "null"
        and symbol.nodes[position].name not in params
        and position in as_data
        and "__init__" not in symbol.nodes[position].attributes.texts
    )


def missing_parameters(symbol: Symbol, params: Mapping[str, Array]) -> tuple[str, ...]:
    """Names of variables that are neither inputs nor among the parameters."""
    inputs = graph_inputs(symbol, params)
    return tuple(
        node.name
        for position in needed_positions(symbol)
        if (node := symbol.nodes[position]).op == "null"
        and node.name not in params
        and position not in inputs
    )


def unknown_operators(symbol: Symbol) -> tuple[Unsupported, ...]:
    """Operators of a symbol that there is no converter for."""
    problems = Problems()
    for position in needed_positions(symbol):
        node = symbol.nodes[position]
        if node.op != "null":
            with problems.noted(node.op, node.name):
                converter_of(node)
    return problems.listed()


def output_names(symbol: Symbol, heads: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    """Outputs by the name of their node, numbered where a node gives several of them."""
    several = len({position for position, _ in heads}) != len(heads)
    return tuple(
        f"{symbol.nodes[position].name}.{output}" if several else symbol.nodes[position].name
        for position, output in heads
    )


def stated_shape(node: Node) -> tuple[int, ...] | None:
    """The shape that a symbol notes of a variable, an open batch as 1; None if it does not."""
    try:
        shape = node.attributes.integers("__shape__")
    except UnsupportedError:
        return None
    shape = (1 if shape[0] == 0 else shape[0], *shape[1:]) if shape else ()
    return shape if shape and min(shape) >= 1 else None
