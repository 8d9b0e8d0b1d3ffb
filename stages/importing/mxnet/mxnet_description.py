"""What an MXNet model contains, for `doit import`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from stages.importing.description import attempted, description, shown_outputs
from stages.importing.importer import Imported
from stages.importing.mxnet.mxnet_importer import import_symbol
from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.mxnet.symbol_graph import (
    graph_inputs,
    heads_of,
    missing_parameters,
    needed_positions,
    output_names,
    stated_shape,
    unknown_operators,
)
from stages.importing.unsupported import Unsupported, UnsupportedError
from stages.kinds import Table
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]

_LAYERS = {
    "Convolution", "FullyConnected", "QConvolution", "QFullyConnected", "_sg_mkldnn_conv",
    "_sg_onednn_conv", "_sg_mkldnn_fully_connected", "_sg_onednn_fully_connected",
    "_contrib_quantized_conv", "_contrib_quantized_fully_connected",
}  # fmt: skip
_BIPOLAR = {"bits": 1, "encoding": "bipolar"}
_SIGNED = {"bits": 8, "encoding": "signed"}


def describe_symbol(
    source: bytes, symbol: Symbol, params: Mapping[str, Array] | None, options: ImportOptions
) -> Table:
    """The table of `doit import`; what is unsupported is listed, not raised."""
    known: Mapping[str, Array] = params or {}
    imported = _imported(symbol, params, options)
    heads, cut = heads_of(symbol)
    needed = [symbol.nodes[position] for position in needed_positions(symbol)]
    inputs = graph_inputs(symbol, known)
    return description(
        form="BMXNet" if any(node.op.startswith("Q") for node in needed) else "MXNet",
        source=source,
        opset=symbol.version,
        producer=_producer(symbol.version),
        inputs=[_input(symbol, position, known, options) for position in inputs],
        outputs=shown_outputs(output_names(symbol, heads), imported),
        left_to_caller=[(node.op, node.name) for node in cut],
        operators=(node.op for node in needed if node.op != "null"),
        parameters=(int(value.size) for value in known.values()),
        layers=[_layer(symbol, node, known) for node in needed if node.op in _LAYERS],
        unsupported=imported.unsupported,
    )


def _imported(
    symbol: Symbol, params: Mapping[str, Array] | None, options: ImportOptions
) -> Imported:
    """What importing gives; unknown operators and missing parameters are all it can tell then."""
    problems = unknown_operators(symbol)
    missing = missing_parameters(symbol, params or {})
    if missing and params is None:
        problems += (Unsupported("parameters", "the .params file is missing", ()),)
    elif missing:
        problems += (Unsupported("parameters", "they are missing", missing),)
    if problems:
        return Imported(None, unsupported=problems)
    return attempted(lambda: import_symbol(symbol, params or {}, options))


def _producer(version: int) -> str:
    if not version:
        return "MXNet"
    return f"MXNet {version // 10000}.{version // 100 % 100}.{version % 100}"


def _input(
    symbol: Symbol, position: int, params: Mapping[str, Array], options: ImportOptions
) -> Table:
    node = symbol.nodes[position]
    stated = options.inputs.get(node.name) or stated_shape(node)
    shape: list[int | None] = list(stated) if stated else _open_shape(symbol, position, params)
    low, high = _range(symbol, position)
    return {"name": node.name, "dtype": "float32", "shape": shape, "smallest": low, "largest": high}


def _open_shape(symbol: Symbol, position: int, params: Mapping[str, Array]) -> list[int | None]:
    """[N, C, ?, ?] before a convolution of known weights, [N, K] before a dense layer."""
    same = {position}
    for at, node in enumerate(symbol.nodes):
        if not node.inputs or node.inputs[0][0] not in same:
            continue
        weight = _weight_shape(symbol, node, params)
        if node.op in _LAYERS and weight is not None and len(weight) == 4:
            inner = [each for s in node.subgraphs for each in s.nodes if each.op == "Convolution"]
            attributes = (inner[0] if inner else node).attributes
            groups = attributes.texts.get("num_group", "1")
            return [1, weight[1] * (int(groups) if groups.isdecimal() else 1), None, None]
        if node.op in _LAYERS:
            return [1, weight[1]] if weight and len(weight) == 2 else [1, None, None, None]
        same.add(at)
    return [1, None, None, None]


def _range(symbol: Symbol, position: int) -> tuple[float, float]:
    """The calibrated range of the quantizer that reads an input; else 0 to 1."""
    for node in symbol.nodes:
        if node.inputs[:1] == ((position, 0),) and node.op == "_contrib_quantize_v2":
            try:
                return (
                    node.attributes.number("min_calib_range", 0),
                    node.attributes.number("max_calib_range", 1),
                )
            except UnsupportedError:
                break
    return 0.0, 1.0


def _layer(symbol: Symbol, node: Node, params: Mapping[str, Array]) -> Table:
    weight = _weight_shape(symbol, node, params)
    is_binary = node.op.startswith("Q")
    quantized = "quantized" in node.op or node.op.startswith("_sg_")
    width = _BIPOLAR if is_binary else _SIGNED if quantized else None
    return {
        "layer": node.name,
        "op": node.op,
        "weight_shape": None if weight is None else list(weight),
        "activations": width,
        "weights": width,
    }


def _weight_shape(
    symbol: Symbol, node: Node, params: Mapping[str, Array]
) -> tuple[int, ...] | None:
    """The shape of a layer's weights."""
    if len(node.inputs) < 2:
        return None
    variable = symbol.nodes[node.inputs[1][0]]
    if variable.name in params:
        return _unpacked(node, params[variable.name])
    return stated_shape(variable)


def _unpacked(node: Node, weight: Array) -> tuple[int, ...]:
    """The shape of weights, also where BMXNet has packed them into words."""
    try:
        if not node.attributes.flag("binarized_weights_only"):
            return weight.shape
        bits = weight.size * weight.dtype.itemsize * 8
        if node.op == "QFullyConnected":
            outputs = node.attributes.integer("num_hidden")
            return (outputs, bits // outputs)
        outputs, kernel = node.attributes.integer("num_filter"), node.attributes.integers("kernel")
        return (outputs, bits // (outputs * prod(kernel)), *kernel)
    except (UnsupportedError, ZeroDivisionError):
        return weight.shape
