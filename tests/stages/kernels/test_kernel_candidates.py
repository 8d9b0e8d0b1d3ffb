"""Candidates: what a layer costs, where its counters are flushed, which kernel is the cheapest."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages.kernels.families import Dots
from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate, flush_for, from_table, to_table
from stages.kernels.problems import FLOAT32, Problem
from stages.kernels.selection import best, byte_candidates
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import digit_plan
from tests.stages.kernels.signatures import SIGNATURES
from tests.stages.pipeline import kept_candidates
from tests.targets import AARCH64, AVX2, AVX512VPOPCNTDQ

PLAN = digit_plan("and", 2, 2, "unipolar")
POPCOUNT = KernelSignature("sse2", PLAN, None, 2, 16, "window", 15)
DOT = KernelSignature("sse2", None, Dots(2), 1, 8, "none", 0)


@given(SIGNATURES, st.integers(0, 20), st.integers(1, 9), st.integers(1, 99))
def test_counters_are_emptied_as_seldom_as_they_may(
    signature: KernelSignature, period: int, rows: int, row_words: int
) -> None:
    flush = flush_for(replace(signature, flush_period=period), rows, row_words)
    counted = {"window": rows * row_words, "row": row_words, "chunk": period}
    if period == 0:
        assert flush == "none"
        return
    assert counted[flush] <= period
    assert flush == next(name for name, words in counted.items() if words <= period)


def test_a_row_of_a_window_in_words() -> None:
    """Channels are padded to blocks, whatever a word holds."""
    for channels, blocks in ((1, 1), (32, 1), (33, 2), (64, 2)):
        geometry = Geometry((5, 3), channels, 9)
        assert geometry.row_words(32) == 3 * blocks
        assert geometry.row_words(4) == 3 * blocks * 8


@pytest.mark.parametrize(
    ("columns", "channels", "words"),
    [(7, 3, 6), (5, 3, 4), (3, 1, 1), (3, 2, 2), (3, 3, None), (1, 1, None), (7, 4, None)],
)
def test_a_row_of_pixels_that_lie_close_together(
    columns: int, channels: int, words: int | None
) -> None:
    """Where that takes fewer words than a word a pixel."""
    geometry = Geometry((2, columns), channels, 9, channel_unit=4).as_unpadded
    assert (geometry and geometry.row_words(4)) == words
    assert Geometry((2, columns), channels, 9).as_unpadded is None


@pytest.mark.parametrize(
    ("channels", "times"),
    [
        (32, 1),  # 9 words a window
        (128, 3),  # 12 words a row
        (512, 3 * 4),  # 48 words a row, 15 at once
    ],
)
def test_cycles(channels: int, times: int) -> None:
    """Words of all tiles, and flushing them."""
    geometry = Geometry((3, 3), channels, 7)
    tiles = 4 * 2
    words = 9 * channels // 32
    assert KernelCandidate(POPCOUNT, 5.0, 3.0).cycles(geometry) == tiles * (
        words * 5.0 + times * 3.0
    )


@pytest.mark.parametrize(
    ("width", "strides", "pixels"),
    [
        (64, (1, 1), 0),  # 3 rows of 66 pixels, 8 bytes each, stay in a cache of 2000 bytes
        (82, (1, 1), 4),  # 3 rows of 84 pixels do not: tiles of 2 read 4 pixels of each
        (41, (2, 2), 0),  # 3 rows of 83
        (42, (2, 2), 5),
    ],
)
def test_rows_that_the_first_cache_does_not_hold_are_read_from_the_second(
    width: int, strides: tuple[int, int], pixels: int
) -> None:
    geometry = Geometry((3, 3), 32, width, strides=strides)
    near = KernelCandidate(POPCOUNT, 5.0, 3.0)
    far = replace(near, l2_line_cycles=10.0, l1_bytes=2000)
    lines = 3 * pixels * 8 / 64
    tiles = 2 * -(-width // 2)
    assert far.cycles(geometry) == pytest.approx(near.cycles(geometry) + tiles * lines * 10)


def test_cores_that_compute_results_beside_products_take_short_tiles() -> None:
    """A Zen 4 looks ahead over four pixels of 32 channels; the same kernels on another core do not
    gain by being called more often."""
    geometry = Geometry((1, 1), 64, 56, output_rows=56)
    rows = {}
    for core in ("zen4", "icelake"):
        profile = AVX512VPOPCNTDQ.model_copy(update={"core": core})
        candidates = byte_candidates(
            {"a8w8": to_table(kept_candidates(Problem(8, 8, "signed"), profile))},
            8,
            np.array([-128]),
        )
        rows[core] = best(candidates, geometry, 64).signature.rows
        late = {
            o.signature.rows: o.exposed_epilogue for o in candidates if o.signature.channels == 32
        }
        assert late[4] == 0
        assert (late[14] > late[8] > 0) == (core == "zen4")
    assert rows["zen4"] <= 4 < rows["icelake"]


def test_weights_in_the_second_cache_are_transformed_for_the_fewest_products() -> None:
    """Those of small tiles are fewer, which tells where all have to come from beyond it."""
    candidates = kept_candidates(FLOAT32, AVX512VPOPCNTDQ)
    kernels = [candidate for candidate in candidates if candidate.signature.is_transformed]
    geometry, weights = Geometry((3, 3), 256, 7, 7), 36 * 256 * 4 * 64
    for second, tile in ((weights - 1, 2), (weights, 4)):
        found = best([replace(candidate, l2_bytes=second) for candidate in kernels], geometry, 64)
        assert found.transform(geometry, 64).outputs == tile


def test_cycles_per_product_of_long_windows() -> None:
    assert KernelCandidate(POPCOUNT, 5.0, 3.0).cycles_per_mac == (5.0 + 3.0 / 15) / (2 * 16 * 32)
    assert KernelCandidate(DOT, 5.0, 3.0).cycles_per_mac == 5.0 / (8 * 4)


@pytest.mark.parametrize(("outputs", "parts"), [(8, 1), (24, 3), (32, 4), (33, 5), (64, 8)])
def test_parts_of_a_block_without_an_output_are_left_out_where_they_can_be(
    outputs: int, parts: int
) -> None:
    geometry = Geometry((1, 1), 32, 7, output_rows=3)
    candidate, blocks = KernelCandidate(DOT, 5.0, 0.0), -(-outputs // 32)
    part = 3 * 7 * 8 * 5.0
    assert candidate.layer(geometry, outputs) == blocks * 4 * part
    assert candidate.layer(replace(geometry, in_blocks=False), outputs) == parts * part


def test_the_best_candidate_fits_the_width_of_a_row() -> None:
    wide, narrow = (
        KernelCandidate(POPCOUNT, 1.0, 0.0),
        KernelCandidate(replace(POPCOUNT, rows=1), 9.0, 0.0),
    )
    assert best([wide, narrow], Geometry((1, 1), 32, 2)) == wide
    assert best([wide, narrow], Geometry((1, 1), 32, 1)) == narrow


@pytest.mark.parametrize(
    ("rows", "height", "strides", "tiles"),
    [
        (2, 7, (1, 1), 4.0),  # 28 are less than half of 61 positions, 9 from row to row
        (7, 7, (1, 1), 1.0),  # 9 tiles of joined rows are more than 7
        (14, 7, (1, 1), 5 / 7),
        (61, 7, (1, 1), 1 / 7),
        (62, 7, (1, 1), inf),
        (2, 7, (2, 2), 4.0),
        (8, 7, (2, 2), 13 / 7),  # of 97 positions, 15 from row to row
        (8, 7, (2, 1), inf),
        (8, 7, (3, 3), inf),  # windows do not overlap
        (8, 1, (1, 1), inf),
    ],
)
def test_tiles_go_on_from_row_to_row(
    rows: int, height: int, strides: tuple[int, int], tiles: float
) -> None:
    """Where that takes fewer of them, and windows overlap and move alike along both axes."""
    geometry = Geometry((3, 3), 64, 7, height, strides)
    assert geometry.tiles(rows) == tiles
    assert geometry.takes(replace(POPCOUNT, rows=rows)) == (tiles < inf)


@pytest.mark.parametrize(("window", "positions"), [(1, 6 * 7 + 7), (2, 6 * 7 + 7), (3, 6 * 8 + 7)])
def test_in_phases_rows_follow_one_another(window: int, positions: int) -> None:
    """By half as many positions as there are pixels in a row."""
    geometry = Geometry((window, window), 64, 7, 7, (2, 2))
    phased = geometry.as_polyphase
    assert phased is not None and phased.tiles(positions) == 1 / 7
    assert phased.tiles(positions + 1) == inf
    for other in ({"strides": (1, 1)}, {"strides": (2, 1)}, {"images": 2}, {"channels": 4}):
        assert replace(geometry, **other).as_polyphase is None


def test_ties_go_to_the_smaller_name() -> None:
    candidates = [KernelCandidate(replace(DOT, isa=isa), 1.0, 0.0) for isa in ("b", "a", "c")]
    assert best(candidates, Geometry((1, 1), 32, 8)).signature.isa == "a"


@pytest.mark.parametrize("hardware", (AARCH64, AVX2), ids=lambda item: item.name)
def test_candidates_are_plain_data(hardware: Hardware) -> None:
    candidates = kept_candidates(Problem(2, 2, "bipolar"), hardware)
    assert from_table(to_table(candidates)) == candidates


def test_products_of_other_problems_fit_if_they_are_large_enough() -> None:
    problems = [Problem(2, 1, "bipolar"), Problem(3, 3, "signed"), Problem(8, 8, "signed")]
    table = {p.name: to_table(kept_candidates(p, AARCH64)) for p in problems}

    def methods(bits: int, limit: int) -> set[str]:
        products = [o.signature.products for o in byte_candidates(table, bits, np.array([-limit]))]
        return {p.name for p in products if p}

    small, middle, whole = (
        {"narrow8_a2_w1", "narrow16_a2_w1"},
        {"narrow8_a3_w4", "narrow16_a3_w4"},
        {"dot1", "wide_dot1", "wide_dot1_by2", "wide_dot1_by4"},
    )
    seven, eight = ({f"pairs4{a}{by}" for by in ("", "_by2", "_by3", "_by4")} for a in ("_a7", ""))
    assert methods(2, 1) == small | middle | whole | seven | eight
    assert methods(1, 0) == small | middle | whole | seven | eight
    assert methods(2, 2) == methods(3, 4) == middle | whole | seven | eight
    assert methods(3, 5) == methods(4, 1) == whole | seven | eight
    assert methods(8, 127) == whole | eight
    assert methods(8, 128) == whole
    names = [o.signature.name for o in byte_candidates(table, 1, np.array([1]))]
    assert names == sorted(set(names))
