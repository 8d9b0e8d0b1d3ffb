"""Maximum pools of bytes, and the halo that they write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.profile import Hardware
from stages.dialect import integer
from stages.graph.bindings import calls_of
from stages.graph.composites import max_pool_of
from stages.kinds import Model
from stages.numerics import onnx_elementwise
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import MAC
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, obstacle, skip_unless_runnable

TARGETS = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
CASES = st.fixed_dictionaries(
    {
        "images": st.sampled_from([1, 2]),
        "size": st.tuples(st.integers(3, 7), st.integers(3, 9)),
        "channels": st.sampled_from([8, 24, 32, 72]),
        "kernel": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "is_signed": st.booleans(),
        "readers": st.sampled_from(["window", "both", "point", "output"]),
    }
)
CASE: dict[str, Any] = {
    "images": 1, "size": (6, 7), "channels": 72, "kernel": (3, 3), "strides": (2, 2),
    "is_signed": False, "readers": "both",
}  # fmt: skip


def network(case: dict[str, Any]) -> tuple[Net, Model]:
    """A pool read by a convolution whose windows reach beyond it, one of 1x1, both, or the user."""
    net = Net(
        (case["images"], *case["size"], case["channels"]),
        "int8" if case["is_signed"] else "uint8",
    )
    padding = [size // 2 for size in case["kernel"]] * 2
    attrs = {"kernel": list(case["kernel"]), "strides": list(case["strides"])}
    pool = net.emit(integer.max_pool2d(net.x, padding=padding, **attrs), "pool")
    outputs = []
    if case["readers"] in ("window", "both"):
        outputs.append(net.conv(pool, "window", 40))
    if case["readers"] in ("point", "both"):
        outputs.append(net.conv(pool, "point", 8, kernel=1))
    return net, net.model(*(outputs or [pool]))


@TARGETS
def test_a_pool_writes_the_halo_that_all_its_readers_take(hardware: Hardware) -> None:
    """What reads the image alone finds it in the same memory."""
    skip_unless_runnable(hardware)
    net, model = network(CASE)
    packed, program = assert_exact(model, net.inputs(), hardware, MAC)
    assert [call.layer for call in program.calls] == ["pool", "window", "point"]
    assert str(packed.module).count("origin=[1, 1]") == 1


@TARGETS
def test_a_pool_with_two_halos_and_a_sum(hardware: Hardware) -> None:
    """Which is written as it is, for want of a kernel that writes several."""
    skip_unless_runnable(hardware)
    net = Net((1, 8, 9, 32), "uint8")
    attrs = {"kernel": [2, 2], "strides": [1, 1], "padding": [0, 0, 1, 1]}
    pool = net.emit(integer.max_pool2d(net.x, **attrs), "pool")
    first = net.conv(net.x, "first", 32, dtype="uint8")
    numbers = {"lhs": 0.7, "rhs": 0.4, "fixed": -3.5}
    ratios = [net.builder.tensor(n, np.array(v, np.float32)) for n, v in numbers.items()]
    total = net.emit(onnx_elementwise.qlinear_add(first, pool, *ratios, low=0, high=255), "sum")
    windows = [net.conv(pool, f"of{kernel}", 8, kernel=kernel) for kernel in (3, 5)]
    assert_exact(net.model(total, *windows), net.inputs(), hardware)


@TARGETS
def test_a_pool_without_products(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = network(CASE | {"readers": "output", "is_signed": True})
    packed, _ = assert_exact(model, net.inputs(), hardware)
    assert [max_pool_of(f) is not None for _, f in calls_of(packed)] == [True]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=CASES)
def test_any_pool(case: dict[str, Any]) -> None:
    hardware = next(h for h in (AVX512BW, AVX2, SSE2, AARCH64) if not obstacle(h))
    net, model = network(case)
    assert_exact(model, net.inputs(), hardware)
