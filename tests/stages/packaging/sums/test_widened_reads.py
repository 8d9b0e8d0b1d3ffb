"""Convolutions whose pixels are widened before they are multiplied: every window, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages import synthesizing
from stages.kernels.widened_windows import BEHIND, MOST_BYTES, widened
from stages.kinds import Model
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import MAC
from tests.stages.packaging.programs import assert_exact, pack
from tests.targets import (
    AARCH64,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    EVERY,
    SSE2,
    skip_unless_runnable,
)

TARGETS = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
WINDOWS: dict[str, dict[str, Any]] = {
    "pixels": {"kernel": 1},
    "every_other_pixel": {"kernel": 1, "strides": [2, 2]},
    "columns": {"window": (5, 1), "padding": [2, 0, 2, 0]},
    "rows": {"window": (1, 5), "padding": [0, 2, 0, 2]},
    "squares": {"kernel": 3},
    "every_other_square": {"kernel": 3, "strides": [2, 2]},
    "far_squares": {"kernel": 3, "strides": [4, 4]},
}
"""Attributes of a convolution."""


def are_widened(model: Model, hardware: Hardware) -> list[bool]:
    """Whether the kernels of a model read what is widened."""
    return [s.is_widened for s in synthesizing.wanted(pack(model, hardware, MAC))]


@TARGETS
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("channels", "outputs"), [(3, 40), (32, 24), (72, 104)])
def test_windows(hardware: Hardware, window: str, channels: int, outputs: int) -> None:
    """Of any images, and with pixels and weights at their extremes."""
    skip_unless_runnable(hardware)
    net = Net((1, 13, 15, channels), "uint8")
    model = net.model(net.conv(net.x, "c", outputs, zero_point=3, **WINDOWS[window]))
    assert are_widened(model, hardware) == [True]
    largest = {"x": np.full(net.shape, 255, np.uint8)}
    assert_exact(model, net.inputs(), hardware, MAC, others=[largest])


@TARGETS
def test_a_batch(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((3, 7, 6, 40))
    model = net.model(net.conv(net.conv(net.x, "c", 72, kernel=1), "d", 40, strides=[2, 2]))
    assert are_widened(model, hardware)[:1] == [True]
    assert_exact(model, net.inputs(), hardware, MAC)


@EVERY
@pytest.mark.parametrize("window", ["point", "square"])
@pytest.mark.parametrize("zero_point", [0, 1, 127, 255])
def test_weights_that_no_byte_holds(hardware: Hardware, zero_point: int, window: str) -> None:
    """Bytes less a zero point, at their extremes too: +128 is no signed byte either."""
    skip_unless_runnable(hardware)
    net = Net((1, 7, 9, 20), "uint8")
    more = {"weight_dtype": "uint8", "weight_zero_point": zero_point, "zero_point": 3}
    kernel = 1 if window == "point" else 3
    model = net.model(net.conv(net.x, "c", 40, kernel, **more))
    weights = model.params["c.weight"]
    weights[...] = weights.astype(np.uint8)
    weights[3:5], weights[6] = 255, 0
    assert are_widened(model, hardware) == [True]
    largest = {"x": np.full(net.shape, 255, np.uint8)}
    assert_exact(model, net.inputs(), hardware, MAC, others=[largest])


def test_such_weights_of_windows_that_would_not_stay_near_are_for_plain_kernels() -> None:
    net = Net((1, 3, 3, 33_000))
    conv = net.conv(net.x, "c", 8, kernel=1, weight_dtype="uint8", weight_zero_point=9)
    assert are_widened(net.model(conv), AVX512VNNI) == []


def test_no_windows_are_widened_that_would_not_stay_near() -> None:
    net = Net((1, 3, 3, 33_000))
    model = net.model(net.conv(net.x, "c", 8, kernel=1))
    assert 2 * widened(1, (1, 1), 1, 33_000).size > MOST_BYTES
    assert are_widened(model, AVX2) == [False]


def test_nothing_is_where_bytes_are_multiplied() -> None:
    net = Net((1, 8, 8, 32))
    assert are_widened(net.model(net.conv(net.x, "c", 32)), AVX512VNNI) == [False]


@given(
    rows=st.integers(1, 9),
    window=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
    pixel=st.integers(1, 40),
)
def test_all_windows_are_in_what_is_widened(
    rows: int, window: tuple[int, int], stride: int, pixel: int
) -> None:
    """A row of a window begins where strides say, and what a kernel reads of it is there."""
    height, width = window
    lies = widened(rows, window, stride, pixel)
    columns = (rows - 1) * stride + width
    image = np.arange(1, height * columns * pixel + 1).reshape(height, -1)
    image = np.pad(image, [(0, 0), (0, 1)])
    wide = np.zeros(lies.size, np.int64)
    for y in range(height):
        for piece in range(lies.pieces):
            first = piece * lies.step
            at = y * lies.row + piece * lies.pitch
            wide[at : at + lies.elements] = image[y, first : first + lies.elements]
    row = width * pixel + width * pixel % 2
    for m in range(rows):
        for y in range(height):
            at = y * lies.row + m * lies.moved
            first = m * stride * pixel
            assert at + row + BEHIND <= lies.size
            expected = image[y, first : first + width * pixel]
            np.testing.assert_array_equal(wide[at : at + width * pixel], expected)
