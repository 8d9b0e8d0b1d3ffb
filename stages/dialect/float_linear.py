"""Products of floats that micro-kernels compute: NHWC images, constant OHWI weights.

Images come with their padding. Both factors are float32, or both bfloat16: the upper halves of
floats, stored as uint16; or both float16 (IEEE 754 binary16). Meanings and tensor expressions take
sums in float64 and round them once; kernels round after every product, so that the two differ in
the last bits: of float32, but of float16 those of sums of `FLOAT16_TERMS` products, which are
float16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, Literal

import numpy as np
from tvm import te

from stages.dialect import infer
from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.convolve import convolve
from stages.dialect.elementwise import ARITHMETIC, elementwise, of_type
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import Builder, register
from stages.kinds import Array
from stages.nodes import Scalar, Tensor, TensorType

BFLOAT16_STEP = 1 << 16
"""How far the bits of neighbouring bfloat16 are apart, read as those of a float32."""
FLOAT16_TERMS = 32
"""Products that are added up in float16 at most, before their sum is added to others in float32.

More of them would gain little: on a Raspberry Pi 5 MobileNet v2 is modelled at 50.7, 47.1 and 46.0
million cycles with 16, 32 and 64. It departs from float32 by 0.018 to 0.020 of its largest output,
and by 0.010 where factors alone are rounded."""
FLOAT16_ROUNDOFF = 2.0**-11
LARGEST_FLOAT16 = 65504
LIKELY = 3.0
"""How many times the size of random errors is allowed: all but 2 exp(-9/2) = 2.2 % keep to that."""


@elementwise("to_bfloat16", ["x"], of_type("bfloat16"), accepts={"x": ["float32"]})
def to_bfloat16(m: Numbers, x: Value) -> Value:
    """The nearest bfloat16, of two the even one; what is no number stays none."""
    bits = m.bits_of(x, "uint32")
    upper = bits // m.constant(BFLOAT16_STEP, "uint32")
    even = upper & m.constant(1, "uint32")
    moved = bits + m.constant(BFLOAT16_STEP // 2 - 1, "uint32") + even
    rounded = moved // m.constant(BFLOAT16_STEP, "uint32")
    return m.cast(m.where(x == x, rounded, m.constant(0x7FC0, "uint32")), "uint16")


@elementwise("from_bfloat16", ["x"], of_type("float32"), accepts={"x": ["bfloat16"]})
def from_bfloat16(m: Numbers, x: Value) -> Value:
    """The same number as float32."""
    return m.bits_of(m.cast(x, "uint32") * m.constant(BFLOAT16_STEP, "uint32"), "float32")


@elementwise("to_float16", ["x"], of_type("float16"), accepts={"x": ["float32"]})
def to_float16(m: Numbers, x: Value) -> Value:
    """The nearest float16, of two the even one; from a magnitude of 65520 on they are infinite."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return m.cast(x, "float16")


@elementwise("from_float16", ["x"], of_type("float32"), accepts={"x": ["float16"]})
def from_float16(m: Numbers, x: Value) -> Value:
    """The same number as float32."""
    return m.cast(x, "float32")


FROM_BFLOAT16 = ARITHMETIC[from_bfloat16.name]
HalfPrecision = Literal["bfloat16", "float16"]
HALF_PRECISION_CASTS: Mapping[HalfPrecision, tuple[Builder, Builder]] = {
    "bfloat16": (to_bfloat16, from_bfloat16),
    "float16": (to_float16, from_float16),
}
"""Floats of 16 bits → what rounds float32 to them, and back."""
WIDENINGS = tuple(widen.name for _, widen in HALF_PRECISION_CASTS.values())


def departure(layers: int) -> float:
    """By how much of its largest value an output of so many layers of float16 may be another.

    Two factors are rounded, then their products are added up one behind another, then two such
    sums are. In the worst case n roundings of size u change a sum by n u / (1 - n u) of the sizes
    of what is added (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1).
    Roundings of random signs, of one layer and of all, do so by the root of n instead (Higham and
    Mary, *A New Approach to Probabilistic Rounding Error Analysis*, 2019). Sums in float32 count
    for nothing.
    """
    return LIKELY * sqrt(layers * (FLOAT16_TERMS + 3)) * FLOAT16_ROUNDOFF


def departure_of_sums(rounded: float, layers: int) -> float:
    """The `departure` of kernels, where that of an output with only its factors rounded is known.

    A network may make more of errors than it makes of numbers; of those of sums it makes as much as
    of those of factors, of which each has two, and all together `FLOAT16_TERMS` + 3. Twice that is
    allowed: the largest of some errors is seldom where others have theirs. It was 2.0 to 3.5 times
    the departure by factors alone in MobileNets and ResNets, of which 4.2 are what is likely.
    """
    most = departure(layers)
    return max(most, 2 * sqrt((FLOAT16_TERMS + 3) / 2) * min(rounded, most))


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    _check(types)
    floats = [tensor_type(shape_of(kind), "float32") for kind in types]
    whole = {"strides": attrs["strides"], "groups": attrs["groups"], "dtype": "float64"}
    return tensor_type(shape_of(infer.conv2d(floats, whole)), "float32")


def _check(types: Sequence[TensorType]) -> None:
    kinds = {dtype_of(kind) for kind in types}
    if kinds not in ({"float32"}, {"bfloat16"}, {"float16"}):
        raise ValueError(f"factors of {' and '.join(sorted(kinds))}; one kind of float is expected")


def _wide(value: Any) -> Any:
    """A factor of a tensor expression as float64."""
    is_half = str(value.dtype) == "uint16"
    return (FROM_BFLOAT16(TIR, value) if is_half else value).astype("float64")


def float64_of(factor: Array) -> Array:
    """float32, float16, or bfloat16 stored as uint16, as float64."""
    whole = FROM_BFLOAT16(NUMPY, factor) if factor.dtype == np.uint16 else factor
    return whole.astype(np.float64)


def _conv_expression(
    data: Tensor, weight: Tensor, *, strides: Sequence[int], groups: int, is_direct: bool = False
) -> Tensor:
    del is_direct
    outputs, kh, kw, depth = (int(extent) for extent in weight.shape)
    n, h, w, _ = (int(extent) for extent in data.shape)
    size = infer.output_size((h, w), (kh, kw), strides)
    ry, rx, rk = (te.reduce_axis((0, extent)) for extent in (kh, kw, depth))

    def at(b: Scalar, y: Scalar, x: Scalar, o: Scalar) -> Scalar:
        channel = o // (outputs // groups) * depth + rk if groups > 1 else rk
        value = _wide(data[b, y * strides[0] + ry, x * strides[1] + rx, channel])
        return te.sum(value * _wide(weight[o, ry, rx, rk]), axis=[ry, rx, rk])

    sums = te.compute((n, *size, outputs), at, name="conv2d")
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("float_conv2d", ["data", "weight"], _conv_type, _conv_expression)
def float_conv2d(
    data: Array, weight: Array, *, strides: Sequence[int], groups: int, is_direct: bool = False
) -> Array:
    """Convolution of floats [N, H, W, C], padded already, by [O, KH, KW, C / groups]: float32.

    One that `is_direct` sums these very products, as they are.
    """
    del is_direct
    return convolve(float64_of(data), float64_of(weight), strides, groups, dtype="float32")


def _dense_type(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    _check(types)
    (rows, depth), (outputs, own) = shape_of(types[0]), shape_of(types[1])
    if depth != own:
        raise ValueError(f"data of {depth} channels, weights of {own}")
    return tensor_type((rows, outputs), "float32")


def _dense_expression(data: Tensor, weight: Tensor) -> Tensor:
    k = te.reduce_axis((0, data.shape[1]))

    def at(row: Scalar, o: Scalar) -> Scalar:
        return te.sum(_wide(data[row, k]) * _wide(weight[o, k]), axis=k)

    sums = te.compute((data.shape[0], weight.shape[0]), at, name="dense")
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("float_dense", ["data", "weight"], _dense_type, _dense_expression)
def float_dense(data: Array, weight: Array) -> Array:
    """Matrix product of floats [N, K] by [O, K]: float32 [N, O]."""
    return (float64_of(data) @ float64_of(weight).T).astype(np.float32)
