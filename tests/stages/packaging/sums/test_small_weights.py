"""Products of weights small enough for sums of two in 16 bits (PMADDUBSW)."""

from __future__ import annotations

import numpy as np
import pytest

from hw.isa import isa_of
from hw.profile import Hardware
from stages import synthesizing
from stages.kernels.families import PairedDots, Products, WideDots
from stages.kinds import Model
from stages.synthesizing.bodies import PAIRED_LIMIT, paired_products
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import MAC
from tests.stages.packaging.programs import assert_exact, pack
from tests.targets import (
    AARCH64,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)


def network(limit: int) -> tuple[Model, Net]:
    """Convolutions of bytes, all weights of the last one as large as they may be."""
    net = Net((2, 9, 7, 12), "uint8")
    x = net.conv(net.x, "first", 40, zero_point=0, limit=limit)
    x = net.conv(x, "second", 24, kernel=1, limit=limit)
    model = net.model(net.conv(x, "largest", 16, limit=limit))
    weights = model.params["largest.weight"]
    weights[...] = -limit
    weights[::3] = limit - 1
    return model, net


def methods(packed: Model) -> set[Products | None]:
    return {signature.products for signature in synthesizing.wanted(packed)}


@pytest.mark.parametrize("hardware", (AVX2, AVX512BW), ids=lambda item: item.name)
def test_small_weights_are_multiplied_in_pairs(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model, net = network(PAIRED_LIMIT)
    for value in (np.full(net.shape, 255, np.uint8), net.inputs()["x"]):
        packed, _ = assert_exact(model, {"x": value}, hardware, MAC)
    assert methods(packed) == {PairedDots(4, 64)}


@pytest.mark.parametrize("hardware", (AVX2, AVX512BW), ids=lambda item: item.name)
def test_larger_weights_are_not(hardware: Hardware) -> None:
    model, _ = network(PAIRED_LIMIT + 1)
    assert methods(pack(model, hardware, MAC)) == {WideDots(2)}


def test_only_where_nothing_multiplies_four_bytes_at_once() -> None:
    assert paired_products(isa_of(AVX2)) is not None
    for hardware in (SSE2, AVX512VNNI, VNNI_256, AARCH64):
        assert paired_products(isa_of(hardware)) is None
