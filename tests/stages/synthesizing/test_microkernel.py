"""Compiled micro-kernels compute what their term plans mean, on every instruction set."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.codegen import assembly
from stages.kernels.families import TransformedDots, WideDots
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK, Flush, KernelSignature, stored_by
from stages.kernels.terms import TermPlan
from stages.synthesizing.bodies import (
    body_of,
    by_words,
    paired_products,
    spanning_products,
    transformed_products,
    widened_products,
)
from stages.synthesizing.carry_save_body import WORDS, steps_of
from stages.synthesizing.coupled_body import STEPS
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.sketches import signatures_for
from stages.synthesizing.step_loops import fits
from tests.stages.synthesizing.bodies import (
    FLUSHES,
    Case,
    compile_cases,
    expected_sums,
    filled,
    same,
    sums_of,
)
from tests.stages.synthesizing.plans import (
    PLANS,
    PROBLEMS,
    mac8,
    narrow,
    plan_named,
    popcount,
)
from tests.targets import (
    AARCH64,
    AVX512BITALG,
    AVX512BW,
    EVERY,
    skip_unless_runnable,
)

SOME_PLANS = [
    plan_named("xor1", 1, 1, "bipolar"),
    plan_named("mix3", 2, 2, "bipolar"),
    plan_named("and4", 2, 2, "signed"),
    plan_named("choose_w6", 3, 3, "signed"),
    plan_named("choose_a2", 3, 1, "unipolar"),
    plan_named("choose_w6", 3, 3, "bipolar"),
]
FULL = plan_named("and4", 2, 2, "unipolar")
NEIGHBOURS = [
    (plan_named("mix3", 2, 2, "bipolar"), FULL),
    (FULL, plan_named("mix3", 2, 2, "bipolar")),
    (plan_named("choose_w6", 3, 3, "bipolar"), plan_named("choose_a2", 3, 1, "unipolar")),
    (plan_named("choose_a2", 3, 1, "unipolar"), plan_named("choose_w6", 3, 3, "bipolar")),
]
"""Plans, and others that want something else stored of the same levels."""
SHORT = 600
"""Narrow products with longer periods are not run with every flush: their windows are huge."""
SHORT_PERIODS, LONG_PERIODS = range(1, SHORT // 4 + 1), range(SHORT // 4 + 1, (1 << 15) + 1)
"""Of narrow products whose windows take no time, and of all others."""


def tiles(hardware: Hardware) -> list[int]:
    """Vectors of channels that a tile may have."""
    lanes = isa_of(hardware).lanes
    return [vectors for vectors in (1, 2, 4, 8) if vectors * lanes <= BLOCK]


def of_plan(hardware: Hardware, plan: TermPlan, rows: int) -> KernelSignature:
    return popcount(hardware, plan, None, rows, tiles(hardware)[rows % len(tiles(hardware))])


def check(cases: list[Case], hardware: Hardware, inlined: bool = True) -> None:
    library = compile_cases(cases, hardware, inlined)
    rng = np.random.default_rng(len(cases))
    for case in cases:
        for data, weights in (*(case.full(*pair) for pair in case.extremes), case.random(rng)):
            found = sums_of(case, library, data, weights)
            expected = expected_sums(case, data, weights)
            pair = int(data.flat[0]), int(weights.flat[0])
            same(found, expected, case, pair)
            if case.signature.preloads_bias:
                begin = rng.integers(-(1 << 31), 1 << 31, BLOCK, np.int64).astype(np.int32)
                found = sums_of(case, library, data, weights, begin)
                same(found, expected + begin, case, pair, "from")


@EVERY
def test_counters_are_emptied_before_they_overflow(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    flushes = FLUSHES if isa_of(hardware).counts_bytes else FLUSHES[:1]
    check([filled(of_plan(hardware, FULL, 1), flush) for flush in flushes], hardware)


@EVERY
def test_term_plans(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    check([Case(popcount(hardware, plan, rows=2), 3, 1, 1) for plan in SOME_PLANS], hardware)


@pytest.mark.parametrize("hardware", [AVX512BW, AVX512BITALG], ids=lambda x: x.name)
def test_bits_that_are_added_up_before_they_are_counted(hardware: Hardware) -> None:
    """Steps of every length, with adders and half adders, until counts fill their bytes."""
    skip_unless_runnable(hardware)
    isa, cases = isa_of(hardware), []
    for number, plan in enumerate(SOME_PLANS):
        for words in steps_of(plan, isa):
            rows, vectors = 1 + (number + words) % 3, 1 + words // 4 % 2
            signature = popcount(hardware, plan, None, rows, vectors, words)
            flush = FLUSHES[(number + words // 2) % 3]
            cases += [filled(signature, flush), Case(signature, 3, 1, words, 2)]
    assert {case.signature.words for case in cases} == {*WORDS}
    check(cases, hardware)


def test_words_that_are_counted_as_one() -> None:
    """Coupled words of pixels and channels in any number, until counts fill their bytes."""
    hardware = AARCH64
    skip_unless_runnable(hardware)
    cases: list[Case] = []
    for bits in ((1, 1), (2, 1), (2, 2), (3, 3)):
        every = signatures_for(Problem(*bits, "bipolar"), isa_of(hardware))
        found = [s for s in every if s.coupled and (s.rows + s.channels) % 5 == bits[0]]
        found = [s for s in found if _is_candidate(s, isa_of(hardware))][:6]
        for number, signature in enumerate(found):
            cases.append(filled(signature, FLUSHES[number % 3]))
            by_row = signature.flushed("row")
            cases.append(Case(by_row, 3, 3, signature.step, 1 + number % 2))
    assert {case.signature.words for case in cases} == {*STEPS}
    check(cases, hardware)


def _is_candidate(signature: KernelSignature, isa: Isa) -> bool:
    return all(fits(signature, one.word, isa) for one in body_of(signature, isa).passes)


@EVERY
def test_products_of_bytes_at_their_extremes(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    last = tiles(hardware)[-1]
    one, three = mac8(hardware, 1), mac8(hardware, 3, last)
    cases = [Case(one, 3, 3, 16), Case(three, 2, 3, 5, 2)]
    if (paired := paired_products(isa_of(hardware))) is not None:
        small = replace(one, products=paired), replace(three, products=paired)
        cases += [Case(small[0], 3, 3, 16), Case(small[1], 2, 3, 5, 2)]
    if (wide := widened_products(isa_of(hardware))) is not None:
        for products in by_words(wide):
            kernels = replace(one, products=products), replace(three, products=products)
            words = products.words * 5
            cases += [Case(kernels[0], 3, 3, 16), Case(kernels[1], 2, 3, words, 2)]
    check(cases, hardware)


@EVERY
@pytest.mark.parametrize("products", [spanning_products, transformed_products])
def test_products_of_words_at_their_extremes(
    products: Callable[[Isa], WideDots | TransformedDots], hardware: Hardware
) -> None:
    """Of bytes with weights that no byte holds; of transformed pixels, whose sums wrap around."""
    skip_unless_runnable(hardware)
    isa, cases = isa_of(hardware), []
    for each in by_words(products(isa)):
        kernels = [
            replace(mac8(hardware, rows, vectors), products=each)
            for rows, vectors in ((1, 1), (3, tiles(hardware)[-1]))
        ]
        cases += [Case(kernels[0], 1, 1, 40), Case(kernels[1], 2, 3, each.words * 5, 2)]
    check(cases, hardware)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("flush", FLUSHES)
def test_every_plan_with_every_flush(hardware: Hardware, flush: Flush) -> None:
    skip_unless_runnable(hardware)
    if flush != "window" and not isa_of(hardware).counts_bytes:
        pytest.skip("never flushes its counters")
    # In turn where counters are flushed more often: what differs is the loop around them.
    part = slice(None) if flush == "window" else slice(FLUSHES.index(flush), None, 3)
    plans = list(enumerate(PLANS))[part]
    check([filled(of_plan(hardware, plan, 1 + n % 3), flush) for n, plan in plans], hardware)


def by_tile(hardware: Hardware) -> list[list[KernelSignature]]:
    """Every signature for every problem, once, by its tile, with as many counters as registers."""
    isa = isa_of(hardware)
    found: dict[tuple[int, int], dict[str, KernelSignature]] = {}
    for signature in (s for problem in PROBLEMS for s in signatures_for(problem, isa)):
        if signature.rows * signature.channels <= isa.registers * isa.lanes:
            tile = signature.rows, signature.channels
            found.setdefault(tile, {})[signature.name] = signature
    return [list(found[tile].values()) for tile in sorted(found)]


@pytest.mark.slow
@EVERY
def test_every_tile(hardware: Hardware) -> None:
    """With two plans, plain and narrow products each, others on every tile."""
    skip_unless_runnable(hardware)
    cases = []
    for number, signatures in enumerate(by_tile(hardware)):
        kinds = (
            *([s for s in signatures if s.plan and has_loop(s, isa_of(hardware))],) * 2,
            [
                s
                for s in signatures
                if s.counters_are_sums and s.family == "mac8" and not s.is_widened
            ],
            *([s for s in signatures if s.products and s.products.bits == n] for n in (8, 16)),
            [s for s in signatures if s.is_transformed],
            [s for s in signatures if s.is_widened],
        )
        for step, kind in enumerate(kinds):
            stride = 1 + (number + step) % 2
            for signature in kind[(7 * number + 31 * step) % max(len(kind), 1) :][:1]:
                # Fewer words than any period.
                words = (1 + step % 2) * signature.step
                cases.append(Case(signature.flushed("row"), 3, 2, words, stride))
    check([fitted(case) for case in cases], hardware, inlined=False)


def has_loop(signature: KernelSignature, isa: Isa) -> bool:
    """Whether loops that are not left to LLVM fit the registers, if it has such."""
    passes = body_of(signature, isa).passes
    return not signature.coupled or all(fits(signature, one.word, isa) for one in passes)


def fitted(case: Case) -> Case:
    """With a window that the counters have room for."""
    signature = case.signature
    if signature.flush_period == 0:
        return replace(case, signature=signature.flushed("none"))
    if case.width * case.words <= signature.flush_period:
        return case
    return replace(case, signature=signature.flushed("chunk"))


@EVERY
def test_a_plan_among_the_planes_of_others(hardware: Hardware) -> None:
    """Planes and sums are found where they are stored, whatever else is."""
    skip_unless_runnable(hardware)
    cases = []
    for plan, other in NEIGHBOURS:
        stored = stored_by(other).joined(stored_by(plan))
        assert stored != stored_by(plan)
        cases.append(Case(popcount(hardware, plan, rows=2).reading(stored), 2, 2, 1))
    check(cases, hardware)


@EVERY
def test_one_plan_with_counters_that_overflow_is_wrong(hardware: Hardware) -> None:
    """The tests above would notice: a period one too long gives other sums."""
    skip_unless_runnable(hardware)
    isa = isa_of(hardware)
    signatures = [of_plan(hardware, FULL, 1), *narrow(hardware, PROBLEMS[-1])]
    # Of steps of other lengths half adders make fewer counts than there is room for.
    steps = [words for words in steps_of(FULL, isa) if words.bit_count() == 1]
    signatures += [popcount(hardware, FULL, words=words) for words in steps]
    cases = [filled(s, "window") for s in signatures if s.flush_period]
    if not cases:
        pytest.skip("never flushes its counters")
    longer = [replace(case, words=case.words + case.signature.step) for case in cases]
    library = compile_cases(longer, hardware)
    for case in longer:
        pairs = [case.full(*pair) for pair in case.extremes]
        assert any(
            not np.array_equal(sums_of(case, library, *pair), expected_sums(case, *pair))
            for pair in pairs
        ), case


def test_two_products_come_before_their_sums() -> None:
    """LLVM would add each at once."""
    products = widened_products(isa_of(AVX512BW))
    assert products is not None
    signature = replace(mac8(AVX512BW, 12, 2), products=products)
    text = MicroKernel(signature, isa_of(AVX512BW)).text()
    lines = assembly({signature.name: text}, 4, AVX512BW, (1, 1000, 0, 4096, 0, 8, 1, 0))
    found = re.findall(r"\t(vpmaddwd|vpaddd)\t", "\n".join(lines[signature.name]))
    assert len(found) >= 2 * signature.rows * 2
    assert found == ["vpmaddwd", "vpmaddwd", "vpaddd", "vpaddd"] * (len(found) // 4)
