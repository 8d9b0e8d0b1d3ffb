"""Bilinear interpolation between four neighbours, as TensorFlow Lite computes it.

Which rows and columns lie around an output position, and how far from each, is computed at import.
Source: tensorflow/lite/kernels/internal/reference/resize_bilinear.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.dtypes import parse
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import Scalar, Tensor, TensorType

OPERANDS = ("data", "top", "bottom", "down", "left", "right", "across")
"""`top` and `bottom` are rows [OH], `down` how far between them; `left`, `right`, `across` [OW]."""


def _infer(weights: str, accepted: Sequence[str]) -> Callable[..., Any]:
    def infer(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
        data, rows, columns = types[0], types[1:4], types[4:7]
        shape = shape_of(data)
        if len(shape) != 4 or dtype_of(data) not in accepted:
            raise ValueError(f"data of {dtype_of(data)} {list(shape)}; NHWC is expected")
        for group in (rows, columns):
            found = [(shape_of(kind), dtype_of(kind)) for kind in group]
            if len({s for s, _ in found}) != 1 or len(found[0][0]) != 1:
                raise ValueError(f"places of shapes {[list(s) for s, _ in found]}")
            if [d for _, d in found] != ["int32", "int32", weights]:
                raise ValueError(f"places of types {[d for _, d in found]}")
        size = shape_of(rows[0])[0], shape_of(columns[0])[0]
        return tensor_type((shape[0], *size, shape[3]), dtype_of(data))

    return infer


def _between(m: Numbers, corners: Sequence[Value], down: Value, across: Value, dtype: str) -> Value:
    """In steps of 2^-10, rounded halves away from zero."""
    one = m.constant(1 << 10, "int64")
    top_left, bottom_left, top_right, bottom_right = (m.cast(c, "int64") for c in corners)
    total = (
        top_left * (one - down) * (one - across)
        + bottom_left * down * (one - across)
        + top_right * (one - down) * across
        + bottom_right * down * across
    )
    half = m.constant(1 << 19, "int64")
    nudged = m.where(total > m.constant(0, "int64"), total + half, total - half)
    return m.cast(m.quotient(nudged, m.constant(1 << 20, "int64")), dtype)


def _between_floats(
    m: Numbers, corners: Sequence[Value], down: Value, across: Value, dtype: str
) -> Value:
    """In float32; integers are rounded halves up. The sum is taken from left to right."""
    one = m.constant(1.0, "float32")
    up, back = one - down, one - across
    parts = [
        m.product(m.product(m.cast(corner, "float32"), vertical), horizontal)
        for corner, (vertical, horizontal) in zip(
            corners, [(up, back), (down, back), (up, across), (down, across)], strict=True
        )
    ]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    is_float = parse(dtype).is_float
    return total if is_float else m.cast(total + m.constant(0.5, "float32"), dtype)


def _meaning(between: Callable[..., Any], weights: str) -> Callable[..., Array]:
    def meaning(
        data: Array,
        top: Array,
        bottom: Array,
        down: Array,
        left: Array,
        right: Array,
        across: Array,
    ) -> Array:
        corners = [
            data[:, rows][:, :, columns] for columns in (left, right) for rows in (top, bottom)
        ]
        far_down = down.astype(weights)[None, :, None, None]
        far_across = across.astype(weights)[None, None, :, None]
        result: Array = between(NUMPY, corners, far_down, far_across, str(data.dtype))
        return result

    return meaning


def _legalize(between: Callable[..., Any], weights: str) -> Callable[..., Any]:
    def legalize(
        data: Tensor,
        top: Tensor,
        bottom: Tensor,
        down: Tensor,
        left: Tensor,
        right: Tensor,
        across: Tensor,
    ) -> Any:
        n, _, _, channels = (int(extent) for extent in data.shape)

        def at(b: Scalar, y: Scalar, x: Scalar, c: Scalar) -> Scalar:
            corners = [data[b, r[y], k[x], c] for k in (left, right) for r in (top, bottom)]
            far = down[y].astype(weights), across[x].astype(weights)
            return between(TIR, corners, *far, str(data.dtype))

        shape = (n, int(top.shape[0]), int(left.shape[0]), channels)
        return te.compute(shape, at, name="resize_bilinear")

    return legalize


def _register(name: str, between: Callable[..., Any], wide: str, stored: str, doc: str) -> Any:
    accepted = ("int8", "int16") if stored == "int32" else ("float32", "uint8", "int8")
    meaning = _meaning(between, wide)
    meaning.__doc__ = doc
    legalize = _legalize(between, wide)
    return register(name, OPERANDS, _infer(stored, accepted), legalize)(meaning)


resize_bilinear = _register(
    "resize_bilinear", _between_floats, "float32", "float32",
    "Resize NHWC data of floats or bytes in float32; `down` and `across` are float32.",
)  # fmt: skip
resize_bilinear_integer = _register(
    "resize_bilinear_integer", _between, "int64", "int32",
    "Resize NHWC integers in fixed point; `down` and `across` are int32 in steps of 2^-10.",
)  # fmt: skip
