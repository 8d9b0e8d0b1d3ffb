"""NumPy meanings of the ordinary Relax operators that source graphs and float islands use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stages.dialect import names
from stages.dialect.calls import shape_of, storage_dtype
from stages.dialect.convolve import pad_spatial, windows
from stages.dialect.movement_numpy import MOVING
from stages.kinds import Array
from stages.nodes import Call


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


def _conv2d(call: Call, x: Array, weight: Array) -> Array:
    """Float NCHW convolution with OIHW weights; sums in float64, rounded to float32 once."""
    attrs = call.attrs
    if str(attrs.data_layout) != "NCHW" or str(attrs.kernel_layout) != "OIHW":
        raise NotImplementedError(f"conv2d layout {attrs.data_layout}/{attrs.kernel_layout}")
    dilation = _ints(attrs.dilation)
    if dilation != [1, 1]:
        weight = _dilate(weight, dilation)
    data = pad_spatial(x.transpose(0, 2, 3, 1), _ints(attrs.padding), 0.0)
    out = _float_convolve(
        data, weight.transpose(0, 2, 3, 1), _ints(attrs.strides), int(attrs.groups)
    )
    return out.transpose(0, 3, 1, 2)


def _dilate(weight: Array, dilation: list[int]) -> Array:
    o, i, kh, kw = weight.shape
    spread = np.zeros((o, i, (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1), weight.dtype)
    spread[:, :, :: dilation[0], :: dilation[1]] = weight
    return spread


def _float_convolve(data: Array, weight: Array, strides: list[int], groups: int) -> Array:
    oc, kh, kw, group_channels = weight.shape
    view = windows(data.astype(np.float64), (kh, kw), strides)
    parts = []
    for group in range(groups):
        channels = slice(group * group_channels, (group + 1) * group_channels)
        columns = view[:, :, :, channels].transpose(0, 1, 2, 4, 5, 3)
        matrix = weight[group * oc // groups : (group + 1) * oc // groups].astype(np.float64)
        parts.append(np.tensordot(columns, matrix, axes=([3, 4, 5], [1, 2, 3])))
    return np.concatenate(parts, axis=3).astype(np.float32)


def _pool(call: Call, x: Array) -> tuple[Array, Array]:
    attrs = call.attrs
    if bool(attrs.ceil_mode) or _ints(attrs.dilation) != [1, 1]:
        raise NotImplementedError("pooling with ceil_mode or dilation")
    padding = _ints(attrs.padding)
    data = x.transpose(0, 2, 3, 1)
    kernel, strides = _ints(attrs.pool_size), _ints(attrs.strides)
    valid = windows(pad_spatial(np.ones_like(data), padding, 0), kernel, strides)
    padded = np.pad(
        data,
        [(0, 0), (padding[0], padding[2]), (padding[1], padding[3]), (0, 0)],
        constant_values=-np.inf if call.op.name.endswith("max_pool2d") else 0,
    )
    return windows(padded, kernel, strides), valid


def _max_pool2d(call: Call, x: Array) -> Array:
    return _pool(call, x)[0].max(axis=(4, 5)).transpose(0, 3, 1, 2)


def _avg_pool2d(call: Call, x: Array) -> Array:
    values, valid = _pool(call, x)
    total = values.sum(axis=(4, 5), dtype=np.float64).astype(np.float32)
    size = values.shape[4] * values.shape[5]
    count = size if bool(call.attrs.count_include_pad) else valid.sum(axis=(4, 5))
    return (total / np.asarray(count, np.float32)).transpose(0, 3, 1, 2)


def _axes(call: Call, x: Array) -> tuple[int, ...]:
    axis = call.attrs.axis
    return tuple(range(x.ndim)) if axis is None else tuple(_ints(axis))


def _mean(call: Call, x: Array) -> Array:
    """The sum, in float64 and rounded once, by the count in float32."""
    axes = _axes(call, x)
    total = x.sum(axis=axes, keepdims=bool(call.attrs.keepdims), dtype=np.float64)
    count = np.float32(np.prod([x.shape[axis] for axis in axes]))
    return total.astype(np.float32) / count


def _sum(call: Call, x: Array) -> Array:
    """Floats are added in float64 and rounded once."""
    wide = np.float64 if x.dtype.kind == "f" else np.int64
    total = x.sum(axis=_axes(call, x), keepdims=bool(call.attrs.keepdims), dtype=wide)
    return total.astype(x.dtype)


def _matmul(_call: Call, a: Array, b: Array) -> Array:
    """Floats are added in float64 and rounded once; integers in the result's type."""
    if a.dtype.kind != "f":
        return np.matmul(a, b)
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _reshape(call: Call, x: Array) -> Array:
    return x.reshape(shape_of(call.ty))


def _permute_dims(call: Call, x: Array) -> Array:
    axes = None if call.attrs.axes is None else _ints(call.attrs.axes)
    return np.transpose(x, axes)


def _clip(call: Call, x: Array) -> Array:
    low, high = (np.asarray(float(bound.value), x.dtype) for bound in call.args[1:])
    return np.clip(x, low, high)


def _astype(call: Call, x: Array) -> Array:
    return x.astype(storage_dtype(str(call.ty.dtype)))


STANDARD: Mapping[str, Callable[..., Array]] = {
    names.ADD: lambda _call, a, b: a + b,
    names.SUBTRACT: lambda _call, a, b: a - b,
    names.MULTIPLY: lambda _call, a, b: a * b,
    names.DIVIDE: lambda _call, a, b: a / b,
    names.MATMUL: _matmul,
    names.MAXIMUM: lambda _call, a, b: np.maximum(a, b),
    names.MINIMUM: lambda _call, a, b: np.minimum(a, b),
    names.RELU: lambda _call, a: np.maximum(a, 0),
    names.SIGN: lambda _call, a: np.sign(a),
    names.SQRT: lambda _call, a: np.sqrt(a),
    names.CONV2D: _conv2d,
    names.MAX_POOL2D: _max_pool2d,
    names.AVG_POOL2D: _avg_pool2d,
    names.MEAN: _mean,
    names.RESHAPE: _reshape,
    names.SQUEEZE: _reshape,
    names.EXPAND_DIMS: _reshape,
    names.FLATTEN: _reshape,
    names.PERMUTE_DIMS: _permute_dims,
    names.CLIP: _clip,
    names.ASTYPE: _astype,
    names.ABS: lambda _call, a: np.abs(a),
    names.NEGATIVE: lambda _call, a: -a,
    names.FLOOR: lambda _call, a: np.floor(a),
    names.CEIL: lambda _call, a: np.ceil(a),
    names.ROUND: lambda _call, a: np.rint(a),
    names.RSQRT: lambda _call, a: np.float32(1) / np.sqrt(a),
    names.SQUARE: lambda _call, a: a * a,
    names.SUM: _sum,
    **MOVING,
}
"""Full operator name → meaning; tensors only, attributes are read from the call."""
