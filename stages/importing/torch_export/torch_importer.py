"""The table of ATen's operators, and the conversion of a whole exported program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.errors import StageError
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.torch_export import aten_arithmetic as arithmetic
from stages.importing.torch_export import aten_layers as layers
from stages.importing.torch_export import aten_movement as moving
from stages.importing.torch_export.decomposed_quantizers import QUANTIZERS
from stages.importing.torch_export.exported_program import Meta, Node, Program
from stages.importing.torch_export.torch_builder import Walk
from stages.importing.unsupported import MISFITS, Problems, Unsupported, UnsupportedError
from stages.kinds import Model
from stages.numerics import float_elementwise, qdq
from stages.options import ImportOptions

Converter = Callable[[Walk, Node], list[Any]]

_ATEN: Mapping[str, Converter] = {
    "conv2d": layers.convolution,
    "convolution": layers.convolution,
    "linear": layers.linear,
    "addmm": layers.addmm,
    "mm": layers.matmul,
    "bmm": layers.matmul,
    "matmul": layers.matmul,
    "max_pool2d": layers.max_pool,
    "max_pool2d_with_indices": layers.max_pool,
    "avg_pool2d": layers.average_pool,
    "adaptive_avg_pool2d": layers.adaptive_average_pool,
    "_adaptive_avg_pool2d": layers.adaptive_average_pool,
    "batch_norm": layers.batch_norm,
    "_native_batch_norm_legit_no_training": layers.batch_norm,
    "layer_norm": layers.layer_norm,
    "native_layer_norm": layers.layer_norm,
    "embedding": layers.embedding,
    "add": arithmetic.binary(relax.op.add),
    "sub": arithmetic.binary(relax.op.subtract),
    "mul": arithmetic.binary(relax.op.multiply),
    "div": arithmetic.binary(relax.op.divide),
    "maximum": arithmetic.binary(relax.op.maximum),
    "minimum": arithmetic.binary(relax.op.minimum),
    "relu": arithmetic.unary(relax.op.nn.relu),
    "neg": arithmetic.unary(relax.op.negative),
    "abs": arithmetic.unary(relax.op.abs),
    "sqrt": arithmetic.unary(relax.op.sqrt),
    "exp": arithmetic.unary(float_elementwise.exp),
    "sigmoid": arithmetic.unary(float_elementwise.sigmoid),
    "tanh": arithmetic.unary(float_elementwise.tanh),
    "hardswish": arithmetic.unary(float_elementwise.hard_swish),
    "hardsigmoid": arithmetic.hard_sigmoid,
    "silu": arithmetic.silu,
    "gelu": arithmetic.gelu,
    "leaky_relu": arithmetic.leaky_relu,
    "hardtanh": arithmetic.clip("min_val", "max_val", (-1.0, 1.0)),
    "relu6": arithmetic.clip("min_val", "max_val", (0.0, 6.0)),
    "clamp": arithmetic.clip("min", "max"),
    "softmax": arithmetic.softmax,
    "_softmax": arithmetic.softmax,
    "mean": arithmetic.mean,
    "to": arithmetic.to_type,
    "_to_copy": arithmetic.to_type,
    "view": moving.view,
    "_unsafe_view": moving.view,
    "reshape": moving.view,
    "flatten": moving.flatten,
    "squeeze": moving.squeeze,
    "unsqueeze": moving.unsqueeze,
    "permute": moving.permute,
    "transpose": moving.transpose,
    "t": moving.transpose,
    "cat": moving.concatenate,
    "slice": moving.slice_,
    "select": moving.select,
    "split": moving.split,
    "split_with_sizes": moving.split,
    "chunk": moving.split,
    "expand": moving.expand,
    "sym_size": moving.size,
    "dropout": moving.dropout,
    "feature_dropout": moving.dropout,
    "contiguous": moving.identity,
    "clone": moving.identity,
    "alias": moving.identity,
    "detach": moving.identity,
    "lift_fresh_copy": moving.identity,
}
"""Converters by name; overloads differ in what their arguments are, which converters look at."""
_VIEWS = (
    moving.view, moving.flatten, moving.squeeze, moving.unsqueeze, moving.permute, moving.transpose,
    moving.slice_, moving.select, moving.split, moving.expand, moving.identity, moving.dropout,
    arithmetic.to_type,
)  # fmt: skip
"""Converters of operators whose result may share memory with their operand."""
_REFUSED = frozenset({"squeeze.dimname", "softmax.Dimname", "to.device", "to.other"})


def converter_of(op: str) -> tuple[Converter, bool] | None:
    """The converter of an operator, and whether it writes into its operand."""
    if op in QUANTIZERS:
        return QUANTIZERS[op], False
    if not op.startswith("aten.") or op.removeprefix("aten.") in _REFUSED:
        return None
    name = op.split(".")[1]
    if name in _ATEN:
        return _ATEN[name], False
    plain = name.removesuffix("_")
    return (_ATEN[plain], True) if plain in _ATEN else None


@dataclass(frozen=True)
class Converted:
    """A program walked to its end: the model, unless something was unsupported."""

    model: Model | None
    shapes: dict[str, tuple[int, ...]]
    unsupported: tuple[Unsupported, ...] = field(default=())


_CHECKS = "aten._assert"
"""How operators are called that compute nothing: they check what is known at import."""


def unknown_operators(program: Program) -> tuple[Unsupported, ...]:
    """Operators of a program that there is no converter for."""
    problems = Problems()
    for node in program.nodes:
        is_own = node.op == "_operator.getitem" or node.op.startswith(_CHECKS)
        if not is_own and converter_of(node.op) is None:
            problems.add(node.op, "there is no converter for it", node.name)
    return problems.listed()


def walk(program: Program, options: ImportOptions) -> Converted:
    """Convert what can be converted, and collect what cannot."""
    graph = Walk(program)
    for name, (shape, dtype) in input_types(program, options).items():
        graph.values[name] = graph.emitter.input(name, shape, dtype)
    problems = Problems()
    for node in needed_nodes(program):
        try:
            _convert(graph, node)
        except UnsupportedError as error:
            problems.add(node.op, str(error), node.name)
    for name in program.outputs:
        if isinstance(graph.values.get(name), (np.ndarray, int)):
            problems.add("output", "is a constant; no input reaches it", name)
    shapes = {
        name: graph.shape(graph.values[name]) for name in program.outputs if name in graph.values
    } if not problems.listed() else {}  # fmt: skip
    if problems.listed():
        return Converted(None, shapes, problems.listed())
    missing = [name for name in program.outputs if name not in graph.values]
    if missing:
        raise StageError(f"no node of the program gives its output '{missing[0]}'")
    names = [*dict.fromkeys(program.outputs)]
    attributes = {"numerics": "torch", "quantization": json.dumps({})}
    model = graph.emitter.finish([graph.values[name] for name in names], names, attributes)
    return Converted(qdq.to_integers(model, "torch"), shapes)


def _convert(graph: Walk, node: Node) -> None:
    found = converter_of(node.op)
    if found is None:
        raise UnsupportedError("there is no converter for it")
    if not graph.is_known(node):
        return  # something before it is unsupported, and has been reported
    converter, in_place = found
    try:
        results = converter(graph, node)
    except MISFITS as error:
        raise UnsupportedError("has operands or attributes that do not fit it") from error
    graph.values.update(zip(node.outputs, results, strict=False))
    source = getattr(node.arguments.get("self"), "name", "")
    if converter in _VIEWS:
        graph.viewed.update((source, *node.outputs))
    if in_place:
        if source in graph.viewed and converter not in _VIEWS:
            raise UnsupportedError(
                "writes into memory that is seen by several names; export the program with "
                "run_decompositions()"
            )
        graph.values[source] = results[0]


def needed_nodes(program: Program) -> list[Node]:
    """Nodes that the outputs depend on, and those that write into an operand."""
    needed = set(program.outputs)
    kept = []
    for node in reversed(program.nodes):
        found = converter_of(node.op)
        if (found is not None and found[1]) or not needed.isdisjoint(node.outputs):
            kept.append(node)
            for value in node.arguments.values():
                for each in value if isinstance(value, list) else [value]:
                    needed.add(getattr(each, "name", ""))
    return kept[::-1]


def input_types(program: Program, options: ImportOptions) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every input; an open batch becomes 1."""
    names = list(program.inputs)
    strange = sorted(set(options.inputs) - set(names))
    if strange:
        raise StageError(f"the model has no input '{strange[0]}'; its inputs are {names}")
    return {
        name: (_input_shape(name, meta, options.inputs.get(name)), _input_dtype(name, meta))
        for name, meta in program.inputs.items()
    }


def _input_dtype(name: str, meta: Meta) -> str:
    if meta.dtype not in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool"):
        raise StageError(f"input '{name}' is {meta.dtype}; float32 and integers are accepted")
    return meta.dtype


def _input_shape(name: str, meta: Meta, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    shown = "[" + ", ".join("?" if e is None else str(e) for e in meta.shape) + "]"
    if wanted is not None:
        if len(wanted) != len(meta.shape) or any(
            given not in (None, extent) for given, extent in zip(meta.shape, wanted, strict=True)
        ):
            raise StageError(
                f"input '{name}' is given the shape {list(wanted)}, but the file says {shown}"
            )
        shape = wanted
    elif None in meta.shape[1:]:
        raise StageError(
            f"the file leaves the shape of input '{name}' open: {shown}",
            hint="state it in the recipe's inputs",
        )
    else:
        shape = tuple(1 if extent is None else extent for extent in meta.shape)
    if min(shape, default=1) < 1 or prod(shape) > MAX_ELEMENTS:
        raise StageError(
            f"input '{name}' has the shape {list(shape)}; extents from 1 and at most "
            f"{MAX_ELEMENTS:,} elements are accepted"
        )
    return tuple(shape)
