"""ONNX and QONNX nodes to Relax: the table of what is supported, and the walk over a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.errors import StageError
from stages.importing.closeness import noted
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.onnx import onnx_converters as onnx_operators
from stages.importing.onnx import operand_checks as onnx_operands
from stages.importing.onnx import qonnx_layers as layers
from stages.importing.onnx import qonnx_quantizers as arithmetic
from stages.importing.onnx.constant_subgraphs import fold
from stages.importing.onnx.double_quantizers import joined
from stages.importing.onnx.onnx_builder import ANY, FLOAT_ONLY, RelaxBuilder
from stages.importing.onnx.onnx_reader import QONNX, GraphInput, Node, SourceGraph
from stages.importing.onnx.resize import nearest
from stages.importing.onnx.runtime_session import islands, session_of
from stages.importing.onnx.trunc import trunc
from stages.importing.unsupported import (
    NO_INPUT,
    ONLY_LAST,
    Problems,
    Unsupported,
    UnsupportedError,
    refusal,
)
from stages.kinds import Model
from stages.numerics.onnx_islands import ATTRIBUTE, written
from stages.numerics.qdq import to_integers
from stages.options import ImportOptions

Converter = Callable[[RelaxBuilder, Node], Any]

IN_FLOAT = (
    "Abs", "Ceil", "Concat", "DepthToSpace", "Elu", "Erf", "Exp", "Expand", "Floor", "Gelu",
    "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish", "InstanceNormalization",
    "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Max", "Min", "Neg", "PRelu", "Pad",
    "Pow", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceSum", "Round", "Sigmoid", "Slice",
    "Softmax", "SpaceToDepth", "Sqrt", "Sum", "Tanh",
)  # fmt: skip
"""Operators that networks with quantizers compute in float, as other graphs have them."""

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    **{("", op): onnx_operators.CONVERTERS["", op] for op in IN_FLOAT},
    ("", "Conv"): layers.conv,
    ("", "Gemm"): layers.gemm,
    ("", "MatMul"): layers.matmul,
    ("", "Add"): arithmetic.elementwise(relax.op.add),
    ("", "Sub"): arithmetic.elementwise(relax.op.subtract),
    ("", "Mul"): arithmetic.elementwise(relax.op.multiply),
    ("", "Div"): arithmetic.elementwise(relax.op.divide),
    ("", "BatchNormalization"): arithmetic.batch_norm,
    ("", "Relu"): arithmetic.relu,
    ("", "Clip"): arithmetic.clip,
    ("", "Sign"): arithmetic.sign,
    ("", "Resize"): nearest,
    ("", "Upsample"): nearest,
    ("", "MaxPool"): layers.max_pool,
    ("", "AveragePool"): layers.average_pool,
    ("", "GlobalAveragePool"): layers.global_average_pool,
    ("", "ReduceMean"): layers.reduce_mean,
    ("", "Flatten"): layers.flatten,
    ("", "Reshape"): layers.reshape,
    ("", "Squeeze"): layers.squeeze,
    ("", "Unsqueeze"): layers.unsqueeze,
    ("", "Transpose"): layers.transpose,
    ("", "Identity"): layers.identity,
    ("", "Dropout"): layers.identity,
    (QONNX, "Quant"): arithmetic.quant,
    (QONNX, "IntQuant"): arithmetic.quant,
    (QONNX, "BipolarQuant"): arithmetic.bipolar_quant,
    (QONNX, "MultiThreshold"): arithmetic.multi_threshold,
    (QONNX, "Trunc"): trunc,
}


@dataclass(frozen=True)
class Way:
    """How a graph is imported: its operators, element types and rounding rules."""

    converters: Mapping[tuple[str, str], Converter]
    accepts: tuple[str, ...]
    numerics: str


QONNX_WAY = Way(CONVERTERS, FLOAT_ONLY, "qonnx")
ONNX_WAY = Way(onnx_operators.CONVERTERS, ANY, "onnx")

FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a converter, NumPy or TVM may raise on inputs and attributes that nobody would write."""

POSTPROCESSING = frozenset({"TopK", "ArgMax", "Softmax", "LogSoftmax"})
"""Operators that, at the very end of a graph, are left to the caller of the package."""

_WHY = {
    "If": "control flow is not supported; export the model for inference",
    "Loop": "control flow is not supported; export the model for inference",
    "Scan": "control flow is not supported; export the model for inference",
    "TopK": ONLY_LAST,
    "ArgMax": ONLY_LAST,
    "FloatQuant": "small floating-point formats are not supported",
}


@dataclass(frozen=True)
class Converted:
    """A graph walked to its end: the model, unless something was unsupported."""

    model: Model | None
    shapes: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    cut: tuple[Node, ...] = ()
    unsupported: tuple[Unsupported, ...] = field(default=())


def way_of(graph: SourceGraph) -> Way:
    """QONNX's way for files that speak of it, annotate datatypes or take signs; else ONNX's."""
    kinds = {(node.domain, node.op) for node in graph.nodes}
    if kinds & onnx_operators.INTEGER_KINDS or any(i.dtype != "float32" for i in graph.inputs):
        return ONNX_WAY
    domains = [item.domain for item in graph.model.opset_import]
    is_spoken = any(domain == QONNX or "finn" in domain for domain in domains)
    return QONNX_WAY if is_spoken or graph.datatypes or ("", "Sign") in kinds else ONNX_WAY


def convert(graph: SourceGraph, options: ImportOptions) -> Model:
    """The Relax model of a source graph; StageError names everything unsupported at once."""
    result = walk(graph, options)
    if result.model is None:
        raise refusal(result.unsupported)
    return result.model


def walk(graph: SourceGraph, options: ImportOptions) -> Converted:
    """Convert what can be converted, and collect what cannot."""
    way = way_of(graph)
    if way is ONNX_WAY:
        graph = joined(graph)
    builder = RelaxBuilder(way.accepts, graph.opset)
    builder.constants.update(graph.constants)
    dtypes = {item.name: item.dtype for item in graph.inputs}
    for name, shape in input_shapes(graph, options).items():
        builder.add_input(name, shape, dtypes[name])
    outputs, cut = importable_outputs(graph)
    problems = Problems()
    needed = _needed(graph, outputs)
    for node, proto in zip(graph.nodes, graph.model.graph.node, strict=True):
        if not needed.isdisjoint(node.outputs):
            try:
                _convert_node(builder, graph, node, proto, way)
            except UnsupportedError as error:
                problems.add(node.kind, str(error), node.layer)
    for name in outputs:
        if name in builder.constants and not problems.listed():
            problems.add("output", "is a constant; no input reaches it", name)
    shapes = {name: builder.shape(name) for name in (*builder.variables, *builder.constants)}
    unsupported = problems.listed()
    model = None if unsupported else builder.finish(outputs, _attributes(graph, way))
    if model is not None and way is ONNX_WAY:
        model = noted(to_integers(model, way.numerics, session_of(graph)))
    return Converted(model, shapes, outputs, cut, unsupported)


def _convert_node(
    builder: RelaxBuilder, graph: SourceGraph, node: Node, proto: Any, way: Way
) -> None:
    key = (node.domain, node.op)
    known = all(
        not name or name in builder.constants or name in builder.variables for name in node.inputs
    )
    if known:
        if key == ("", "Shape"):
            builder.constants[node.outputs[0]] = _shape(builder, node)
            return
        onnx_operands.check(node, builder.constants)
        folded = fold(graph, node, proto, builder.constants)
        if folded is not None:
            builder.constants.update(zip(node.outputs, folded, strict=True))
            return
    if key not in way.converters and key != ("", "Shape"):
        raise UnsupportedError(_WHY.get(node.op, "there is no converter for it"))
    if not known:
        return  # something before it is unsupported, and has been reported
    try:
        value = way.converters[key](builder, node)
    except FAULTS as error:
        raise UnsupportedError("has too few inputs or attributes of the wrong kind") from error
    if isinstance(value, np.ndarray):
        builder.constants[node.outputs[0]] = value
        return
    values = value if isinstance(value, tuple) else (value,)
    builder.variables.update(zip(node.outputs, values, strict=False))


def _shape(builder: RelaxBuilder, node: Node) -> np.ndarray[Any, Any]:
    extents = np.array(builder.shape(node.inputs[0]), np.int64)
    return extents[node.attributes.get("start", 0) : node.attributes.get("end")]


def _attributes(graph: SourceGraph, way: Way) -> dict[str, Any]:
    if way is ONNX_WAY:
        attributes = {"numerics": way.numerics, "quantization": json.dumps(quantization(graph))}
        found = tuple(islands(graph))
        return attributes | ({ATTRIBUTE: written(found)} if found else {})
    datatypes = {name: kind for name, kind in graph.datatypes.items() if kind != "FLOAT32"}
    return {"numerics": "qonnx", "finn_datatypes": datatypes}


def _needed(graph: SourceGraph, outputs: tuple[str, ...]) -> set[str]:
    """Tensors the outputs depend on."""
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
    return needed


def importable_outputs(graph: SourceGraph) -> tuple[tuple[str, ...], tuple[Node, ...]]:
    """The tensors a package computes, and the final nodes it leaves to its caller.

    A ranking or softmax at the very end is cut off where operators are QONNX's, or it is unknown:
    its input becomes the output, if anything computes that.
    """
    way = way_of(graph)
    known = () if way is QONNX_WAY else way.converters
    producers = {name: node for node in graph.nodes for name in node.outputs}
    outputs: list[str] = []
    cut: list[Node] = []
    for name in graph.outputs:
        node = producers.get(name)
        if node is not None and node.op in POSTPROCESSING and (node.domain, node.op) not in known:
            before = next(iter(node.inputs), "")
            if before in producers:
                name = before
                cut += [node] if node not in cut else []
        if name not in outputs:
            outputs.append(name)
    return tuple(outputs), tuple(cut)


def input_shapes(graph: SourceGraph, options: ImportOptions) -> dict[str, tuple[int, ...]]:
    """The static shape of every graph input; an open batch becomes 1."""
    names = [item.name for item in graph.inputs]
    if not names:
        raise StageError(NO_INPUT)
    strange = sorted(set(options.inputs) - set(names))
    if strange:
        raise StageError(f"the model has no input '{strange[0]}'; its inputs are {names}")
    accepts = way_of(graph).accepts
    for item in graph.inputs:
        if item.dtype not in accepts:
            listed = ", ".join(accepts)
            raise StageError(f"input '{item.name}' is {item.dtype}; {listed} is accepted")
    return {item.name: _input_shape(item, options.inputs.get(item.name)) for item in graph.inputs}


def _input_shape(item: GraphInput, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    shape = _static_shape(item, wanted)
    if prod(shape) > MAX_ELEMENTS:
        raise StageError(
            f"input '{item.name}' has the shape {list(shape)}; "
            f"at most {MAX_ELEMENTS:,} elements are accepted"
        )
    return shape


def _static_shape(item: GraphInput, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    if wanted is not None:
        fits = len(item.shape) == len(wanted) and all(
            given in (None, w) for given, w in zip(item.shape, wanted, strict=True)
        )
        if not fits:
            raise StageError(
                f"input '{item.name}' is given the shape {list(wanted)}, "
                f"but the file says {_shown(item)}"
            )
        return wanted
    if any(extent is None for extent in item.shape[1:]):
        raise StageError(
            f"the file leaves the shape of input '{item.name}' open: {_shown(item)}",
            hint="state it in the recipe's inputs",
        )
    return tuple(1 if extent is None else extent for extent in item.shape)


def _shown(item: GraphInput) -> str:
    return "[" + ", ".join("?" if e is None else str(e) for e in item.shape) + "]"


def quantization(graph: SourceGraph) -> dict[str, dict[str, float]]:
    """Scale and zero point of graph inputs and outputs whose quantizer stands right beside them."""
    found: dict[str, dict[str, float]] = {}
    for node in graph.nodes:
        tensor = {"DequantizeLinear": node.inputs[:1], "QuantizeLinear": node.outputs[:1]}
        for name in tensor.get(node.op, ()):
            is_end = name in graph.outputs or any(item.name == name for item in graph.inputs)
            values = [graph.constants.get(each) for each in node.inputs[1:3]]
            if is_end and values and values[0] is not None and values[0].size == 1:
                point = values[1] if len(values) > 1 and values[1] is not None else np.zeros(1)
                found[name] = {"scale": float(values[0].item()), "zero_point": int(point.item())}
    return found
