"""Kernels of tiles: proved, compiled and compared with the sums that they promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hw.core_costs import core_costs
from hw.isa import isa_of
from hw.isa.gfni import WIDTHS
from stages.kernels.families import Dots, TileDots
from stages.kernels.geometry import Geometry, tile_count
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import WeightCode
from stages.kernels.packing import pack_weights, unpack_weights
from stages.kernels.problems import BFLOAT16, FLOAT32, Problem
from stages.kernels.selection import best
from stages.kernels.signature import KernelSignature
from stages.synthesizing import synthesized
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.sketches import tiles_of
from stages.synthesizing.tile_body import (
    PIXELS,
    STEPS,
    WHOLE,
    shape_of,
    shaping_text,
    tile_candidate,
)
from tests.stages.synthesizing.bodies import Case, compile_cases, expected_sums, sums_of
from tests.targets import AMX, AMX_GFNI, AVX512VNNI, skip_unless_runnable

ISA, EXPANDING = isa_of(AMX), isa_of(AMX_GFNI)
BYTES = Problem(8, 8, "signed")
BLANK = KernelSignature(ISA.name, None, TileDots(4, 16), 32, 32, "none", 0)


def signature(rows: int, step: int, channels: int = 32) -> KernelSignature:
    return replace(BLANK, rows=rows, channels=channels, products=TileDots(4, step))


SOME = [signature(*tile) for tile in ((32, 16), (28, 12), (14, 7), (7, 3), (16, 9))]
WHOLES = [signature(rows, 16 - 4 * n, 16) for n, rows in enumerate(WHOLE)]
CODES = [WeightCode(bits, is_odd) for bits in WIDTHS for is_odd in (False, True)]
CODED = [
    replace(kernel, products=TileDots(4, kernel.step, code=code))
    for kernel, code in zip([*WHOLES, *WHOLES], CODES, strict=True)
]
ALL = [(rows, 32) for rows in PIXELS] + [(rows, 16) for rows in WHOLE]


@pytest.mark.parametrize("kernel", [*SOME, *WHOLES, *CODED], ids=lambda kernel: kernel.name)
def test_compiled_kernels_add_up_products(kernel: KernelSignature) -> None:
    """Windows of one row and of several, of a step and of more; strides of 1 and 2; from zeros and
    from any integers. Where weights are stored in fewer bits, by tiles and by vectors."""
    hardware = AMX if kernel.code is None else AMX_GFNI
    skip_unless_runnable(hardware)
    step = kernel.step
    sizes = [(3, 3, step, 1), (1, 1, step, 2), (2, 2, step, 1)]
    cases = [Case(kernel, *size) for size in sizes]
    if kernel.code is not None:
        assert kernel.fallback is not None
        cases += [Case(kernel.fallback, *size) for size in sizes]
    rng = np.random.default_rng(step)
    # Of one kernel there are several cases.
    library = compile_cases(list({case.name: case for case in cases}.values()), hardware)
    for case in cases:
        low, high = case.weights
        for data, weights in (case.random(rng), case.full(255, low), case.full(255, high)):
            expected = expected_sums(case, data, weights)
            begin = rng.integers(-(1 << 31), 1 << 31, 32, np.int64).astype(np.int32)
            for first in (None, begin):
                found = sums_of(case, library, data, weights, first)
                total = expected if first is None else expected + first
                np.testing.assert_array_equal(found, total)


@pytest.mark.parametrize(
    "kernel", [*SOME[1:4], *WHOLES, *CODED[:3]], ids=lambda kernel: kernel.name
)
def test_kernels_are_proved(kernel: KernelSignature) -> None:
    isa = ISA if kernel.code is None else EXPANDING
    facts = prove(kernel, isa, body_of(kernel, isa))
    assert facts.get("expanded") == (kernel.code and kernel.code.name)
    assert facts["scale"] == 1 and facts["flush_period"] == 0
    # As many words of four bytes as fit 32 bits, in whole steps.
    most = (1 << 31) // (4 * 255 * 128)
    assert most - kernel.step < facts["most_words"] <= most


def test_registers_of_more_pixels_than_they_seem_to_have_are_refused() -> None:
    """Two registers of 61 pixels have some in common; a body that leaves some out is wrong."""
    kernel = signature(61, 16, 16)
    body = body_of(kernel, ISA)
    assert (body.pixels, body.distance) == (16, 15)
    with pytest.raises(ProofError, match="some pixels are left out"):
        prove(kernel, ISA, replace(body, distance=14))


def test_a_body_that_mixes_up_its_registers_is_refused() -> None:
    kernel = signature(14, 3)
    body = body_of(kernel, ISA)
    word = body.passes[0].word
    steps = list(word.steps)
    first, second = steps[0], steps[1]
    swapped = replace(first, operands=(*first.operands[:2], second.operands[2]))
    wrong = replace(word, steps=[swapped, *steps[1:]])
    with pytest.raises(ProofError, match="row 0, pixel 0"):
        prove(kernel, ISA, replace(body, passes=(replace(body.passes[0], word=wrong),)))


def test_a_kernel_comes_with_what_shapes_its_registers() -> None:
    kernel = signature(28, 12)
    entry = synthesized(kernel, AMX)
    assert entry["shaping"] == shaping_text(kernel)
    # Four registers of sums, two of 14 rows of data, two of 12 rows of weights.
    assert r"\40\00\40\00\40\00\40\00\30\00\30\00\40\00\40\00" in entry["shaping"][0]
    assert r"\0E\0E\0E\0E\0E\0E\0C\0C" in entry["shaping"][0]
    assert "shaping" not in synthesized(replace(kernel, products=Dots(4), rows=4), AMX)


@pytest.mark.parametrize(("rows", "channels"), [(33, 32), (48, 32), (65, 16), (32, 8)])
def test_pixels_that_registers_do_not_hold_are_refused(rows: int, channels: int) -> None:
    with pytest.raises(ValueError, match=f"no tiles for mac8_tile16_{rows}x{channels}"):
        shape_of(replace(BLANK, rows=rows, channels=channels))


@pytest.mark.parametrize(("rows", "channels"), ALL)
def test_registers_hold_all_pixels(rows: int, channels: int) -> None:
    shape = shape_of(replace(BLANK, rows=rows, channels=channels))
    held = {m * shape.distance + n for m in range(shape.count) for n in range(shape.rows)}
    assert held == set(range(rows))
    assert shape.sums + shape.data + shape.columns <= 8


@pytest.mark.parametrize(("rows", "channels"), ALL)
def test_the_fallback_reads_the_same_weights(rows: int, channels: int) -> None:
    kernel = replace(BLANK, rows=rows, channels=channels)
    other = kernel.fallback
    assert other is not None and other.products == Dots(4)
    assert other.channels == kernel.channels and other.rows <= 14
    assert other.rows * tile_count(rows, other.rows) - rows <= 4 and other.fallback is None
    rng = np.random.default_rng(1)
    case = Case(kernel, 1, 1, 16)
    _, weights = case.random(rng)
    packed = pack_weights(kernel, weights)
    np.testing.assert_array_equal(unpack_weights(other, packed, weights.shape), weights)


def candidates() -> list[KernelCandidate]:
    return [tile_candidate(one, ISA, core_costs(AMX.core)) for one in tiles_of(BYTES, ISA)]


def test_there_is_a_candidate_for_every_tile() -> None:
    made = candidates()
    assert {(o.signature.rows, o.signature.channels, o.signature.step) for o in made} == {
        (*tile, step) for tile in ALL for step in STEPS
    }
    assert tiles_of(BYTES, isa_of(AVX512VNNI)) == []
    # A whole product takes 16 cycles for 16 x 16 lanes of 64 bytes.
    best = min(made, key=lambda o: o.cycles_per_mac)
    assert best.signature.step == 16 and 900 < 1 / best.cycles_per_mac <= 1024


def test_tiles_multiply_bytes_and_bfloat16_alone() -> None:
    assert {s.family for s in tiles_of(BYTES, ISA)} == {"mac8"}
    assert {s.family for s in tiles_of(BFLOAT16, ISA)} == {"macbf16"}
    assert tiles_of(FLOAT32, ISA) == []


@pytest.mark.parametrize(
    ("channels", "unit", "kernel", "steps"),
    [
        (64, 32, 3, {3, 4, 6, 8, 12, 16}),
        (96, 32, 1, {3, 4, 6, 8, 12}),
        (24, 4, 1, {3, 6}),
        (24, 32, 1, set()),  # 6 words where a graph input is narrow, else 8
        (3, 4, 7, {7}),
        (3, 32, 7, {7}),
        (4, 4, 1, set()),
    ],
)
def test_a_step_is_a_part_of_a_windows_row(
    channels: int, unit: int, kernel: int, steps: set[int]
) -> None:
    geometry = Geometry((kernel, kernel), channels, 56, 56, channel_unit=unit)
    assert {o.signature.step for o in candidates() if geometry.takes(o.signature)} == steps


@pytest.mark.parametrize(
    ("size", "strides", "rows"),
    [
        (7, 1, {61}),
        (7, 2, {52, 55}),
        (8, 1, set()),
        (6, 1, set()),
        (9, 1, {52, 55}),
        (14, 1, set()),
    ],
)
def test_a_tile_of_all_pixels_has_these_or_half_of_them(
    size: int, strides: int, rows: set[int]
) -> None:
    geometry = Geometry((3, 3), 512, size, size, (strides, strides))
    found = {o.signature.rows for o in candidates() if geometry.takes(o.signature)}
    assert found & set(WHOLE) == rows


def test_weights_that_come_from_afar_are_read_once() -> None:
    """By steps of 16 words, which take as long as shorter ones while weights come."""
    kernel = best(candidates(), Geometry((3, 3), 512, 7, 7)).signature
    assert (kernel.rows, kernel.channels, kernel.step) == (61, 16, 16)
    assert best(candidates(), Geometry((1, 1), 2048, 7, 7)).signature.channels == 32
