"""Which calls threads share."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from tvm import relax

from hw.profile import Hardware
from stages.dialect import integer
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels.operation_counts import macs_of, values_of
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import pack, uncompiled_program
from tests.targets import AARCH64, AVX2, AVX512BW

op = relax.op
TARGETS = pytest.mark.parametrize(
    "hardware", (AVX2, AVX512BW, AARCH64), ids=lambda profile: profile.name
)


def convolution(size: int, channels: int) -> Any:
    """A network of one convolution of 3x3."""
    net = Net((1, size, size, channels))
    return net.model(net.conv(net.x, "conv", channels))


@TARGETS
def test_threads_share_what_takes_longer_than_to_wait(hardware: Hardware) -> None:
    """From some size on, and from there on always."""
    for sizes in ([(size, 32) for size in (1, 2, 8, 16, 64)], [(3, c) for c in (8, 32, 256)]):
        shared = []
        for size, channels in sizes:
            program = uncompiled_program(pack(convolution(size, channels), hardware), hardware)
            shared.append(not all(call.is_small for call in program.calls))
        assert shared == sorted(shared)
        assert shared[-1] and not shared[0]


def test_work_is_that_of_the_source() -> None:
    """A product's kernel multiplies what the convolution does; a pool reads its windows."""
    size, channels = 14, 32
    packed = pack(convolution(size, channels), AVX2)
    inner = [b.value for _, function in calls_of(packed) for b in bindings_of(function)]
    found = [macs_of(call) for call in inner if hasattr(call, "op")]
    assert sorted(found)[-1] == size * size * channels * channels * 9
    assert sum(found) == max(found)

    net = Net((1, 9, 12, 5))
    pool = integer.max_pool2d(net.x, kernel=[3, 2], strides=[3, 2], padding=[0, 0, 0, 0])
    assert values_of(_emitted(net, pool)) == 9 * 12 * 5
    net = Net((1, 9, 12, 5))
    assert values_of(_emitted(net, op.concat([net.x, net.x], 3))) == 2 * prod(net.shape)


def _emitted(net: Net, call: Any) -> Any:
    """A call with its type."""
    variable = net.emit(call, "value")
    model = net.model(variable)
    return next(b.value for b in bindings_of(model.module["main"]) if b.var.same_as(variable))
