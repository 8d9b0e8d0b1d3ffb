"""Quantizers of exported programs: PT2E's `quantized_decomposed` and torchao's affine ones.

Both compute `clamp(round_half_even(x * (1 / scale)) + zero_point)` and
`(q - zero_point) * scale` in float32 (torch/ao/quantization/fx/_decomposed.py,
torchao/quantization/quant_primitives.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.dtypes import limits
from stages.importing.limits import LARGEST_WEIGHT
from stages.importing.relax_builder import value_dtype, value_shape
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import Converter, TorchBuilder
from stages.importing.unsupported import UnsupportedError
from stages.numerics import linear_quantizers

Array = np.ndarray[Any, Any]
_TYPES = ("int8", "uint8", "int16", "uint16")


def _grid(
    builder: TorchBuilder,
    node: Node,
    scale: Array,
    zero_point: Array,
    dtype: str,
    shape: tuple[int, ...],
) -> tuple[Any, Any]:
    """Scale and zero point as operands of this shape; both are checked."""
    if dtype not in (*_TYPES, "int32"):
        raise UnsupportedError(f"has the type {dtype}; {', '.join(_TYPES)} are accepted")
    factor = scale.astype(np.float32)
    if not ((factor > 0) & (factor <= LARGEST_WEIGHT)).all():
        raise UnsupportedError("has a scale that is not a positive number, or too large")
    low, high = limits(dtype)
    whole = np.asarray(np.rint(zero_point.astype(np.float64)))
    if not np.array_equal(whole, zero_point) or not ((low <= whole) & (whole <= high)).all():
        raise UnsupportedError(f"has a zero point that is no {dtype}")
    if prod(shape) != factor.size or whole.size not in (1, factor.size):
        raise UnsupportedError(f"has {factor.size} scales and {whole.size} zero points for {shape}")
    zero_points = np.broadcast_to(whole.reshape(-1), (factor.size,)).reshape(shape)
    return (
        builder.held(factor.reshape(shape), f"{node.name}.scale"),
        builder.held(zero_points.astype(dtype), f"{node.name}.zero_point"),
    )


def _quantize(
    builder: TorchBuilder, node: Node, scale: Any, zero_point: Any, dtype: str
) -> list[Any]:
    smallest, largest = limits(dtype) if dtype in _TYPES else (1, 0)
    low = _limit(builder, node, "quant_min", smallest)
    high = _limit(builder, node, "quant_max", largest)
    if not smallest <= low <= high <= largest:
        raise UnsupportedError(f"quantizes to {low} .. {high} in {dtype}")
    call = linear_quantizers.quantize_linear(
        builder.read_at(node, "input"), scale, zero_point, low=low, high=high, reciprocal=True
    )
    return [_in_shape(builder, node, call)]


def _in_shape(builder: TorchBuilder, node: Node, call: Any) -> Any:
    """A quantizer's result; its scale must not add axes to a tensor without any."""
    shape = value_shape(builder.value_at(node, "input"))
    return builder.in_shape(builder.emit(call, node.name), shape, f"{node.name}.view")


def _limit(builder: TorchBuilder, node: Node, name: str, default: int) -> int:
    if not builder.has(node, name):
        return default
    value = (
        builder.number(node, name)
        if builder.is_number(node, name)
        else float(builder.constant_at(node, name).reshape(-1)[0])
    )
    if value != int(value):
        raise UnsupportedError(f"has {name} {value}, which is not whole")
    return int(value)


def _dequantize(builder: TorchBuilder, node: Node, scale: Any, zero_point: Any) -> list[Any]:
    for name in ("out_dtype", "output_dtype"):
        if builder.argument(node, name, None) not in (None, "float32"):
            raise UnsupportedError(f"gives {builder.argument(node, name)}; float32 is accepted")
    call = linear_quantizers.dequantize_linear(builder.read_at(node, "input"), scale, zero_point)
    return [_in_shape(builder, node, call)]


def _both(
    read_grid: Callable[[TorchBuilder, Node, str], tuple[Any, Any]],
) -> tuple[Converter, Converter]:
    """The converters of a quantizer and its dequantizer, whose grids are given alike."""

    def quantize(builder: TorchBuilder, node: Node) -> list[Any]:
        dtype = str(builder.argument(node, "dtype", builder.argument(node, "output_dtype", None)))
        return _quantize(builder, node, *read_grid(builder, node, dtype), dtype)

    def dequantize(builder: TorchBuilder, node: Node) -> list[Any]:
        dtype = value_dtype(builder.value_at(node, "input"))
        return _dequantize(builder, node, *read_grid(builder, node, dtype))

    return quantize, dequantize


def _per_tensor(builder: TorchBuilder, node: Node, dtype: str) -> tuple[Any, Any]:
    if not builder.is_number(node, "scale") and not isinstance(
        builder.value_at(node, "scale"), np.ndarray
    ):
        return _computed(builder, node, dtype)
    scale, zero_point = (
        np.asarray(builder.number(node, name)) if builder.is_number(node, name)
        else builder.constant_at(node, name)
        for name in ("scale", "zero_point")
    )  # fmt: skip
    return _grid(builder, node, scale.reshape(-1)[:1], zero_point.reshape(-1)[:1], dtype, ())


def _computed(builder: TorchBuilder, node: Node, dtype: str) -> tuple[Any, Any]:
    """A grid that `choose_qparams` made: float32 [] and int32 []."""
    if dtype not in _TYPES:
        raise UnsupportedError(f"has the type {dtype}; {', '.join(_TYPES)} are accepted")
    zero_point = relax.op.astype(builder.read_at(node, "zero_point"), dtype)
    return builder.read_at(node, "scale"), builder.emit(zero_point, f"{node.name}.zero_point")


def choose(builder: TorchBuilder, node: Node) -> list[Any]:
    """`choose_qparams`: the range of a tensor and zero, spread over all levels, in float32.

    torch/ao/quantization/utils.py, `determine_qparams`; the scale is at least `eps`.
    """
    low, high = builder.whole(node, "quant_min"), builder.whole(node, "quant_max")
    if not -32768 <= low < high <= 65535:
        raise UnsupportedError(f"quantizes to {low} .. {high}")
    name, data = node.name, builder.read_at(node, "input")
    zero, steps, least, first = (
        builder.held(np.asarray(value, np.float32), f"{name}.{what}")
        for what, value in (
            ("zero", 0), ("steps", high - low), ("eps", builder.number(node, "eps")), ("low", low)
        )
    )  # fmt: skip
    smallest = builder.emit(relax.op.min(data), f"{name}.smallest")
    largest = builder.emit(relax.op.max(data), f"{name}.largest")
    smallest = builder.emit(relax.op.minimum(smallest, zero), f"{name}.negative")
    largest = builder.emit(relax.op.maximum(largest, zero), f"{name}.positive")
    width = builder.emit(relax.op.subtract(largest, smallest), f"{name}.width")
    scale = builder.emit(relax.op.divide(width, steps), f"{name}.step")
    scale = builder.emit(relax.op.maximum(scale, least), node.outputs[0])
    quotient = builder.emit(relax.op.divide(smallest, scale), f"{name}.quotient")
    levels = builder.emit(relax.op.round(quotient), f"{name}.levels")
    zero_point = builder.emit(relax.op.subtract(first, levels), f"{name}.point")
    zero_point = builder.emit(relax.op.clip(zero_point, float(low), float(high)), f"{name}.clipped")
    return [scale, builder.emit(relax.op.astype(zero_point, "int32"), node.outputs[-1])]


def _per_channel(builder: TorchBuilder, node: Node, dtype: str) -> tuple[Any, Any]:
    extents = value_shape(builder.value_at(node, "input"))
    axis = builder.axis(builder.whole(node, "axis"), len(extents))
    scale = builder.constant_at(node, "scales")
    zero_point = (
        builder.constant_at(node, "zero_points")
        if builder.has(node, "zero_points")
        else np.zeros(1)
    )
    shape = tuple(extent if i == axis else 1 for i, extent in enumerate(extents))
    return _grid(builder, node, scale, zero_point, dtype, shape)


def _affine(builder: TorchBuilder, node: Node, dtype: str) -> tuple[Any, Any]:
    """torchao's: one scale a block, blocks in row-major order."""
    extents = value_shape(builder.value_at(node, "input"))
    block = builder.integers(node, "block_size")
    block = [extent if size == -1 else size for size, extent in zip(block, extents, strict=False)]
    if len(block) != len(extents) or any(
        size < 1 or extent % size for size, extent in zip(block, extents, strict=True)
    ):
        raise UnsupportedError(f"has blocks of {block} in a tensor {list(extents)}")
    if str(builder.argument(node, "zero_point_domain", "INT")).upper() not in ("INT", "NONE"):
        raise UnsupportedError("has a zero point that is no integer (zero_point_domain)")
    counts = tuple(extent // size for size, extent in zip(block, extents, strict=True))
    scale = builder.constant_at(node, "scale")
    zero_point = (
        builder.constant_at(node, "zero_point") if builder.has(node, "zero_point") else np.zeros(1)
    )
    if scale.size != prod(counts) or zero_point.size not in (1, scale.size):
        raise UnsupportedError(f"has {scale.size} scales for {prod(counts)} blocks")
    zero_point = np.broadcast_to(zero_point.reshape(-1), (scale.size,)).reshape(counts)
    scale = scale.reshape(counts)
    for axis, (size, count) in enumerate(zip(block, counts, strict=True)):
        if count > 1 and size > 1:  # blocks inside an axis: a scale for every element of it
            scale, zero_point = (np.repeat(each, size, axis) for each in (scale, zero_point))
    return _grid(builder, node, scale, zero_point, dtype, scale.shape)


_tensor_pair, _channel_pair, _affine_pair = map(_both, (_per_tensor, _per_channel, _affine))

QUANTIZERS: dict[str, Converter] = {
    "quantized_decomposed.quantize_per_tensor.default": _tensor_pair[0],
    "quantized_decomposed.quantize_per_tensor.tensor": _tensor_pair[0],
    "quantized_decomposed.quantize_per_tensor.tensor2": _tensor_pair[0],
    "quantized_decomposed.dequantize_per_tensor.default": _tensor_pair[1],
    "quantized_decomposed.dequantize_per_tensor.tensor": _tensor_pair[1],
    "quantized_decomposed.dequantize_per_tensor.tensor2": _tensor_pair[1],
    "quantized_decomposed.quantize_per_channel.default": _channel_pair[0],
    "quantized_decomposed.dequantize_per_channel.default": _channel_pair[1],
    "quantized_decomposed.choose_qparams.tensor": choose,
    "torchao.quantize_affine.default": _affine_pair[0],
    "torchao.dequantize_affine.default": _affine_pair[1],
}
"""Quantizers by operator."""
