"""Result types of the integer dialect's operators, and the checks of their operands.

Each function maps argument types and attributes to the result type. A call that does not fit
raises ValueError, to which the registry adds the operator's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.dtypes import is_integer, limits, parse
from stages.dialect.padding import Padding, Sides
from stages.nodes import TensorType


def output_size(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, int]:
    """Height and width of what windows give over a padded image of so many pixels."""
    extents = zip(size, kernel, strides, dilation, strict=True)
    height, width = ((extent - (k - 1) * d - 1) // s + 1 for extent, k, s, d in extents)
    return height, width


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _of_rank(kind: TensorType, rank: int, what: str) -> tuple[int, ...]:
    shape = shape_of(kind)
    _require(len(shape) == rank, f"{what} of shape {list(shape)}; rank {rank} is expected")
    return shape


def _integer(kind: TensorType, what: str) -> None:
    dtype = dtype_of(kind)
    _require(is_integer(dtype), f"{what} of {dtype}; integers are expected")


def _window_type(
    data: TensorType, kernel: Sequence[int], sides: Sides, channels: int, dtype: str, attrs: Attrs
) -> TensorType:
    n, h, w, _ = _of_rank(data, 4, "NHWC data")
    padding, strides = list(sides), attrs["strides"]
    dilation = attrs.get("dilation", [1, 1])
    _require(min(dilation) >= 1, f"dilation {dilation}")
    kernel = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    _require(min(padding) >= 0 and min(strides) >= 1, f"padding {padding}, strides {strides}")
    size = output_size(sides.around(h, w), kernel, strides)
    _require(
        min(size) >= 1,
        f"a window of {list(kernel)} does not fit into data of {[h, w]} with padding {padding}",
    )
    return tensor_type((n, *size, channels), dtype)


def conv2d(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """NHWC data, OHWI weights of `C / groups` channels: int32, int64 or, of floats, a float."""
    data, weight = types
    accumulator = _accumulator(attrs)
    for kind, what in ((data, "data"), (weight, "weights")):
        _number(kind, what, accumulator)
    channels = _of_rank(data, 4, "NHWC data")[3]
    oc, kh, kw, depth = _of_rank(weight, 4, "OHWI weights")
    groups = attrs["groups"]
    _require(
        groups >= 1 and channels == depth * groups,
        f"data of {channels} channels, weights of {depth} channels in {groups} groups",
    )
    _require(oc % groups == 0, f"{oc} output channels cannot be split into {groups} groups")
    return _window_type(data, (kh, kw), Padding.of(attrs).sides, oc, accumulator, attrs)


FLOATS = ("float16", "float32", "float64")


def _accumulator(attrs: Attrs) -> str:
    dtype = str(attrs.get("dtype", "int32"))
    known = ("int32", "int64", *FLOATS)
    _require(dtype in known, f"accumulators of {dtype}; {', '.join(known)} exist")
    return dtype


def _number(kind: TensorType, what: str, accumulator: str) -> None:
    """Integers are added up as integers, floats as floats."""
    if not parse(accumulator).is_float:
        _integer(kind, what)
        return
    dtype = dtype_of(kind)
    _require(dtype in FLOATS, f"{what} of {dtype}; floats are expected")


def dense(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """Data [N, K], weights [O, K]: int32 (or int64) [N, O]."""
    data, weight = types
    _integer(data, "data")
    _integer(weight, "weights")
    (n, depth), (outputs, k) = _of_rank(data, 2, "data"), _of_rank(weight, 2, "weights")
    _require(depth == k, f"data of {depth} features, weights of {k}")
    return tensor_type((n, outputs), _accumulator(attrs))


def add(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    """Two tensors of one shape: int32."""
    left, right = (shape_of(kind) for kind in types)
    _integer(types[0], "the left addend")
    _integer(types[1], "the right addend")
    _require(left == right, f"addends of shapes {list(left)} and {list(right)}")
    return tensor_type(left, "int32")


def _pool(types: Sequence[TensorType], attrs: Attrs, dtype: str) -> TensorType:
    kernel, padding = attrs["kernel"], attrs["padding"]
    _require(len(kernel) == 2 and min(kernel) >= 1, f"a window of {kernel}")
    pairs = zip(padding, [kernel[0], kernel[1]] * 2, strict=False)
    _require(
        all(p < k for p, k in pairs),
        f"padding {[*padding]} for a window of {kernel}: some are empty",
    )
    return _window_type(types[0], kernel, padding, shape_of(types[0])[-1], dtype, attrs)


def max_pool2d(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """NHWC of the data's dtype, integers or float32."""
    if dtype_of(types[0]) != "float32":
        _integer(types[0], "data")
    return _pool(types, attrs, dtype_of(types[0]))


def sum_pool2d(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """NHWC, int32."""
    _integer(types[0], "data")
    return _pool(types, attrs, "int32")


def _result(types: Sequence[TensorType], attrs: Attrs, low: int, high: int) -> TensorType:
    dtype = attrs["dtype"]
    _require(
        isinstance(dtype, str) and is_integer(dtype),
        f"a result of {dtype}; integers are expected",
    )
    smallest, largest = limits(dtype)
    _require(smallest <= low <= high <= largest, f"results from {low} to {high} do not fit {dtype}")
    return tensor_type(shape_of(types[0]), dtype)


def _per_channel(data: TensorType, operand: TensorType, what: str, *, single: bool) -> None:
    shape, channels = shape_of(operand), shape_of(data)[-1]
    accepted = shape == (channels,) or (single and shape in ((), (1,)))
    _require(accepted, f"{what} of shape {list(shape)} for data of {channels} channels")


def threshold(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """Levels 0..T of thresholds [T, C], int32 or int16 for integers and float32 for floats."""
    data, thresholds, flip = types
    count, channels = _of_rank(thresholds, 2, "thresholds")
    _require(
        count >= 1 and channels == shape_of(data)[-1],
        f"thresholds of shape {[count, channels]} for data of {shape_of(data)[-1]} channels",
    )
    _per_channel(data, flip, "flip", single=False)
    wanted = ("float32",) if dtype_of(data) == "float32" else ("int32", "int16")
    _require(
        dtype_of(thresholds) in wanted,
        f"thresholds of {dtype_of(thresholds)} for data of {dtype_of(data)}",
    )
    return _result(types, attrs, 0, count)


def requantize(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """Integers `low`..`high`; multiplier and offset are float32 [C]."""
    _integer(types[0], "data")
    _per_channel(types[0], types[1], "multiplier", single=False)
    _per_channel(types[0], types[2], "offset", single=False)
    return _result(types, attrs, attrs["low"], attrs["high"])


def saturate(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """Integers `low`..`high`."""
    _integer(types[0], "data")
    return _result(types, attrs, attrs["low"], attrs["high"])


def quantize(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """Integers `low + shift`..`high + shift` of float32; scale and zero point scalar or [C]."""
    _require(dtype_of(types[0]) == "float32", f"x of {dtype_of(types[0])}; float32 is expected")
    _per_channel(types[0], types[1], "scale", single=True)
    _per_channel(types[0], types[2], "zero_point", single=True)
    shift = attrs["shift"]
    return _result(types, attrs, attrs["low"] + shift, attrs["high"] + shift)


def dequantize(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    """float32; the scale is scalar or [C]."""
    _integer(types[0], "data")
    _per_channel(types[0], types[1], "scale", single=True)
    return tensor_type(shape_of(types[0]), "float32")
