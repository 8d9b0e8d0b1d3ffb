"""Schedules of composites, as predicted and where a measurement has chosen them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import scheduling
from stages.dialect.calls import attributes
from stages.graph.composites import LINEAR, calls_in
from stages.kernels.byte_families import Dots
from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kernels.workloads import Workload
from stages.scheduling.row_blocks import row_blocks
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import pack
from tests.targets import AMX, AVX512VNNI


def interleaved(channels: int, windows: tuple[int, ...], with_tiles: bool = True) -> list[bool]:
    """Of convolutions in a row, whether each one's epilogue stands between products."""
    net = Net((1, 14, 14, channels))
    x = net.x
    for number, kernel in enumerate(windows):
        x = net.conv(x, f"c{number}", channels, kernel=kernel)
    hardware = AMX if with_tiles else AVX512VNNI
    packed = pack(net.model(x), hardware)
    schedules = scheduling.run(model=packed, hardware=hardware, choices={})
    functions = packed.module.functions.items()
    return [
        schedules[str(name.name_hint)]["interleaved"]
        for name, function in functions
        if (function.attrs or {}).get("composite") == LINEAR
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
    schedules = scheduling.run(model=packed, hardware=AVX512VNNI, choices={})
    spreads = [one["spread"] for one in schedules.values() if one["spread"]]
    assert [spread < 1 for spread in spreads] == [is_by_runs]


def test_what_was_measured_is_the_schedule_of_that_layer_alone() -> None:
    net = Net((1, 14, 14, 64))
    packed = pack(net.model(net.conv(net.conv(net.x, "c", 64), "d", 32)), AVX512VNNI)
    predicted = scheduling.run(model=packed, hardware=AVX512VNNI, choices={})
    (name, kernel), *_ = [
        (str(variable.name_hint), parse_signature(attributes(call)["signature"]).name)
        for variable, function in packed.module.functions.items()
        if (function.attrs or {}).get("composite") == LINEAR
        for call in calls_in(function)
        if is_convolution(call) and attributes(call)["channels"][1] == 64
    ]
    choice = {"kernel": kernel, "order": "rows_inner", "rows": 4, "threads": 2}
    choices = {"u8s8 3x3s1x1_64to64_14x14": choice}
    found = scheduling.run(model=packed, hardware=AVX512VNNI, choices=choices)
    stated = {"order": "rows_inner", "rows": 4, "threads": 2}
    assert found == {**predicted, name: {**predicted[name], **stated}}
    elsewhere = {"u8s8 3x3s1x1_64to64_14x14": {**choice, "kernel": "another"}}
    assert scheduling.run(model=packed, hardware=AVX512VNNI, choices=elsewhere) == predicted


def row_blocks_of(
    shape: tuple[int, int, int],
    outputs: int,
    candidate: KernelCandidate | None = None,
    l2_kib: int = 512,
) -> list[int]:
    """Of windows of 3x3 pixels on an output of so many (channels, height, width)."""
    channels, height, width = shape
    workload = Workload("u8s8", Geometry((3, 3), channels, width, height), outputs)
    hardware = AVX512VNNI.model_copy(update={"l1d_kib": 32, "l2_kib": l2_kib})
    plain = KernelCandidate(KernelSignature("avx512bw", None, Dots(4), 7, 32, "none", 0), 1.0, 0.0)
    return row_blocks(workload, candidate or plain, hardware)


def test_row_blocks_fill_half_of_a_cache() -> None:
    # A row has 58 pixels of 64 bytes, a block of weights 18 KiB: half of the L1 cache holds four
    # rows alone, and nothing beside weights; half of the second one all rows but with all weights.
    assert row_blocks_of((64, 56, 56), 64) == [4]
    # All weights are 144 KiB, a row 7.5 KiB: 14 rows beside these, 29 beside a block's; 28 are half
    # of all rows, as even as 29 can be.
    assert row_blocks_of((128, 56, 58), 128) == [28, 14, 2]
    # One block of channels reads nothing twice.
    assert row_blocks_of((64, 56, 56), 32) == []
    # Both orders are there already.
    assert row_blocks_of((64, 1, 56), 64) == []
    assert row_blocks_of((64, 2, 56), 64) == []


@given(
    st.integers(1, 512), st.integers(1, 130), st.integers(1, 130), st.integers(1, 512),
    st.sampled_from((64, 512, 2048)),
)  # fmt: skip
def test_row_blocks_lie_between_one_row_and_all(
    channels: int, height: int, width: int, outputs: int, l2_kib: int
) -> None:
    found = row_blocks_of((channels, height, width), outputs, l2_kib=l2_kib)
    assert found == sorted(set(found), reverse=True)
    assert all(1 < rows < height for rows in found) and len(found) <= 4
    # The last row block is no rest: with one row less there would be more of them.
    assert all(-(-height // rows) < -(-height // (rows - 1)) for rows in found)
