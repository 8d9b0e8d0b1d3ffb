"""What a layer's tensors become: packed weights, and biases that hold every correction."""

from __future__ import annotations

import numpy as np

from stages.bitpacking.edge_layouts import Layout
from stages.bitpacking.window import Window
from stages.dialect.padding import Halo
from stages.dialect.zero_point import ZeroPoint
from stages.kernels.packed_conv2d import border_classes, class_count
from stages.kernels.packing import pack_rows, raw_sums, round_up
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kinds import Array


def border(window: Window) -> list[int]:
    """How many output rows and columns at each side have windows that reach into the padding."""
    counts = []
    for axis in (0, 1):
        taps = window.taps(axis)
        counts.append((int((taps[:, 0] < 0).sum()), int((taps[:, -1] >= window.size[axis]).sum())))
    return [counts[0][0], counts[1][0], counts[0][1], counts[1][1]]


def fold_bias(
    signature: KernelSignature,
    q: Array,
    channels: int,
    zero_points: tuple[ZeroPoint, ZeroPoint],
    halo: Halo,
    window: Window,
) -> tuple[int, Array, list[int]]:
    """The scale of raw sums, a bias int32 [classes, OCp], and the border counts it is indexed by.

    `zero_points` are those of the data and of the weights `q` [O, KH, KW, C].
    The kernel computes `scale * raw` over a window of an image with a `halo`, and over `channels`
    channels, of which those behind the last are at level 0 and have stored weights 0. What is
    missing is, per output channel, everything that does not depend on the activations, and per
    border class the difference between what the padding means and what the halo holds.
    """
    of_data, of_weights = zero_points
    scale = signature.scale * of_data.denominator
    outputs = q.shape[0]
    n = of_weights.numerators(q).astype(np.int64)
    taps = np.pad(q, [(0, 0)] * 3 + [(0, channels - q.shape[3])]).reshape(outputs, -1)
    at_zero = raw_sums(signature, np.zeros((1, taps.shape[1]), np.uint8), taps)[0]
    base = of_data.numerator(0) * n.reshape(outputs, -1).sum(1) - scale * at_zero.astype(np.int64)
    difference = window.padding.difference(halo, of_data)
    counts = border(window) if difference else [0, 0, 0, 0]
    top, left, bottom, right = counts
    rows = border_classes(window.output[0], top, bottom)
    columns = border_classes(window.output[1], left, right)
    classes = class_count(window.output[0], top, bottom), class_count(window.output[1], left, right)
    bias = np.zeros((*classes, outputs), np.int64)
    for y_class in range(classes[0]):
        outside_y = _outside(window, 0, int(np.argmax(rows == y_class)))
        for x_class in range(classes[1]):
            outside_x = _outside(window, 1, int(np.argmax(columns == x_class)))
            padded = outside_y[:, None] | outside_x[None, :]
            bias[y_class, x_class] = base + difference * n[:, padded].sum((1, 2))
    padding = round_up(outputs, BLOCK) - outputs
    result = np.pad(bias.reshape(-1, outputs), [(0, 0), (0, padding)])
    return scale, result.astype(np.int32), counts


def _outside(window: Window, axis: int, position: int) -> Array:
    """Which taps along an axis lie in the padding for one output position."""
    taps = window.taps(axis)[position]
    return (taps < 0) | (taps >= window.size[axis])


def padded_to(q: Array, layout: Layout) -> Array:
    """Weights [O, KH, KW, C] padded by zeros to the channels and packed rows of a layout."""
    rows = round_up(q.shape[1], layout.packed_rows) - q.shape[1]
    width = [(0, 0), (0, rows), (0, 0), (0, layout.padded_channels - q.shape[3])]
    return pack_rows(np.pad(q, width), layout.packed_rows)
