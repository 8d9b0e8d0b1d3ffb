"""Evaluating the small constant subgraphs exporters leave behind, such as chains of shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]

MAX_FOLDED = 1 << 16
"""Elements: what is larger is a weight, which the graph's own operators go on to process."""

MAX_FILLED = 1 << 24

_BROADCASTING = {
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Equal", "Greater", "Less", "Min", "Max", "Where",
}  # fmt: skip
_SHAPING = {"Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Concat", "Slice"}
_POINTWISE = {"Cast", "Sqrt", "Reciprocal", "Neg", "Abs", "Floor", "Ceil", "Identity", "Size"}
_REDUCING = {"ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin"}
FOLDABLE = _BROADCASTING | _SHAPING | _POINTWISE | _REDUCING | {"Gather", "ConstantOfShape"}


def fold(
    graph: SourceGraph, node: Node, proto: onnx.NodeProto, constants: dict[str, Array]
) -> list[Array] | None:
    """The results of a node all of whose inputs are constant, or None if it is left as it is."""
    if node.domain:
        return None
    if node.op == "Constant":
        return [_constant(node)]
    if node.op not in FOLDABLE or any(name and name not in constants for name in node.inputs):
        return None
    values = [constants[name] for name in node.inputs if name]
    if not _is_small(node, values):
        return None
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [proto],
            "fold",
            [_info(name, constants[name]) for name in dict.fromkeys(node.inputs) if name],
            [onnx.ValueInfoProto(name=name) for name in node.outputs],
        ),
        opset_imports=[onnx.helper.make_opsetid("", graph.opset)],
    )
    try:
        feeds = {name: constants[name] for name in node.inputs if name}
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]
    except Exception as error:
        # onnx's reference operators raise whatever NumPy raises on values that do not fit.
        raise UnsupportedError(f"cannot be evaluated on its constant inputs ({error})") from error


def _info(name: str, value: Array) -> onnx.ValueInfoProto:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, value.shape)


def _constant(node: Node) -> Array:
    readers: dict[str, Callable[[Any], Array]] = {
        "value": np.asarray,
        "value_float": lambda value: np.asarray(value, np.float32),
        "value_floats": lambda value: np.asarray(value, np.float32),
        "value_int": lambda value: np.asarray(value, np.int64),
        "value_ints": lambda value: np.asarray(value, np.int64),
    }
    for name, reader in readers.items():
        if name in node.attributes:
            return np.asarray(reader(node.attributes[name]))
    raise UnsupportedError(f"holds {sorted(node.attributes)}; dense numbers are accepted")


def _is_small(node: Node, values: list[Array]) -> bool:
    """Whether evaluating takes little memory, decided before anything is computed."""
    if node.op == "ConstantOfShape":
        extents = values[0].ravel().tolist()
        return all(extent >= 0 for extent in extents) and prod(extents) <= MAX_FILLED
    if sum(value.size for value in values) > MAX_FOLDED:
        return False
    if node.op == "Gather":
        return values[0].size * values[1].size <= MAX_FILLED
    if node.op in _BROADCASTING:
        try:
            return prod(np.broadcast_shapes(*(value.shape for value in values))) <= MAX_FOLDED
        except ValueError:
            return False
    return True
