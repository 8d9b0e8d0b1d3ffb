"""Legalizations of the integer dialect's products and pools: each as one tensor expression.

With them, and with those of the elementwise operators, any module of integer operators runs in
plain Relax, without a kernel of ours: a second executor, whose sums share nothing with the NumPy
meanings. Sub-byte tensors must have been widened before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from stages.dialect.infer import output_size
from stages.dialect.padding import Padding, Sides
from stages.dialect.zero_point import ZeroPoint
from stages.nodes import Scalar, Tensor

Expression = Callable[..., Any]


def _numerator(value: Any, zero_point: ZeroPoint) -> Any:
    return zero_point.numerator(value.astype("int32"))


def _padded(data: Tensor, padding: Padding, element: Expression) -> Tensor:
    """The numerators `element(data[...])` of an NHWC tensor, with those of padding around."""
    (top, left, _, _), outside = padding.sides, tirx.const(padding.numerator, "int32")
    n, h, w, c = data.shape
    if not any(padding.sides):
        return te.compute(data.shape, lambda *i: element(data[i]), name="numerators")

    def at(b: Scalar, y: Scalar, x: Scalar, k: Scalar) -> Scalar:
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        return tirx.if_then_else(inside, element(data[b, y - top, x - left, k]), outside)

    return te.compute((n, *padding.sides.around(h, w), c), at, name="padded")


def conv2d(
    data: Tensor,
    weight: Tensor,
    *,
    strides: Sequence[int],
    padding: Padding,
    groups: int,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
    of_levels: bool = False,
) -> Any:
    """Convolution of numerators."""
    del of_levels
    oc, kh, kw, depth = (int(extent) for extent in weight.shape)
    padded = _padded(data, padding, lambda q: _numerator(q, data_zero_point))
    n, h, w, _ = (int(extent) for extent in padded.shape)
    (sh, sw), (dh, dw) = strides, dilation
    ry, rx, rk = (te.reduce_axis((0, extent)) for extent in (kh, kw, depth))
    size = output_size((h, w), (kh, kw), strides, dilation)

    def at(b: Scalar, y: Scalar, x: Scalar, o: Scalar) -> Scalar:
        channel = (o // (oc // groups)) * depth + rk
        activation = padded[b, y * sh + ry * dh, x * sw + rx * dw, channel].astype(dtype)
        filtered = _numerator(weight[o, ry, rx, rk], weight_zero_point).astype(dtype)
        return te.sum(activation * filtered, axis=[ry, rx, rk])

    return te.compute((n, *size, oc), at, name="conv2d")


def dense(
    data: Tensor,
    weight: Tensor,
    *,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str = "int32",
    of_levels: bool = False,
) -> Any:
    """Matrix product of numerators."""
    del of_levels
    k = te.reduce_axis((0, data.shape[1]))
    return te.compute(
        (data.shape[0], weight.shape[0]),
        lambda row, o: te.sum(
            _numerator(data[row, k], data_zero_point).astype(dtype)
            * _numerator(weight[o, k], weight_zero_point).astype(dtype),
            axis=k,
        ),
        name="dense",
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
    data: Tensor, *, kernel: Sequence[int], strides: Sequence[int], padding: Sides
) -> Any:
    """Maximum over windows.

    No window lies beyond an edge as a whole; one that reaches over it has the pixels at the edge in
    it, so that these may stand for those beyond, and nothing is padded.
    """
    n, h, w, c = (int(extent) for extent in data.shape)
    top, left, bottom, right = padding

    def inside(position: Scalar, before: int, after: int, extent: int) -> Scalar:
        found = position - before
        found = tirx.max(found, 0) if before else found
        return tirx.min(found, extent - 1) if after else found

    def at(b: Scalar, y: Scalar, x: Scalar, k: Scalar) -> Scalar:
        return data[b, inside(y, top, bottom, h), inside(x, left, right, w), k]

    shape = (n, *padding.around(h, w), c)
    return _pool(at, shape, kernel, strides, te.max, "max_pool2d")


def sum_pool2d(
    data: Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sides,
    zero_point: ZeroPoint,
) -> Any:
    """Sum over windows with the zero point removed."""
    padded = _padded(data, Padding(padding), lambda q: q.astype("int32") - zero_point.whole)
    return _pool(padded, padded.shape, kernel, strides, te.sum, "sum_pool2d")


def collect(data: Tensor, *, pictures: int) -> Any:
    """The image at hand, in place of all."""
    shape = (pictures, *data.shape[1:])
    return te.compute(shape, lambda _image, *i: data[(0, *i)], name="collected")
