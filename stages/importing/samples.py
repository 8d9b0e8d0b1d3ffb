"""Inputs a network was made for: seeded values in the range its first operators expect.

The range comes from, in this order: FINN's datatype annotation of the input; the quantizer that
reads it (whole steps of its grid, from end to end); a division by a constant c > 1, the mark of
pixels about to be scaled (integers 0 .. c). Else pixels already scaled: k/255 in 0 .. 1; or, where
these give what is infinite or no number, as logarithms of 0 do, one of `ELSEWHERE`.

Inputs of pre-quantized models: stored integers take every value of their type; int32 and int64
small ones, which are indices and counts as a rule; floats that are quantized at once the grid they
are quantized to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of, storage_dtype
from stages.dialect.dtypes import limits
from stages.importing.onnx.domains import QONNX
from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.importing.onnx.source_arithmetic import quant_limits
from stages.kinds import Model

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

_LARGEST_INDEX = 1
_PASSING = {"Reshape", "Flatten", "Transpose", "Identity", "Squeeze", "Unsqueeze", "Dropout"}


def _integers(low: int, high: int, scale: Any = 1.0, zero_point: Any = 0.0) -> Draw:
    def values(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        stored = rng.integers(low, high, size=shape, endpoint=True).astype(np.float32)
        return ((stored - np.float32(zero_point)) * np.float32(scale)).astype(np.float32)

    return values


_PIXELS = _integers(0, 255, np.float32(1 / 255))
_ODD = _integers(0, 255, 1 / 256, -0.5)
"""Odd multiples of 1/512, since an operator may divide by zero."""
ELSEWHERE = (_ODD, _integers(0, 255, -1 / 256, -0.5), _integers(0, 255, 1 / 256, -256.5))
"""Ranges without their ends for inputs of floats that nothing tells the range of: 0 .. 1, -1 .. 0
and 1 .. 2."""


def draw(graph: SourceGraph, name: str, otherwise: Draw | None = None) -> Draw:
    """How to draw values for the graph input `name`; `otherwise` is for an unknown range."""
    from_annotation = _annotated(graph.datatypes.get(name, ""))
    if from_annotation is not None:
        return from_annotation
    for node, tensor in _first_readers(graph, name):
        found = _grid(graph, node) or _pixels(graph, node, tensor)
        if found is not None:
            return found
    return otherwise or _PIXELS


def draw_stored(model: Model, parameter: Any, otherwise: Draw | None = None) -> Draw:
    """How to draw values for an input of an imported pre-quantized model."""
    dtype = dtype_of(parameter.ty)
    if dtype == "bool":
        return lambda rng, shape: rng.integers(0, 1, shape, endpoint=True).astype(bool)
    if dtype in ("int32", "int64", "uint32", "uint64"):
        return lambda rng, shape: rng.integers(0, _LARGEST_INDEX, shape, dtype, endpoint=True)
    if dtype != "float32":
        low, high = limits(dtype)
        kind = storage_dtype(dtype)
        return lambda rng, shape: rng.integers(low, high, shape, kind, endpoint=True)
    return otherwise or _ODD


def _annotated(datatype: str) -> Draw | None:
    if datatype == "BIPOLAR":
        return _integers(0, 1, 2.0, 0.5)
    if datatype == "BINARY":
        return _integers(0, 1)
    match = re.fullmatch(r"(U?)INT([1-9]|[12][0-9])", datatype)
    if match is None:
        return None
    return _integers(*quant_limits(int(match[2]), not match[1], narrow=False))


def _first_readers(graph: SourceGraph, name: str) -> Iterator[tuple[Node, str]]:
    """Nodes that read the input or a mere rearrangement of it, with the tensor they read."""
    same = {name}
    for node in graph.nodes:
        if node.inputs and node.inputs[0] in same:
            if not node.domain and node.op in _PASSING:
                same.add(node.outputs[0])
            else:
                yield node, node.inputs[0]


def _grid(graph: SourceGraph, node: Node) -> Draw | None:
    if node.domain != QONNX or node.op not in ("Quant", "IntQuant"):
        return None
    scale, zero_point, bits = (graph.number(node, position) for position in (1, 2, 3))
    if scale is None or zero_point is None or bits is None or not 1 <= bits <= 24:
        return None
    signed, narrow = bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0))
    return _integers(*quant_limits(int(bits), signed, narrow), scale, zero_point)


def _pixels(graph: SourceGraph, node: Node, tensor: str) -> Draw | None:
    if node.domain or node.op != "Div" or node.inputs[0] != tensor:
        return None
    divisor = graph.number(node, 1)
    if divisor is None or not 1 < divisor <= 2**24:
        return None
    return _integers(0, int(divisor))
