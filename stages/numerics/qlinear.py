"""ONNX's quantized operators spelled out in the dialect: accumulators, bias, rescaling.

Each function emits the bindings of one operator and returns its result. They serve files that
name the operator (QLinearConv) and QDQ graphs that ONNX Runtime would fuse into it. Data and
windows are NCHW as in ONNX; the dialect's convolutions are NHWC, hence the transposes around them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.calls import shape_of
from stages.dialect.dtypes import limits
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.padding import NO_SIDES, Padding, Sides
from stages.kinds import Array
from stages.nodes import Var
from stages.numerics import linear_quantizers, onnx_elementwise, onnx_layers, onnx_luts
from stages.numerics.binding_target import BindingTarget
from stages.numerics.quantization import Quantization
from stages.numerics.quantization_grid import Grid
from stages.numerics.rescale import rescale


def convolution(
    to: BindingTarget, layer: str, data: Var, weight: Var, bias: Var | None, *,
    data_zero_point: int, weight_zero_point: int, strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Var:  # fmt: skip
    """Accumulators of NCHW data and OIHW weights, NHWC int32; `bias` is int32 [O].

    Padded positions hold the data's zero point.
    """
    call = integer.conv2d(
        nhwc(to, data, layer),
        to.emit(relax.op.permute_dims(weight, [0, 2, 3, 1]), f"{layer}.ohwi"),
        strides=[int(each) for each in strides],
        padding=Padding(Sides.of([int(each) for each in padding])),
        dilation=[int(each) for each in dilation],
        groups=groups,
        data_zero_point=data_zero_point,
        weight_zero_point=weight_zero_point,
    )
    result = to.emit(call, layer)
    return result if bias is None else to.emit(relax.op.add(result, bias), f"{layer}.bias")


def product(
    to: BindingTarget, layer: str, data: Var, weight: Var, bias: Var | None, *,
    data_zero_point: int, weight_zero_point: int,
) -> Var:  # fmt: skip
    """Accumulators int32 of data [..., K] and weights [K, O] or [..., K, O].

    `bias` is int32 and broadcasts.
    """
    if len(shape_of(weight.ty)) != 2 or len(shape_of(data.ty)) < 2:
        left = moved(to, data, data_zero_point, f"{layer}.lhs")
        right = moved(to, weight, weight_zero_point, f"{layer}.rhs")
        result = to.emit(relax.op.matmul(left, right), layer)
        return result if bias is None else to.emit(relax.op.add(result, bias), f"{layer}.bias")
    *outer, depth = shape_of(data.ty)
    if len(outer) != 1:
        data = to.emit(relax.op.reshape(data, (int(np.prod(outer)), depth)), f"{layer}.rows")
    call = integer.dense(
        data,
        to.emit(relax.op.permute_dims(weight, [1, 0]), f"{layer}.transposed"),
        data_zero_point=data_zero_point,
        weight_zero_point=weight_zero_point,
    )
    result = to.emit(call, layer)
    if len(outer) != 1:
        shape = (*outer, shape_of(result.ty)[-1])
        result = to.emit(relax.op.reshape(result, shape), f"{layer}.unrowed")
    return result if bias is None else to.emit(relax.op.add(result, bias), f"{layer}.bias")


def moved(to: BindingTarget, data: Var, zero_point: int, name: str) -> Var:
    """`q - zero_point`, int32."""
    wide = to.emit(relax.op.astype(data, "int32"), f"{name}.wide")
    if zero_point == 0:
        return wide
    offset = to.tensor(f"{name}.zero_point", np.asarray(zero_point, np.int32))
    return to.emit(relax.op.subtract(wide, offset), f"{name}.moved")


def rescaled(
    to: BindingTarget, layer: str, accumulator: Var, factor: Array, out: Quantization
) -> Var:
    """MLAS's requantization of accumulators with `factor`, scalar or along the last axis."""
    scale = to.tensor(f"{layer}.scale", np.asarray(factor, np.float32))
    fits = bool(np.all(np.abs(factor) <= 0.5))  # accumulators have 32 bits
    low, high = out.limits
    kind = {"low": low, "high": high, "dtype": out.dtype}
    call = rescale(accumulator, scale, zero_point=out.zero_point, **kind, fits=fits)
    return to.emit(call, f"{layer}.rescale")


def output_factor(data: Quantization, weight: Grid, out: Quantization, alpha: float = 1.0) -> Array:
    """`alpha * xs * ws / ys` as ONNX Runtime computes it: float32 after every operation."""
    combined = np.float32(alpha) * data.scale * weight.scale.ravel()
    return np.asarray((combined / out.scale).reshape(-1 if weight.scale.size > 1 else ()))


def nhwc(to: BindingTarget, data: Var, layer: str) -> Var:
    """NCHW data as NHWC."""
    return to.emit(relax.op.permute_dims(data, [0, 2, 3, 1]), f"{layer}.nhwc")


def nchw(to: BindingTarget, data: Var, layer: str) -> Var:
    """NHWC data as NCHW."""
    return to.emit(relax.op.permute_dims(data, [0, 3, 1, 2]), f"{layer}.nchw")


def max_pool(
    to: BindingTarget, layer: str, data: Var, kernel: Sequence[int], strides: Sequence[int],
    padding: Sequence[int],
) -> Var:  # fmt: skip
    """The largest integer of NCHW windows; padding never wins."""
    call = integer.max_pool2d(
        nhwc(to, data, layer), kernel=[*kernel], strides=[*strides], padding=[*padding]
    )
    return nchw(to, to.emit(call, layer), layer)


def global_average_pool(
    to: BindingTarget, layer: str, data: Var, source: Quantization, out: Quantization
) -> Var:
    """QLinearGlobalAveragePool of NCHW: integer sums, scale `xs / (ys * (H * W))`."""
    height, width = shape_of(data.ty)[2:]
    call = integer.sum_pool2d(
        nhwc(to, data, layer),
        kernel=[height, width],
        strides=[1, 1],
        padding=NO_SIDES,
        zero_point=source.zero_point,
    )
    size = np.float32(height * width)
    factor = np.asarray(source.scale / (out.scale * size), np.float32)
    return nchw(to, rescaled(to, layer, to.emit(call, layer), factor, out), layer)


def average(
    to: BindingTarget, layer: str, data: Var, count: Array,
    source: Quantization, out: Quantization, *,
    kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int], offset: int = 0,
) -> Var:  # fmt: skip
    """QLinearAveragePool of NHWC bytes: float32 sums in the window's order, by `count`."""
    windows = ([*kernel], [*strides], [*padding])
    divided = _divided(to, layer, data, count, source, [windows])
    low, high = out.limits
    call = onnx_elementwise.quantize_inside(
        divided,
        to.tensor(f"{layer}.scale", np.asarray(out.scale)),
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=out.dtype,
        offset=offset,
    )
    return to.emit(call, f"{layer}.quantized")


def average_of_floats(
    to: BindingTarget, layer: str, data: Var, count: Array,
    source: Quantization, out: Quantization, *,
    kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int], by_columns: bool,
) -> Var:  # fmt: skip
    """AveragePool of floats between quantizers: the zero point comes after the rounding.

    Windows are added up row by row, or `by_columns` each column first.
    """
    windows = [([*kernel], [*strides], [*padding])]
    if by_columns:
        (height, width), (down, right), (top, left, bottom, end) = windows[0]
        windows = [([height, 1], [down, 1], [top, 0, bottom, 0])]
        windows.append(([1, width], [1, right], [0, left, 0, end]))
    divided = _divided(to, layer, data, count, source, windows)
    low, high = out.limits
    scale = to.tensor(f"{layer}.scale", np.asarray(out.scale))
    zero_point = to.tensor(f"{layer}.out_zero_point", np.array(out.zero_point.whole, out.dtype))
    call = linear_quantizers.quantize_linear(divided, scale, zero_point, low=low, high=high)
    return to.emit(call, f"{layer}.quantized")


def _divided(
    to: BindingTarget, layer: str, data: Var, count: Array, source: Quantization,
    windows: Sequence[tuple[list[int], list[int], list[int]]],
) -> Var:  # fmt: skip
    """Dequantized NHWC bytes, added up by one window after another, by `count`."""
    scale = to.tensor(f"{layer}.data_scale", np.asarray(source.scale))
    zero_point = to.tensor(f"{layer}.zero_point", np.array(source.zero_point.whole, source.dtype))
    sums = to.emit(linear_quantizers.dequantize_linear(data, scale, zero_point), f"{layer}.float")
    for kernel, strides, padding in windows:
        call = onnx_layers.window_sum2d(
            sums, kernel=kernel, strides=strides, padding=padding, accumulator="float32"
        )
        sums = to.emit(call, layer)
    return to.emit(relax.op.divide(sums, to.tensor(f"{layer}.count", count)), f"{layer}.mean")


def softmax(
    to: BindingTarget, layer: str, data: Var, source: Quantization, out: Quantization
) -> Var:
    """QLinearSoftmax of bytes along the last axis."""
    entries = onnx_luts.exponentials(source.scale, shape_of(data.ty)[-1])
    call = onnx_layers.qlinear_softmax(
        data,
        to.tensor(f"{layer}.table", entries),
        levels=float(np.floor(np.float32(1) / out.scale)),
        zero_point=out.zero_point,
    )
    return to.emit(call, layer)


def add(
    to: BindingTarget, layer: str, lhs: Var, rhs: Var, sources: Sequence[Quantization],
    out: Quantization, offset: int = 0,
) -> Var:  # fmt: skip
    """QLinearAdd of tensors that broadcast; `offset` as in `onnx.qlinear_add`.

    MLAS adds up the right operand first, or the left one where it alone holds a single value along
    the innermost axis. Its compiler fuses the first product of the zero points' sum.
    """
    ratios = [np.asarray(each.scale / out.scale, np.float32) for each in sources]
    left, right, zero_point = (
        np.float32(each.zero_point.whole + offset) for each in (*sources, out)
    )
    moved = NUMPY.multiply_add(ratios[0], left, np.float32(ratios[1] * right))
    fixed = np.asarray(zero_point - moved, np.float32)
    factors = [
        to.tensor(f"{layer}.{side}_ratio", ratio)
        for side, ratio in zip(("lhs", "rhs"), ratios, strict=True)
    ]
    operands = _as_added(lhs, rhs, *factors)
    low, high = out.limits
    fits = bool(max(*ratios) <= 2**18 and abs(fixed) <= 2**29)  # of bytes, moved by as much at most
    operands.append(to.tensor(f"{layer}.fixed", fixed))
    call = onnx_elementwise.qlinear_add(*operands, low=low, high=high, offset=offset, fits=fits)
    return to.emit(call, layer)


def add_of_computed(
    to: BindingTarget, layer: str, lhs: Var, rhs: Var, scales: Sequence[Var],
    zero_points: Sequence[Var], dtype: str,
) -> Var:  # fmt: skip
    """`add` where scales and zero points are computed: float32 scalars of both operands and the
    result, zero points as float32."""
    ratios = [
        to.emit(relax.op.divide(each, scales[2]), f"{layer}.{side}_ratio")
        for side, each in zip(("lhs", "rhs"), scales, strict=False)
    ]
    fixed = onnx_elementwise.qlinear_add_fixed(
        ratios[0], zero_points[0], ratios[1], zero_points[1], zero_points[2]
    )
    operands = [*_as_added(lhs, rhs, *ratios), to.emit(fixed, f"{layer}.fixed")]
    low, high = limits(dtype)
    return to.emit(onnx_elementwise.qlinear_add(*operands, low=low, high=high), layer)


def _as_added(lhs: Var, rhs: Var, lhs_ratio: Var, rhs_ratio: Var) -> list[Var]:
    """Operands and their ratios, the one in front that is added last."""
    if _lhs_is_single(shape_of(lhs.ty), shape_of(rhs.ty)):
        return [rhs, lhs, rhs_ratio, lhs_ratio]
    return [lhs, rhs, lhs_ratio, rhs_ratio]


def _lhs_is_single(lhs: Sequence[int], rhs: Sequence[int]) -> bool:
    """Whether the left operand alone holds one value along the innermost axis longer than 1."""
    rank = max(len(lhs), len(rhs))
    left, right = ((1,) * (rank - len(shape)) + tuple(shape) for shape in (lhs, rhs))
    extents = next(
        (pair for pair in zip(left[::-1], right[::-1], strict=True) if max(pair) > 1), (1, 1)
    )
    return extents[0] == 1


def multiply(
    to: BindingTarget, layer: str, lhs: Var, rhs: Var, sources: Sequence[Quantization],
    out: Quantization, offset: int = 0,
) -> Var:  # fmt: skip
    """QLinearMul of tensors that broadcast; `offset` as in `onnx.qlinear_add`."""
    low, high = out.limits
    ratio = np.asarray(sources[0].scale * sources[1].scale / out.scale, np.float32)
    call = onnx_elementwise.qlinear_mul(
        lhs,
        rhs,
        to.tensor(f"{layer}.ratio", ratio),
        lhs_zero_point=sources[0].zero_point,
        rhs_zero_point=sources[1].zero_point,
        zero_point=out.zero_point,
        low=low,
        high=high,
        offset=offset,
    )
    return to.emit(call, layer)
