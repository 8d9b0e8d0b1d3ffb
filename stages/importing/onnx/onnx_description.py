"""What an ONNX file contains, for `doit import`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.dialect.dtypes import is_integer, parse
from stages.importing.description import attempted, description, shown_outputs
from stages.importing.graph_inputs import GraphInput
from stages.importing.onnx.onnx_builder import STORED
from stages.importing.onnx.onnx_importer import import_graph, package_outputs, quantization
from stages.importing.onnx.onnx_reader import QONNX, Node, SourceGraph, read
from stages.importing.samples import draw
from stages.kinds import Table
from stages.options import ImportOptions

_LAYERS = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Operators with weights, and the position of these among their inputs."""
_INTEGER_LAYERS = {
    "QLinearConv": (3, 2, 5),
    "QLinearMatMul": (3, 2, 5),
    "QGemm": (3, 2, 5),
    "ConvInteger": (1, 2, 3),
    "MatMulInteger": (1, 2, 3),
}
"""Operators on integers, and the positions of weights, zero points of data and of weights."""
_WIDTHS = range(1, 33)
"""Bits that quantizers have; what a file says otherwise is nothing to describe."""
_KEEPS_VALUES = {
    "Transpose",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Dropout",
    "MaxPool",
}


def describe_graph(source: bytes, options: ImportOptions) -> Table:
    """Everything `doit import` shows of an ONNX file; what is unsupported is listed, not raised.

    Raises StageError only for bytes that are no valid ONNX file at all.
    """
    graph = read(source)
    outputs, cut = package_outputs(graph)
    imported = attempted(lambda: import_graph(graph, options))
    return description(
        form=_format(graph),
        source=source,
        opset=graph.opset,
        producer=f"{graph.model.producer_name} {graph.model.producer_version}".strip(),
        inputs=[_input(graph, item) for item in graph.inputs],
        outputs=shown_outputs(outputs, imported),
        left_to_caller=[(node.op, node.layer) for node in cut],
        operators=(node.kind for node in graph.nodes),
        parameters=(int(value.size) for value in graph.constants.values()),
        layers=_layers(graph),
        unsupported=imported.unsupported,
    )


def _format(graph: SourceGraph) -> str:
    operators = {node.op for node in graph.nodes if node.domain == QONNX}
    if operators & {"Quant", "IntQuant", "BipolarQuant"}:
        return "QONNX"
    if operators or graph.datatypes or any("finn" in node.domain for node in graph.nodes):
        return "FINN-ONNX"
    every = {node.op for node in graph.nodes}
    if every & (_INTEGER_LAYERS.keys() | {"QLinearAdd", "QLinearMul"}):
        return "ONNX with operators on integers"
    return "ONNX QDQ" if {"QuantizeLinear", "DequantizeLinear"} & every else "ONNX"


def _input(graph: SourceGraph, item: GraphInput) -> Table:
    table: Table = {"name": item.name, "dtype": item.dtype, "shape": _extents(item.shape)}
    if item.dtype == "float32":
        sample = draw(graph, item.name)(np.random.default_rng(0), (4096,))
        return table | {"smallest": float(sample.min()), "largest": float(sample.max())}
    if item.dtype in STORED and item.dtype != "bool":
        limits = np.iinfo(item.dtype)
        table |= {"smallest": float(limits.min), "largest": float(limits.max)}
    else:
        table |= {"smallest": 0.0, "largest": 1.0}
    return table | quantization(graph).get(item.name, {})


def _extents(shape: tuple[int | None, ...] | None) -> list[int | None] | None:
    return None if shape is None else list(shape)


def _layers(graph: SourceGraph) -> list[Table]:
    producers = {name: node for node in graph.nodes for name in node.outputs}
    layers = []
    for node in graph.nodes:
        if not node.domain and node.op in _LAYERS:
            weight = node.inputs[_LAYERS[node.op]]
            kinds = [_quantization(graph, producers, each) for each in (node.inputs[0], weight)]
        elif node.op in _INTEGER_LAYERS and len(node.inputs) > _INTEGER_LAYERS[node.op][0]:
            position, *places = _INTEGER_LAYERS[node.op]
            weight = node.inputs[position]
            kinds = [_stored(graph, node, place) for place in places]
        else:
            continue
        layers.append(
            {
                "layer": node.layer,
                "op": node.op,
                "weight_shape": _weight_shape(graph, producers, weight),
                "activations": kinds[0],
                "weights": kinds[1],
            }
        )
    return layers


def _stored(graph: SourceGraph, node: Node, position: int) -> Table | None:
    """Bits and encoding of integers whose zero point is an input of a node; 8 bits without one."""
    is_given = len(node.inputs) > position and node.inputs[position]
    zero_points = graph.tensor(node, position) if is_given else np.zeros((), np.uint8)
    if zero_points is None or not is_integer(str(zero_points.dtype)):
        return None
    stored = parse(str(zero_points.dtype))
    encoding = "signed" if stored.is_signed else "unipolar"
    return {"bits": stored.bits, "encoding": "asymmetric" if zero_points.any() else encoding}


def _weight_shape(
    graph: SourceGraph, producers: Mapping[str, Node], tensor: str
) -> list[int | None] | None:
    while tensor not in graph.constants and tensor in producers:
        tensor = next(iter(producers[tensor].inputs), "")
    return _extents(graph.constants[tensor].shape) if tensor in graph.constants else None


def _quantization(graph: SourceGraph, producers: Mapping[str, Node], tensor: str) -> Table | None:
    """Bits and encoding of a tensor, found at the quantizer its values come from."""
    while tensor in producers and not producers[tensor].domain:
        node = producers[tensor]
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            return _stored(graph, node, 2)
        if node.op not in _KEEPS_VALUES:
            return None
        tensor = node.inputs[0]
    if tensor not in producers:
        return _datatype(graph.datatypes.get(tensor, ""))
    node = producers[tensor]
    if node.op == "BipolarQuant":
        return {"bits": 1, "encoding": "bipolar"}
    if node.op == "MultiThreshold":
        return _datatype(str(node.attributes.get("out_dtype", "")))
    if node.op in ("Quant", "IntQuant"):
        return _quant(graph, node)
    return None


def _quant(graph: SourceGraph, node: Node) -> Table | None:
    zero_point, bits = graph.tensor(node, 2), graph.number(node, 3)
    if zero_point is None or bits is None or bits not in _WIDTHS:
        return None
    width, signed = int(bits), bool(node.attributes.get("signed", 1))
    encoding = "signed" if signed else "unipolar"
    has_odd_levels = not signed and bool((zero_point == (2**width - 1) / 2).all())
    if has_odd_levels or (width == 1 and signed):
        encoding = "bipolar"
    elif zero_point.any():
        encoding = "asymmetric"
    return {"bits": width, "encoding": encoding}


def _datatype(name: str) -> dict[str, Any] | None:
    if name in ("BIPOLAR", "BINARY"):
        return {"bits": 1, "encoding": "bipolar" if name == "BIPOLAR" else "unipolar"}
    match = re.fullmatch(r"(U?)INT(\d+)", name)
    if match is None:
        return None
    return {"bits": int(match[2]), "encoding": "unipolar" if match[1] else "signed"}
