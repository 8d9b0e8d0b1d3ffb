"""Convolutions in groups of channels, compiled: tiles read the channels of their groups alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of
from stages.kernels import operator_names
from stages.kernels.packed_conv2d import reads_of
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from tests.stages.networks import SourceNet
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact, pack
from tests.stages.pipeline import random_inputs
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VBMI,
    DOTPROD,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)

PROFILES = [
    SSE2,
    AVX2,
    VNNI_256,
    AVX512BW,
    AVX512VBMI,
    AMX,
    DOTPROD,
    pytest.param(AARCH64, marks=pytest.mark.slow),
    pytest.param(ARMV7, marks=pytest.mark.slow),
]
EVERY = pytest.mark.parametrize("hardware", PROFILES, ids=lambda item: item.name)
WIDTHS = {"narrow": (16, 4, 4), "own": (5, 16, 16), "partial": (13, 8, 8), "uneven": (4, 24, 40)}
"""Groups: how many, their channels, and those of their output."""
WINDOWS: dict[str, dict[str, Any]] = {
    "by one": {"kernel": 3},
    "by two": {"kernel": 3, "strides": [2, 2]},
    "pixels": {"kernel": 1},
    "large": {"kernel": 5, "padding": [0, 1, 2, 3]},
    "wide": {"window": (1, 3), "padding": [0, 1, 0, 1]},
}


def reads(model: Model, hardware: Hardware) -> list[tuple[int, ...]]:
    """What tiles read, of every convolution of a model as it is packed."""
    packed = pack(model, hardware)
    calls = [b.value for f in packed.module.functions.values() for b in bindings_of(f)]
    attrs = [attributes(call) for call in calls if is_op(call, operator_names.QNN_PACKED_CONV2D)]
    return [reads_of(each, parse_signature(each["signature"])) for each in attrs]


PAIRS = [
    ("narrow", "by one"), ("own", "by two"), ("partial", "pixels"), ("uneven", "large"),
    ("narrow", "wide"), ("partial", "by two"),
]  # fmt: skip


@EVERY
@pytest.mark.parametrize(("width", "window"), PAIRS)
def test_bytes(width: str, window: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    count, inputs, outputs = WIDTHS[width]
    net = Net((1, 7, 9, count * inputs), "uint8", seed=count)
    layer = net.conv(
        net.x, "c", count * outputs, groups=count, zero_point=9, dtype="uint8", **WINDOWS[window]
    )
    assert_exact(net.model(net.conv(layer, "last", 24, kernel=1)), net.inputs(), hardware)


@EVERY
def test_images_of_a_batch(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((3, 6, 5, 64))
    assert_exact(net.model(net.conv(net.x, "c", 64, groups=4)), net.inputs(), hardware)


@EVERY
def test_levels(hardware: Hardware) -> None:
    """In a network with quantizers, whose channels are padded to words of bits."""
    skip_unless_runnable(hardware)
    net = SourceNet((1, 40, 7, 6))
    weights = net.weights("w", (80, 8, 3, 3), 3, "signed")
    x = net.quant(net.x, "a", 3, 0.5)
    x = net.op(relax.op.nn.conv2d(x, weights, 1, 1, groups=5), "g")
    model = net.model(net.conv(net.quant(x, "b", 2, 0.5), "c", 8))
    assert_exact(model, random_inputs(model), hardware)


@EVERY
def test_floats(hardware: Hardware) -> None:
    """Of integers, so that sums are exact."""
    skip_unless_runnable(hardware)
    net = Net((1, 64, 9, 8))
    weight = net.rng.integers(-9, 10, (96, 16, 3, 3)).astype(np.float32)
    x = net.emit(relax.op.astype(net.x, "float32"), "real")
    call = relax.op.nn.conv2d(x, net.builder.tensor("w", weight), padding=1, groups=4)
    assert_exact(net.model(net.emit(call, "c")), net.inputs(), hardware)


def test_little_is_multiplied_by_zeros() -> None:
    """A tile of 16 channels reads no more than its outputs need, merged groups included."""
    net = Net((1, 14, 14, 512), "uint8")
    x = net.conv(net.x, "wide", 256, groups=8, dtype="uint8")
    x = net.conv(x, "narrow", 256, groups=64, dtype="uint8")
    assert reads(net.model(x), AVX512VBMI) == [(64, 32), (16, 16)]


def test_a_group_of_everything_is_none() -> None:
    net = Net((1, 8, 8, 24), "uint8")
    assert reads(net.model(net.conv(net.x, "c", 24, groups=2)), AVX512VBMI) == [()]
