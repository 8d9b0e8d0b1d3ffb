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

from stages.importing.limits import LARGEST_WEIGHT
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import Walk
from stages.importing.unsupported import UnsupportedError
from stages.numerics import linear_quantizers

Array = np.ndarray[Any, Any]
Converter = Callable[[Walk, Node], list[Any]]
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def _grid(
    walk: Walk, node: Node, scale: Array, point: Array, dtype: str, shape: tuple[int, ...]
) -> tuple[Any, Any]:
    """Scale and zero point as operands of this shape; both are checked."""
    if dtype not in (*_LIMITS, "int32"):
        raise UnsupportedError(f"has the type {dtype}; {', '.join(_LIMITS)} are accepted")
    factor = scale.astype(np.float32)
    if not ((factor > 0) & (factor <= LARGEST_WEIGHT)).all():
        raise UnsupportedError("has a scale that is not a positive number, or too large")
    limits = np.iinfo(dtype)
    whole = np.asarray(np.rint(point.astype(np.float64)))
    if (
        not np.array_equal(whole, point)
        or not ((limits.min <= whole) & (whole <= limits.max)).all()
    ):
        raise UnsupportedError(f"has a zero point that is no {dtype}")
    if prod(shape) != factor.size or whole.size not in (1, factor.size):
        raise UnsupportedError(f"has {factor.size} scales and {whole.size} zero points for {shape}")
    points = np.broadcast_to(whole.reshape(-1), (factor.size,)).reshape(shape)
    return (
        walk.tensor(factor.reshape(shape), f"{node.name}.scale"),
        walk.tensor(points.astype(dtype), f"{node.name}.zero_point"),
    )


def _quantize(walk: Walk, node: Node, scale: Any, point: Any, dtype: str) -> list[Any]:
    smallest, largest = _LIMITS.get(dtype, (1, 0))
    low = _limit(walk, node, "quant_min", smallest)
    high = _limit(walk, node, "quant_max", largest)
    if not smallest <= low <= high <= largest:
        raise UnsupportedError(f"quantizes to {low} .. {high} in {dtype}")
    call = linear_quantizers.quantize_linear(
        walk.read(node, "input"), scale, point, low=low, high=high, reciprocal=True
    )
    return [_in_shape(walk, node, call)]


def _in_shape(walk: Walk, node: Node, call: Any) -> Any:
    """A quantizer's result; its scale must not add axes to a tensor without any."""
    shape = walk.shape(walk.value(node, "input"))
    return walk.reshape(walk.emit(call, node.name), shape, f"{node.name}.view")


def _limit(walk: Walk, node: Node, name: str, default: int) -> int:
    if not walk.has(node, name):
        return default
    value = (
        walk.number(node, name)
        if walk.is_number(node, name)
        else float(walk.constant(node, name).reshape(-1)[0])
    )
    if value != int(value):
        raise UnsupportedError(f"has {name} {value}, which is not whole")
    return int(value)


def _dequantize(walk: Walk, node: Node, scale: Any, point: Any) -> list[Any]:
    for name in ("out_dtype", "output_dtype"):
        if walk.argument(node, name, None) not in (None, "float32"):
            raise UnsupportedError(f"gives {walk.argument(node, name)}; float32 is accepted")
    call = linear_quantizers.dequantize_linear(walk.read(node, "input"), scale, point)
    return [_in_shape(walk, node, call)]


def _both(read_grid: Callable[[Walk, Node, str], tuple[Any, Any]]) -> tuple[Converter, Converter]:
    """The converters of a quantizer and its dequantizer, whose grids are given alike."""

    def quantize(walk: Walk, node: Node) -> list[Any]:
        dtype = str(walk.argument(node, "dtype", walk.argument(node, "output_dtype", None)))
        return _quantize(walk, node, *read_grid(walk, node, dtype), dtype)

    def dequantize(walk: Walk, node: Node) -> list[Any]:
        dtype = walk.dtype(walk.value(node, "input"))
        return _dequantize(walk, node, *read_grid(walk, node, dtype))

    return quantize, dequantize


def _per_tensor(walk: Walk, node: Node, dtype: str) -> tuple[Any, Any]:
    if not walk.is_number(node, "scale") and not isinstance(walk.value(node, "scale"), np.ndarray):
        return _computed(walk, node, dtype)
    scale, point = (
        np.asarray(walk.number(node, name)) if walk.is_number(node, name)
        else walk.constant(node, name)
        for name in ("scale", "zero_point")
    )  # fmt: skip
    return _grid(walk, node, scale.reshape(-1)[:1], point.reshape(-1)[:1], dtype, ())


def _computed(walk: Walk, node: Node, dtype: str) -> tuple[Any, Any]:
    """A grid that `choose_qparams` made: float32 [] and int32 []."""
    if dtype not in _LIMITS:
        raise UnsupportedError(f"has the type {dtype}; {', '.join(_LIMITS)} are accepted")
    point = relax.op.astype(walk.read(node, "zero_point"), dtype)
    return walk.read(node, "scale"), walk.emit(point, f"{node.name}.zero_point")


def choose(walk: Walk, node: Node) -> list[Any]:
    """`choose_qparams`: the range of a tensor and zero, spread over all levels, in float32.

    torch/ao/quantization/utils.py, `determine_qparams`; the scale is at least `eps`.
    """
    low, high = walk.whole(node, "quant_min"), walk.whole(node, "quant_max")
    if not -32768 <= low < high <= 65535:
        raise UnsupportedError(f"quantizes to {low} .. {high}")
    name, data = node.name, walk.read(node, "input")
    zero, steps, least, first = (
        walk.tensor(np.asarray(value, np.float32), f"{name}.{what}")
        for what, value in (
            ("zero", 0), ("steps", high - low), ("eps", walk.number(node, "eps")), ("low", low)
        )
    )  # fmt: skip
    smallest = walk.emit(relax.op.min(data), f"{name}.smallest")
    largest = walk.emit(relax.op.max(data), f"{name}.largest")
    smallest = walk.emit(relax.op.minimum(smallest, zero), f"{name}.negative")
    largest = walk.emit(relax.op.maximum(largest, zero), f"{name}.positive")
    width = walk.emit(relax.op.subtract(largest, smallest), f"{name}.width")
    scale = walk.emit(relax.op.divide(width, steps), f"{name}.step")
    scale = walk.emit(relax.op.maximum(scale, least), node.outputs[0])
    quotient = walk.emit(relax.op.divide(smallest, scale), f"{name}.quotient")
    levels = walk.emit(relax.op.round(quotient), f"{name}.levels")
    point = walk.emit(relax.op.subtract(first, levels), f"{name}.point")
    point = walk.emit(relax.op.clip(point, float(low), float(high)), f"{name}.clipped")
    return [scale, walk.emit(relax.op.astype(point, "int32"), node.outputs[-1])]


def _per_channel(walk: Walk, node: Node, dtype: str) -> tuple[Any, Any]:
    extents = walk.shape(walk.value(node, "input"))
    axis = walk.axis(walk.whole(node, "axis"), len(extents))
    scale = walk.constant(node, "scales")
    point = walk.constant(node, "zero_points") if walk.has(node, "zero_points") else np.zeros(1)
    shape = tuple(extent if i == axis else 1 for i, extent in enumerate(extents))
    return _grid(walk, node, scale, point, dtype, shape)


def _affine(walk: Walk, node: Node, dtype: str) -> tuple[Any, Any]:
    """torchao's: one scale a block, blocks in row-major order."""
    extents = walk.shape(walk.value(node, "input"))
    block = walk.integers(node, "block_size")
    block = [extent if size == -1 else size for size, extent in zip(block, extents, strict=False)]
    if len(block) != len(extents) or any(
        size < 1 or extent % size for size, extent in zip(block, extents, strict=True)
    ):
        raise UnsupportedError(f"has blocks of {block} in a tensor {list(extents)}")
    if str(walk.argument(node, "zero_point_domain", "INT")).upper() not in ("INT", "NONE"):
        raise UnsupportedError("has a zero point that is no integer (zero_point_domain)")
    counts = tuple(extent // size for size, extent in zip(block, extents, strict=True))
    scale = walk.constant(node, "scale")
    point = walk.constant(node, "zero_point") if walk.has(node, "zero_point") else np.zeros(1)
    if scale.size != prod(counts) or point.size not in (1, scale.size):
        raise UnsupportedError(f"has {scale.size} scales for {prod(counts)} blocks")
    scale, point = scale.reshape(counts), np.broadcast_to(point.reshape(-1), (scale.size,))
    point = point.reshape(counts)
    for axis, (size, count) in enumerate(zip(block, counts, strict=True)):
        if count > 1 and size > 1:  # blocks inside an axis: a scale for every element of it
            scale, point = (np.repeat(each, size, axis) for each in (scale, point))
    return _grid(walk, node, scale, point, dtype, scale.shape)


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
