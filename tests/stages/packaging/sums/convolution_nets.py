"""Networks of convolutions, and how their tiles lie."""

from __future__ import annotations

import numpy as np

from hw.profile import Hardware
from stages.graph.bindings import calls_of
from stages.graph.composites import TE
from stages.kinds import Model
from stages.numerics import onnx_elementwise
from stages.packaging.emitting.composite import Composite
from stages.packaging.sums.composed_kernel import ComposedKernel
from stages.packaging.sums.tile_order import JoinedRows
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import compose

MANY = 100.0
"""Weights for positions, as `spread`."""


SIZES = [(1, 9, 5), (3, 9, 5), (1, 7, 7), (2, 7, 7), (1, 9, 3), (5, 3, 1)]
"""Images, height and width, of which tiles of several pixels fill rows badly."""


def residual(size: tuple[int, int, int]) -> Model:
    """Windows of 3x3 and 1x1, the latter with an addend, behind a halo that both read."""
    net = Net((size[0], *size[1:], 12))
    x = net.conv(net.x, "first", 12)
    y = net.conv(x, "window", 40)
    return net.model(net.conv(y, "point", 12, kernel=1), y)


def convolutions(packed: Model, hardware: Hardware) -> list[ComposedKernel]:
    schedule = {"order": "rows_inner", "spread": MANY, "interleaved": False}
    found = []
    for _, function in calls_of(packed):
        if str(function.attrs["composite"]) != TE and Composite(function).is_convolution:
            found.append(compose(function, schedule, hardware))
    return found


def is_joined(made: ComposedKernel) -> bool:
    """Whether tiles go on from row to row, over what lies in between."""
    return type(made.work) is JoinedRows


def strided(size: tuple[int, int, int]) -> Model:
    """Windows of 3x3, by one pixel and by two, and of 1x1, of 64 channels."""
    net = Net((*size, 64))
    x = net.conv(net.x, "window", 64, limit=127, strides=[2, 2])
    y = net.conv(x, "further", 96, limit=127)
    return net.model(net.conv(y, "point", 64, kernel=1, limit=127), y)


def added(size: tuple[int, int, int], is_deep: bool) -> tuple[Net, Model]:
    """An image that a window reaches beyond, and that the result is added to, or also the next."""
    net = Net((*size, 32), "uint8")
    x = net.conv(net.x, "first", 32, dtype="uint8")
    y = net.conv(x, "window", 32, dtype="uint8")
    numbers = {"lhs": 0.7, "rhs": 0.4, "fixed": -3.5}
    ratios = [net.builder.tensor(n, np.array(v, np.float32)) for n, v in numbers.items()]
    total = net.emit(onnx_elementwise.qlinear_add(y, x, *ratios, low=0, high=255, fits=True), "sum")
    if is_deep:  # what is added later is not what the product multiplies
        z = net.conv(total, "next", 32, kernel=1, dtype="uint8")
        return net, net.model(
            net.emit(onnx_elementwise.qlinear_add(z, x, *ratios, low=0, high=255), "last")
        )
    return net, net.model(total)
