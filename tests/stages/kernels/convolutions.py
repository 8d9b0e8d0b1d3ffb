"""Packed convolutions, and the same on levels, for tests to compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stages.bitpacking.bias_folding import fold_bias
from stages.bitpacking.window import Window
from stages.dialect.operators import OPERATORS
from stages.dialect.padding import Halo, Padding, Sides
from stages.dialect.zero_point import ZeroPoint
from stages.kernels.operand_storage import Stored
from stages.kernels.packing import pack_weights, round_up
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import signature_text

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)


def run(name: str, *arguments: Array, **attrs: Any) -> Array:
    result: Array = OPERATORS[f"relax.qnn.{name}"].meaning(*arguments, **attrs)
    return result


@dataclass(frozen=True)
class Geometry:
    """A convolution and how much wider than its padding the edge's halo is."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    size: tuple[int, int]
    extra: tuple[int, int, int, int]
    channels: int
    outputs: int

    @property
    def window(self) -> Window:
        extents = []
        for axis in (0, 1):
            whole = self.size[axis] + self.padding[axis] + self.padding[axis + 2]
            extents.append((whole - self.kernel[axis]) // self.strides[axis] + 1)
        output = (extents[0], extents[1])
        return Window(self.kernel, self.strides, Padding(Sides(*self.padding)), self.size, output)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    smallest = [max(1, kernel[axis] - padding[axis] - padding[axis + 2]) for axis in (0, 1)]
    size = draw(st.tuples(*[st.integers(least, 7) for least in smallest]))
    return Geometry(
        kernel,
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding,
        size,
        draw(st.tuples(*[st.integers(0, 2)] * 4)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 40)),
    )


def around(geometry: Geometry) -> Sides:
    return Sides(*(p + e for p, e in zip(geometry.padding, geometry.extra, strict=True)))


def bitpacked(x: Array, sides: Sides, kept: Stored) -> Array:
    """Levels as planes and sums."""
    sums = [list(values) for values in kept.sums]
    attrs = {"bits": kept.bits, "planes": list(kept.planes), "sums": sums, "inner": kept.inner}
    return run("bitpack", x, halo=sides, **attrs)


def edge(signature: KernelSignature, x: Array, halo: Halo) -> Array:
    """Levels [1, H, W, C] as they are stored for a signature."""
    if signature.stored is not None:
        return bitpacked(x, halo.sides, signature.stored)
    return in_bytes(x, halo, round_up(x.shape[3], 4))


def in_bytes(x: Array, halo: Halo, channels: int, packed_rows: int = 1, phases: int = 1) -> Array:
    """Levels as bytes; `packed_rows` and `phases` say how rows lie, if not one below the other."""
    return run("to_bytes", x, halo=halo, channels=channels, packed_rows=packed_rows, phases=phases)


def zero_points(data_zero_point: int, weight_zero_point: int) -> tuple[ZeroPoint, ZeroPoint]:
    """Of data and weights, from doubled ones."""
    return ZeroPoint(data_zero_point), ZeroPoint(weight_zero_point)


def packed_convolution(
    signature: KernelSignature,
    geometry: Geometry,
    x: Array,
    q: Array,
    points: tuple[int, int],
    numerator: int,
    level: int,
) -> Array:
    """int32 [1, OH, OW, OCp] as bit-packing would have it computed."""
    window = replace(geometry.window, padding=Padding(Sides(*geometry.padding), numerator))
    halo = Halo(around(geometry), level)
    data = edge(signature, x, halo)
    per_word = signature.channels_per_word
    widened = np.pad(q, [(0, 0)] * 3 + [(0, round_up(q.shape[3], per_word) - q.shape[3])])
    scale, bias, counts = fold_bias(
        signature, q, widened.shape[3], zero_points(*points), halo, window
    )
    return run(
        "packed_conv2d",
        data,
        pack_weights(signature, widened),
        bias,
        signature=signature_text(signature),
        scale=scale,
        channels=[geometry.channels, geometry.outputs],
        origin=list(geometry.extra[:2]),
        border=counts,
        groups=1,
        **window.attributes(1, 1),
    )


def logical_convolution(
    geometry: Geometry, x: Array, q: Array, points: tuple[int, int], numerator: int
) -> Array:
    return run(
        "conv2d",
        x,
        q,
        strides=list(geometry.strides),
        padding=Padding(Sides(*geometry.padding), numerator),
        groups=1,
        data_zero_point=ZeroPoint(points[0]),
        weight_zero_point=ZeroPoint(points[1]),
    )


def weight_zero_point(signature: KernelSignature) -> int:
    plan = signature.plan
    return (1 << plan.weight_bits) - 1 if plan and plan.weights == "bipolar" else 0
