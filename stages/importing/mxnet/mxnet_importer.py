"""The table of MXNet's operators, and the conversion of a whole symbol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.errors import StageError
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.mxnet import binary, fused, quantized
from stages.importing.mxnet import float_operators as plain
from stages.importing.mxnet import range_conversions as conversions
from stages.importing.mxnet.float_operators import Converter
from stages.importing.mxnet.mxnet_builder import Walk
from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.unsupported import (
    MISFITS,
    ONLY_LAST,
    Problems,
    Unsupported,
    UnsupportedError,
)
from stages.kinds import Model
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]

CONVERTERS: Mapping[str, Converter] = {
    "_contrib_quantize_v2": conversions.quantize_v2,
    "_contrib_quantize": conversions.quantize,
    "_contrib_dequantize": conversions.dequantize,
    "_contrib_requantize": conversions.requantize,
    "_contrib_quantized_conv": quantized.conv,
    "_contrib_quantized_fully_connected": quantized.fully_connected,
    "_contrib_quantized_pooling": quantized.pooling,
    "_contrib_quantized_flatten": quantized.flatten,
    "_contrib_quantized_act": quantized.act,
    "_contrib_quantized_batch_norm": quantized.batch_norm,
    "_contrib_quantized_elemwise_add": quantized.elemwise_add,
    "_contrib_quantized_concat": quantized.concat,
    "_sg_mkldnn_conv": fused.conv,
    "_sg_onednn_conv": fused.conv,
    "_sg_mkldnn_fully_connected": fused.fully_connected,
    "_sg_onednn_fully_connected": fused.fully_connected,
    "QActivation": binary.activation,
    "QConvolution": binary.convolution,
    "QConvolution_v1": binary.convolution,
    "QFullyConnected": binary.fully_connected,
    "Convolution": plain.convolution,
    "Convolution_v1": plain.convolution,
    "FullyConnected": plain.fully_connected,
    "BatchNorm": plain.batch_norm,
    "BatchNorm_v1": plain.batch_norm,
    "CuDNNBatchNorm": plain.batch_norm,
    "Activation": plain.activation,
    "LeakyReLU": plain.leaky_relu,
    "relu": plain.single("relu"),
    "sigmoid": plain.single("sigmoid"),
    "tanh": plain.single("tanh"),
    "exp": plain.exponential,
    "softmax": plain.softmax,
    "Pooling": plain.pooling,
    "Pooling_v1": plain.pooling,
    "Flatten": plain.flatten,
    "flatten": plain.flatten,
    "Reshape": plain.reshape,
    "reshape": plain.reshape,
    "expand_dims": plain.expand_dims,
    "transpose": plain.transpose,
    "Concat": plain.concat,
    "concat": plain.concat,
    "slice_axis": plain.slice_axis,
    "SliceChannel": plain.split,
    "clip": plain.clip,
    "Dropout": plain.identity,
    "identity": plain.identity,
    "_copy": plain.identity,
    "BlockGrad": plain.identity,
    **{name: plain.binary(relax.op.add) for name in
       ("elemwise_add", "broadcast_add", "_plus", "_Plus", "broadcast_plus")},
    **{name: plain.binary(relax.op.subtract) for name in
       ("elemwise_sub", "broadcast_sub", "_minus", "_Minus", "broadcast_minus")},
    **{name: plain.binary(relax.op.multiply) for name in
       ("elemwise_mul", "broadcast_mul", "_mul", "_Mul")},
    **{name: plain.binary(relax.op.divide) for name in
       ("elemwise_div", "broadcast_div", "_div", "_Div")},
    "_plus_scalar": plain.with_scalar(relax.op.add),
    "_minus_scalar": plain.with_scalar(relax.op.subtract),
    "_mul_scalar": plain.with_scalar(relax.op.multiply),
    "_div_scalar": plain.with_scalar(relax.op.divide),
}  # fmt: skip
"""Operators by MXNet's name."""

POSTPROCESSING = frozenset(
    {"SoftmaxOutput", "Softmax", "softmax", "log_softmax", "SoftmaxActivation", "argmax", "topk"}
)
"""Operators that, at the very end of a graph, are left to the caller of the package."""
_WHY = dict.fromkeys(POSTPROCESSING, ONLY_LAST)
_FIRST_PARAMETER = {
    "Convolution": 1, "Convolution_v1": 1, "FullyConnected": 1, "BatchNorm": 1, "BatchNorm_v1": 1,
    "CuDNNBatchNorm": 1, "QConvolution": 1, "QConvolution_v1": 1, "QFullyConnected": 1,
    "_sg_mkldnn_conv": 1, "_sg_onednn_conv": 1, "_sg_mkldnn_fully_connected": 1,
    "_sg_onednn_fully_connected": 1, "_contrib_quantized_conv": 1,
    "_contrib_quantized_fully_connected": 1, "Embedding": 1,
}  # fmt: skip
"""Operators whose inputs from this position on are parameters, where variables feed them."""


@dataclass(frozen=True)
class Converted:
    """A symbol walked to its end: the model, unless something was unsupported."""

    model: Model | None
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    cut: tuple[Node, ...] = ()
    unsupported: tuple[Unsupported, ...] = field(default=())


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


def needed_nodes(symbol: Symbol) -> set[int]:
    """Positions of the nodes that the outputs depend on."""
    needed = {position for position, _ in heads_of(symbol)[0]}
    for position in range(len(symbol.nodes) - 1, -1, -1):
        if position in needed:
            needed.update(source for source, _ in symbol.nodes[position].inputs)
    return needed


def graph_inputs(symbol: Symbol, params: Mapping[str, Array]) -> tuple[int, ...]:
    """Positions of the variables that are inputs: no parameters, and read as data."""
    needed = needed_nodes(symbol)
    as_data = {position for position, _ in heads_of(symbol)[0]}
    for position in needed:
        node = symbol.nodes[position]
        last = _FIRST_PARAMETER.get(node.op, len(node.inputs))
        as_data.update(source for source, _ in node.inputs[:last])
    return tuple(
        position
        for position in sorted(needed)
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
        for position in sorted(needed_nodes(symbol))
        if (node := symbol.nodes[position]).op == "null"
        and node.name not in params
        and position not in inputs
    )


def unknown_operators(symbol: Symbol) -> tuple[Unsupported, ...]:
    """Operators of a symbol that there is no converter for."""
    problems = Problems()
    for position in sorted(needed_nodes(symbol)):
        node = symbol.nodes[position]
        if node.op != "null" and node.op not in CONVERTERS:
            problems.add(node.op, _why(node), node.name)
    return problems.listed()


def _why(node: Node) -> str:
    return _WHY.get(node.op, "there is no converter for it")


def walk(symbol: Symbol, params: Mapping[str, Array], options: ImportOptions) -> Converted:
    """Convert what can be converted, and collect what cannot."""
    graph = Walk(symbol, params)
    inputs = graph_inputs(symbol, params)
    for position, shape in _input_shapes(symbol, inputs, options).items():
        name = symbol.nodes[position].name
        graph.values[(position, 0)] = graph.emitter.input(name, shape, "float32")
    problems = Problems()
    for position in sorted(needed_nodes(symbol)):
        node = symbol.nodes[position]
        if node.op == "null":
            if position not in inputs:
                graph.values[(position, 0)] = params[node.name]
        else:
            _convert(graph, position, node, problems)
    heads, cut = heads_of(symbol)
    names = _output_names(symbol, heads)
    for head, name in zip(heads, names, strict=True):
        value = graph.values.get(head)
        if value is not None and not graph.shape(value):
            # An end of a range, which MXNet gives as one float32 [1].
            view = relax.op.reshape(graph.tensor(value, f"{name}.end"), (1,))
            graph.values[head] = graph.emit(view, name)
        elif isinstance(value, np.ndarray):
            problems.add("output", "is a constant; no input reaches it", name)
    known = {
        name: graph.shape(graph.values[head])
        for head, name in zip(heads, names, strict=True)
        if head in graph.values
    }
    if problems.listed():
        return Converted(None, names, known, cut, problems.listed())
    missing = [name for head, name in zip(heads, names, strict=True) if head not in graph.values]
    if missing:
        raise StageError(f"output '{missing[0]}' of the symbol is no output of its node")
    values = [graph.values[head] for head in heads]
    attributes = {"numerics": "mxnet", "quantization": json.dumps({})}
    return Converted(graph.emitter.finish(values, names, attributes), names, known, cut)


def _convert(graph: Walk, position: int, node: Node, problems: Problems) -> None:
    try:
        if node.op not in CONVERTERS:
            raise UnsupportedError(_why(node))
        if not graph.is_known(node):
            return  # something before it is unsupported, and has been reported
        for output, value in enumerate(CONVERTERS[node.op](graph, node)):
            graph.values[(position, output)] = value
    except UnsupportedError as error:
        problems.add(node.op, str(error), node.name)
    except MISFITS:
        problems.add(node.op, "has operands or attributes that do not fit it", node.name)


def _output_names(symbol: Symbol, heads: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    several = len({position for position, _ in heads}) != len(heads)
    return tuple(
        f"{symbol.nodes[position].name}.{output}" if several else symbol.nodes[position].name
        for position, output in heads
    )


def _input_shapes(
    symbol: Symbol, inputs: tuple[int, ...], options: ImportOptions
) -> dict[int, tuple[int, ...]]:
    names = {symbol.nodes[position].name: position for position in inputs}
    strange = sorted(set(options.inputs) - set(names))
    if strange:
        raise StageError(f"the model has no input '{strange[0]}'; its inputs are {sorted(names)}")
    shapes = {}
    for name, position in names.items():
        shape = options.inputs.get(name) or stated_shape(symbol.nodes[position])
        if shape is None:
            raise StageError(
                f"the file does not tell the shape of input '{name}'",
                hint="state it in the recipe's inputs",
            )
        if not shape or min(shape) < 1 or prod(shape) > MAX_ELEMENTS:
            raise StageError(
                f"input '{name}' has the shape {list(shape)}; extents from 1 and at most "
                f"{MAX_ELEMENTS:,} elements are accepted"
            )
        shapes[position] = tuple(shape)
    return shapes


def stated_shape(node: Node) -> tuple[int, ...] | None:
    """The shape that a symbol notes of a variable, an open batch as 1; None if it does not."""
    try:
        shape = node.attributes.integers("__shape__")
    except UnsupportedError:
        return None
    shape = (1 if shape[0] == 0 else shape[0], *shape[1:]) if shape else ()
    return shape if shape and min(shape) >= 1 else None
