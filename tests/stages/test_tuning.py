"""Schedules of composites, as far as no measurement has chosen them."""

from __future__ import annotations

import pytest

from stages import tuning
from stages.qnn.composites import PRODUCTS
from tests.stages.packaging.programs import pack
from tests.stages.packaging.test_plain import Net
from tests.targets import AMX, AVX512VNNI


def interleaved(channels: int, windows: tuple[int, ...], with_tiles: bool = True) -> list[bool]:
    """Of convolutions in a row, whether each one's epilogue stands between products."""
    net = Net((1, 14, 14, channels))
    x = net.x
    for number, kernel in enumerate(windows):
        x = net.conv(x, f"c{number}", channels, kernel=kernel)
    hardware = AMX if with_tiles else AVX512VNNI
    packed = pack(net.model(x), hardware)
    schedules = tuning.run(model=packed, hardware=hardware, choices={})
    functions = packed.module.functions.items()
    return [
        schedules[str(name.name_hint)]["interleaved"]
        for name, function in functions
        if (function.attrs or {}).get("composite") == PRODUCTS
    ]


def test_epilogues_stand_between_products_where_most_of_a_network_gains() -> None:
    assert interleaved(64, (3, 3)) == [True, True]
    # A 1x1 window of 64 channels is a single step, whose products are fewer than its pixels: it
    # gains with the others, but not by itself.
    assert interleaved(64, (3, 1)) == [True, True]
    assert not any(interleaved(64, (3, *(1,) * 8)))


def test_without_tiles_nothing_waits_for_an_epilogue() -> None:
    assert interleaved(64, (3, 3), with_tiles=False) == [False, False]


@pytest.mark.parametrize(("size", "is_by_runs"), [((56, 56), True), ((7, 7), False)])
def test_two_threads_share_the_larger_operand(size: tuple[int, int], is_by_runs: bool) -> None:
    net = Net((1, *size, 64))
    packed = pack(net.model(net.conv(net.x, "c", 64)), AVX512VNNI)
    schedules = tuning.run(model=packed, hardware=AVX512VNNI, choices={})
    spreads = [one["spread"] for one in schedules.values() if one["spread"]]
    assert [spread < 1 for spread in spreads] == [is_by_runs]
