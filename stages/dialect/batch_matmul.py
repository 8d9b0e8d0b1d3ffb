"""Products of two computed matrices, such as those of attention: every image has weights.

Data are NHWC as a convolution's are, so that kernels of convolutions compute them: a matrix of W
rows is an image [1, W, K], and each image of a batch is multiplied with a matrix [O, K] of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.float_linear import float64_of
from stages.dialect.registry import register
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array
from stages.nodes import Scalar, Tensor, TensorType

BYTE_ZERO_POINT = ZeroPoint.of(128)
"""Zero point of unsigned weights: less it, they are signed bytes."""


def _type(types: Sequence[TensorType], dtype: str) -> TensorType:
    data, weight = map(shape_of, types)
    if len(data) != 4 or len(weight) != 3:
        raise ValueError(
            f"data of rank {len(data)} and weights of rank {len(weight)}; 4 and 3 are expected"
        )
    if data[0] != weight[0] or data[3] != weight[2]:
        raise ValueError(
            f"data {list(data)} and weights {list(weight)} do not agree in batch and channels"
        )
    return tensor_type((*data[:3], weight[1]), dtype)


Wider = Callable[[Scalar], Scalar]
"""A factor as its products are added up."""


def _sums(data: Tensor, weight: Tensor, wide: Sequence[Wider]) -> Tensor:
    """The tensor expression of sums of products, factors as `wide` has them."""
    k = te.reduce_axis((0, weight.shape[2]))
    return te.compute(
        (*data.shape[:3], weight.shape[1]),
        lambda n, y, x, o: te.sum(wide[0](data[n, y, x, k]) * wide[1](weight[n, o, k]), axis=k),
        name="batch_dense",
    )


def _integer_type(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    for name in ("data_zero_point", "weight_zero_point"):
        if not attrs[name].is_whole:
            raise ValueError(f"{name} of {attrs[name]}; a whole zero point is expected")
    return _type(types, "int32")


def _integer_expression(
    data: Tensor, weight: Tensor, *, data_zero_point: ZeroPoint, weight_zero_point: ZeroPoint
) -> Tensor:
    offsets = data_zero_point.whole, weight_zero_point.whole
    wide = [lambda value, offset=offset: value.astype("int32") - offset for offset in offsets]
    return _sums(data, weight, wide)


@register("batch_dense", ["data", "weight"], _integer_type, _integer_expression)
def batch_dense(
    data: Array, weight: Array, *, data_zero_point: ZeroPoint, weight_zero_point: ZeroPoint
) -> Array:
    """Products of numerators: data [N, H, W, K], weight [N, O, K], result int32 [N, H, W, O]."""
    a = data_zero_point.numerators(data).astype(np.float64)
    w = weight_zero_point.numerators(weight).astype(np.float64)
    return (a @ w.transpose(0, 2, 1)[:, None]).astype(np.int32)


def _float_type(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    kinds = {dtype_of(kind) for kind in types}
    if kinds != {"float32"}:
        raise ValueError(f"factors of {' and '.join(sorted(kinds))}; float32 is expected")
    return _type(types, "float32")


def _float_expression(data: Tensor, weight: Tensor) -> Tensor:
    sums = _sums(data, weight, [lambda value: value.astype("float64")] * 2)
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("float_batch_dense", ["data", "weight"], _float_type, _float_expression)
def float_batch_dense(data: Array, weight: Array) -> Array:
    """Products of floats: data [N, H, W, K], weight [N, O, K], result float32 [N, H, W, O].

    Sums are taken in float64 and rounded once; kernels round after every product.
    """
    sums = float64_of(data) @ float64_of(weight).transpose(0, 2, 1)[:, None]
    return sums.astype(np.float32)
