"""Padded tensors, row by row, are what padding means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from hw.profile import Hardware
from stages.graph.bindings import calls_of
from stages.graph.composites import pad_of
from stages.kinds import Model
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, obstacle, skip_unless_runnable

op = relax.op
TARGETS = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
EXTENTS = {"pictures": (1, 7, 5, 3), "rows": (2, 9, 33), "wide": (1, 2, 3, 70), "line": (41,)}
WIDTHS = {
    "none": (0, 0),
    "before": (2, 0),
    "after": (0, 1),
    "both": (3, 20),
}


def padded(
    shape: tuple[int, ...], width: list[int], dtype: str, cast: str = "", fill: float = 0
) -> tuple[Net, Model]:
    """A padding, and a cast behind it."""
    net = Net(shape, dtype)
    x = net.emit(op.nn.pad(net.x, width, pad_value=fill), "padded")
    return net, net.model(net.emit(op.astype(x, cast), "cast") if cast else x)


def values(net: Net) -> dict[str, Any]:
    """Some of every sign."""
    return {
        "x": net.rng.integers(0 if net.dtype == "uint8" else -99, 99, net.shape).astype(net.dtype)
    }


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@TARGETS
def test_all_axes_but_the_first_are_padded(
    extents: str, width: str, dtype: str, hardware: Hardware
) -> None:
    skip_unless_runnable(hardware)
    shape = EXTENTS[extents]
    first = (0, 0) if len(shape) > 1 else WIDTHS[width]
    net, model = padded(shape, [*first, *(WIDTHS[width] * (len(shape) - 1))], dtype, fill=-7)
    packed, _ = assert_exact(model, values(net), hardware, tasks=(1, 3))
    assert [pad_of(function) is not None for _, function in calls_of(packed)] == [True]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4
    ),
    st.sampled_from(["int8", "uint8", "int16", "float32"]),
    st.sampled_from(["", "float64", "int32"]),
)
def test_any_axes_may_be_padded(axes: list[tuple[int, int, int]], dtype: str, cast: str) -> None:
    if obstacle(AVX2):
        pytest.skip(str(obstacle(AVX2)))
    shape = tuple(extent for extent, _, _ in axes)
    width = [count for _, *around in axes for count in around]
    net, model = padded(shape, width, dtype, cast, fill=3)
    assert_exact(model, values(net), AVX2, tasks=(1, 2))


def test_other_paddings_are_expressions() -> None:
    net = Net((1, 5, 6, 3))
    reflected = op.nn.pad(net.x, [0, 0, 1, 1, 2, 2, 0, 0], pad_mode="reflect")
    packed, _ = assert_exact(net.model(net.emit(reflected, "padded")), values(net), AVX2)
    assert [pad_of(function) for _, function in calls_of(packed)] == [None]
