"""The operators that exported programs may hold, each with the converter that makes it Relax.

A converter takes the builder and the node. It returns the values of the node's outputs: Relax
variables, or arrays and numbers where they are known at import. It raises UnsupportedError, whose
sentence continues the operator's name, for what it does not accept.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from stages.importing.torch_export import aten_arithmetic, aten_layers, aten_movement
from stages.importing.torch_export.decomposed_quantizers import QUANTIZERS
from stages.importing.torch_export.exported_program import Node, Program
from stages.importing.torch_export.torch_builder import Converter
from stages.importing.unsupported import NO_CONVERTER, Problems, Unsupported
from stages.numerics import float_elementwise

_ATEN: Mapping[str, Converter] = {
    "conv2d": aten_layers.convolution,
    "convolution": aten_layers.convolution,
    "linear": aten_layers.linear,
    "addmm": aten_layers.addmm,
    "mm": aten_layers.matmul,
    "bmm": aten_layers.matmul,
    "matmul": aten_layers.matmul,
    "max_pool2d": aten_layers.max_pool,
    "max_pool2d_with_indices": aten_layers.max_pool,
    "avg_pool2d": aten_layers.average_pool,
    "adaptive_avg_pool2d": aten_layers.adaptive_average_pool,
    "_adaptive_avg_pool2d": aten_layers.adaptive_average_pool,
    "batch_norm": aten_layers.batch_norm,
    "_native_batch_norm_legit_no_training": aten_layers.batch_norm,
    "layer_norm": aten_layers.layer_norm,
    "native_layer_norm": aten_layers.layer_norm,
    "embedding": aten_layers.embedding,
    "add": aten_arithmetic.binary(relax.op.add),
    "sub": aten_arithmetic.binary(relax.op.subtract),
    "mul": aten_arithmetic.binary(relax.op.multiply),
    "div": aten_arithmetic.binary(relax.op.divide),
    "maximum": aten_arithmetic.binary(relax.op.maximum),
    "minimum": aten_arithmetic.binary(relax.op.minimum),
    "relu": aten_arithmetic.unary(relax.op.nn.relu),
    "neg": aten_arithmetic.unary(relax.op.negative),
    "abs": aten_arithmetic.unary(relax.op.abs),
    "sqrt": aten_arithmetic.unary(relax.op.sqrt),
    "exp": aten_arithmetic.unary(float_elementwise.exp),
    "sigmoid": aten_arithmetic.unary(float_elementwise.sigmoid),
    "tanh": aten_arithmetic.unary(float_elementwise.tanh),
    "hardswish": aten_arithmetic.unary(float_elementwise.hard_swish),
    "hardsigmoid": aten_arithmetic.hard_sigmoid,
    "silu": aten_arithmetic.silu,
    "gelu": aten_arithmetic.gelu,
    "leaky_relu": aten_arithmetic.leaky_relu,
    "hardtanh": aten_arithmetic.clip("min_val", "max_val", (-1.0, 1.0)),
    "relu6": aten_arithmetic.clip("min_val", "max_val", (0.0, 6.0)),
    "clamp": aten_arithmetic.clip("min", "max"),
    "softmax": aten_arithmetic.softmax,
    "_softmax": aten_arithmetic.softmax,
    "mean": aten_arithmetic.mean,
    "to": aten_arithmetic.to_type,
    "_to_copy": aten_arithmetic.to_type,
    "view": aten_movement.view,
    "_unsafe_view": aten_movement.view,
    "reshape": aten_movement.view,
    "flatten": aten_movement.flatten,
    "squeeze": aten_movement.squeeze,
    "unsqueeze": aten_movement.unsqueeze,
    "permute": aten_movement.permute,
    "transpose": aten_movement.transpose,
    "t": aten_movement.transpose,
    "cat": aten_movement.concatenate,
    "slice": aten_movement.slice_,
    "select": aten_movement.select,
    "split": aten_movement.split,
    "split_with_sizes": aten_movement.split,
    "chunk": aten_movement.split,
    "expand": aten_movement.expand,
    "sym_size": aten_movement.size,
    "dropout": aten_movement.dropout,
    "feature_dropout": aten_movement.dropout,
    "contiguous": aten_movement.identity,
    "clone": aten_movement.identity,
    "alias": aten_movement.identity,
    "detach": aten_movement.identity,
    "lift_fresh_copy": aten_movement.identity,
}
"""Converters by name; overloads differ in what their arguments are, which converters look at."""
VIEWS = (
    aten_movement.view,
    aten_movement.flatten,
    aten_movement.squeeze,
    aten_movement.unsqueeze,
    aten_movement.permute,
    aten_movement.transpose,
    aten_movement.slice_,
    aten_movement.select,
    aten_movement.split,
    aten_movement.expand,
    aten_movement.identity,
    aten_movement.dropout,
    aten_arithmetic.to_type,
)
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


def is_in_place(node: Node) -> bool:
    """Whether a node writes into its operand."""
    found = converter_of(node.op)
    return found is not None and found[1]


_CHECKS = "aten._assert"
"""How operators are called that compute nothing: they check what is known at import."""


def unknown_operators(program: Program) -> tuple[Unsupported, ...]:
    """Operators of a program that there is no converter for."""
    problems = Problems()
    for node in program.nodes:
        is_own = node.op == "_operator.getitem" or node.op.startswith(_CHECKS)
        if not is_own and converter_of(node.op) is None:
            problems.add(node.op, NO_CONVERTER, node.name)
    return problems.listed()
