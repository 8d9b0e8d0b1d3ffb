"""Legalizations of the integer dialect: each operator as one tensor expression.

With them any module of integer operators runs in plain Relax, without a kernel of ours: a second
executor that shares no arithmetic with the NumPy meanings. Sub-byte tensors must have been widened
before (`stages.qnn.legalize_storage`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from stages.qnn.algebra import factor, offset
from stages.qnn.elementwise import element
from stages.qnn.numbers import fence
from stages.qnn.processor import nearest

Expression = Callable[..., Any]


def _numerator(value: Any, zero_point_x2: int) -> Any:
    return value.astype("int32") * factor(zero_point_x2) - offset(zero_point_x2)


def _padded(data: Any, padding: Sequence[int], element: Expression, outside: Any) -> Any:
    """`element(data[...])` of an NHWC tensor, with `outside` around the picture."""
    top, left, bottom, right = padding
    n, h, w, c = data.shape
    if not any(padding):
        return te.compute(data.shape, lambda *i: element(data[i]), name="numerators")

    def at(b: Any, y: Any, x: Any, k: Any) -> Any:
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        return tirx.if_then_else(inside, element(data[b, y - top, x - left, k]), outside)

    return te.compute((n, h + top + bottom, w + left + right, c), at, name="padded")


def conv2d(
    data: Any,
    weight: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    groups: int,
    data_zero_point_x2: int,
    weight_zero_point_x2: int,
    pad_value: int,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
) -> Any:
    """Convolution of numerators."""
    oc, kh, kw, depth = (int(extent) for extent in weight.shape)
    padded = _padded(
        data,
        padding,
        lambda q: _numerator(q, data_zero_point_x2),
        tirx.const(pad_value, "int32"),
    )
    n, h, w, _ = padded.shape
    (sh, sw), (dh, dw) = strides, dilation
    ry, rx, rk = (te.reduce_axis((0, extent)) for extent in (kh, kw, depth))
    size = [
        (int(extent) - (k - 1) * d - 1) // s + 1
        for extent, k, d, s in zip((h, w), (kh, kw), dilation, strides, strict=True)
    ]

    def at(b: Any, y: Any, x: Any, o: Any) -> Any:
        channel = (o // (oc // groups)) * depth + rk
        activation = padded[b, y * sh + ry * dh, x * sw + rx * dw, channel].astype(dtype)
        filtered = _numerator(weight[o, ry, rx, rk], weight_zero_point_x2).astype(dtype)
        return te.sum(activation * filtered, axis=[ry, rx, rk])

    return te.compute((n, *size, oc), at, name="conv2d")


def dense(
    data: Any,
    weight: Any,
    *,
    data_zero_point_x2: int,
    weight_zero_point_x2: int,
    dtype: str = "int32",
) -> Any:
    """Matrix product of numerators."""
    k = te.reduce_axis((0, data.shape[1]))
    return te.compute(
        (data.shape[0], weight.shape[0]),
        lambda row, o: te.sum(
            _numerator(data[row, k], data_zero_point_x2).astype(dtype)
            * _numerator(weight[o, k], weight_zero_point_x2).astype(dtype),
            axis=k,
        ),
        name="dense",
    )


def add(lhs: Any, rhs: Any, *, lhs_zero_point: int, rhs_zero_point: int) -> Any:
    """Sum with the zero points removed."""
    return te.compute(
        lhs.shape,
        lambda *i: (
            (lhs[i].astype("int32") - lhs_zero_point) + (rhs[i].astype("int32") - rhs_zero_point)
        ),
        name="add",
    )


def _pool(
    at: Expression, shape: Sequence[Any], kernel: Sequence[int], strides: Sequence[int],
    reduce: Expression, name: str,
) -> Any:  # fmt: skip
    """Windows over `at(b, y, x, k)`, which has a shape."""
    n, h, w, c = shape
    (kh, kw), (sh, sw) = kernel, strides
    ry, rx = te.reduce_axis((0, kh)), te.reduce_axis((0, kw))
    return te.compute(
        (n, (h - kh) // sh + 1, (w - kw) // sw + 1, c),
        lambda b, y, x, k: reduce(at(b, y * sh + ry, x * sw + rx, k), axis=[ry, rx]),
        name=name,
    )


def max_pool2d(
    data: Any, *, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int]
) -> Any:
    """Maximum over windows.

    No window lies beyond an edge as a whole; one that reaches over it has the pixels at the edge in
    it, so that these may stand for those beyond, and nothing is padded.
    """
    n, h, w, c = (int(extent) for extent in data.shape)
    top, left, bottom, right = padding

    def inside(position: Any, before: int, after: int, extent: int) -> Any:
        found = position - before
        found = tirx.max(found, 0) if before else found
        return tirx.min(found, extent - 1) if after else found

    def at(b: Any, y: Any, x: Any, k: Any) -> Any:
        return data[b, inside(y, top, bottom, h), inside(x, left, right, w), k]

    shape = (n, h + top + bottom, w + left + right, c)
    return _pool(at, shape, kernel, strides, te.max, "max_pool2d")


def sum_pool2d(
    data: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
) -> Any:
    """Sum over windows with the zero point removed."""
    padded = _padded(
        data, padding, lambda q: q.astype("int32") - zero_point, tirx.const(0, "int32")
    )
    return _pool(padded, padded.shape, kernel, strides, te.sum, "sum_pool2d")


def threshold(data: Any, thresholds: Any, flip: Any, *, dtype: str, rising: bool = False) -> Any:
    """Number of thresholds reached, or missed where flipped, which none is if all are `rising`."""
    row = te.reduce_axis((0, thresholds.shape[0]))

    def at(*i: Any) -> Any:
        compared = "float32" if thresholds.dtype == "float32" else "int32"
        limit, value = (x.astype(compared) for x in (thresholds[row, i[-1]], data[i]))
        hit = value >= limit
        if not rising:
            hit = tirx.Select(flip[i[-1]] == 0, hit, value < limit)
        return te.sum(hit.astype("int32"), axis=row)

    level = te.compute(data.shape, at, name="level")
    return te.compute(data.shape, lambda *i: level[i].astype(dtype), name="threshold")


def _clip(value: Any, low: int, high: int) -> Any:
    bounds = (tirx.const(float(bound), "float32") for bound in (low, high))
    return tirx.min(tirx.max(value, next(bounds)), next(bounds))


def requantize(
    data: Any,
    multiplier: Any,
    offset: Any,
    *,
    low: int,
    high: int,
    dtype: str,
    fits: bool = False,
) -> Any:
    """Scale, move, round half to even, clip."""
    del fits

    def at(*i: Any) -> Any:
        product = fence(data[i].astype("float32") * multiplier[i[-1]])
        return nearest(_clip(product + offset[i[-1]], low, high)).astype(dtype)

    return te.compute(data.shape, at, name="requantize")


def collect(data: Any, *, pictures: int) -> Any:
    """The picture at hand, in place of all."""
    shape = (pictures, *data.shape[1:])
    return te.compute(shape, lambda _picture, *i: data[(0, *i)], name="collected")


def saturate(data: Any, *, offset: int, low: int, high: int, dtype: str) -> Any:
    """Move and clip integers."""

    def at(*i: Any) -> Any:
        moved = data[i].astype("int32") + offset
        bounds = (tirx.const(bound, "int32") for bound in (low, high))
        return tirx.min(tirx.max(moved, next(bounds)), next(bounds)).astype(dtype)

    return te.compute(data.shape, at, name="saturate")


def _away_from_zero(magnitude: Expression) -> Expression:
    """A rounding of absolute values that keeps the sign."""

    def rounded(x: Any) -> Any:
        size = magnitude(tirx.abs(x))
        return tirx.Select(x < 0, -size, size)

    return rounded


ROUNDING: dict[str, Expression] = {
    "ROUND": tirx.nearbyint,
    "ROUND_HALF_EVEN": tirx.nearbyint,
    "HALF_EVEN": tirx.nearbyint,
    "CEIL": tirx.ceil,
    "FLOOR": tirx.floor,
    "ROUND_TO_ZERO": tirx.trunc,
    "UP": _away_from_zero(tirx.ceil),
    "DOWN": tirx.trunc,
    "HALF_UP": _away_from_zero(lambda size: tirx.floor(size + tirx.const(0.5, "float32"))),
    "HALF_DOWN": _away_from_zero(lambda size: tirx.ceil(size - tirx.const(0.5, "float32"))),
}
"""The rounding modes of `stages.qnn.source.ROUNDING` as expressions of float32."""


def quantized(
    x: Any, scale: Any, zero_point: Any, *,
    low: int, high: int, shift: int, rounding: str, dtype: str,
) -> Any:  # fmt: skip
    """One value: divide, move, clip, round, count from `shift`."""
    clipped = _clip(x / scale + zero_point, low, high)
    rounded = ROUNDING[rounding]
    is_nearest = rounded is tirx.nearbyint
    integer = nearest(clipped) if is_nearest else rounded(clipped).astype("int32")
    return (integer + shift).astype(dtype)


def quantize(x: Any, scale: Any, zero_point: Any, **attrs: Any) -> Any:
    """`quantized` at every position."""

    def at(*i: Any) -> Any:
        return quantized(x[i], element(scale, i), element(zero_point, i), **attrs)

    return te.compute(x.shape, at, name="quantize")


def dequantize(data: Any, scale: Any, *, zero_point: int) -> Any:
    """Real values."""
    return te.compute(
        data.shape,
        lambda *i: (data[i].astype("int32") - zero_point).astype("float32") * element(scale, i),
        name="dequantize",
    )
