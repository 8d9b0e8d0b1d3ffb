"""Compiled micro-kernels compute what their term plans mean, on every instruction set."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hw.isa import ISAS, isa_of
from hw.profile import Hardware
from stages.qnn.signature import BLOCK, Flush
from stages.qnn.terms import TermPlan
from stages.synthesizing.microkernel import MicroKernel
from tests.stages.synthesizing.bodies import Case, compile_cases, expected_sums, sums_of
from tests.stages.synthesizing.plans import PLANS, mac8, plan_named, popcount
from tests.targets import EVERY, PROFILES, skip_unless_runnable

FLUSHES: tuple[Flush, ...] = ("window", "row", "chunk")
SOME_PLANS = [
    plan_named("xor1", 1, 1, "bipolar"),
    plan_named("mix3", 2, 2, "bipolar"),
    plan_named("and4", 2, 2, "signed"),
    plan_named("choose_w6", 3, 3, "signed"),
    plan_named("choose_a2", 3, 1, "unipolar"),
    plan_named("choose_w6", 3, 3, "bipolar"),
]
FULL = plan_named("and4", 2, 2, "unipolar")
# name := family "_" plan "_" tile "_" flush "_" isa, as stages/qnn/signature.py has it.
NAME = re.compile(
    r"(popcount_(and|xor)_a[1-3]w[1-3]s?|mac8_dot[124])"
    r"_[1-9]\d*x[1-9]\d*_(window|row|chunk|none)"
    r"_(sse2|avx2|avx512bw|avx512vpopcntdq|neon_aarch64|neon_armv7)"
)


def tiles(hardware: Hardware) -> list[int]:
    """Vectors of channels that a tile may have."""
    lanes = isa_of(hardware).lanes
    return [vectors for vectors in (1, 2, 4, 8) if vectors * lanes <= BLOCK]


def flushed(hardware: Hardware, plan: TermPlan, flush: Flush, rows: int) -> Case:
    """A case whose counters reach their limit, and would overflow if emptied any later."""
    vectors = tiles(hardware)[rows % len(tiles(hardware))]
    if not isa_of(hardware).counts_bytes:
        return Case(popcount(hardware, plan, "none", rows, vectors), 2, 1, 40)
    signature = popcount(hardware, plan, flush, rows, vectors)
    period = signature.flush_period
    if flush == "window":
        return Case(signature, 1, 1, period)
    if flush == "row":
        return Case(signature, 3, 1, period)
    return Case(signature, 2, 1, 2 * period + 3)


def check(cases: list[Case], hardware: Hardware) -> None:
    library = compile_cases(cases, hardware)
    rng = np.random.default_rng(len(cases))
    for case in cases:
        for kind in ("high", "low", "random"):
            data, weights = case.levels(kind, rng)
            found = sums_of(case, library, data, weights)
            expected = expected_sums(case, data, weights)
            np.testing.assert_array_equal(found, expected, f"{case} {kind}")


@EVERY
def test_counters_are_emptied_before_they_overflow(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    flushes = FLUSHES if isa_of(hardware).counts_bytes else FLUSHES[:1]
    check([flushed(hardware, FULL, flush, 1) for flush in flushes], hardware)


@EVERY
def test_term_plans(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    check([Case(popcount(hardware, plan, rows=2), 3, 1, 1) for plan in SOME_PLANS], hardware)


@EVERY
def test_products_of_bytes_at_their_extremes(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    last = tiles(hardware)[-1]
    check([Case(mac8(hardware, 1), 3, 3, 16), Case(mac8(hardware, 3, last), 2, 3, 5, 2)], hardware)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("flush", FLUSHES)
def test_every_plan_with_every_flush(hardware: Hardware, flush: Flush) -> None:
    skip_unless_runnable(hardware)
    cases = [flushed(hardware, plan, flush, 1 + n % 3) for n, plan in enumerate(PLANS)]
    check(cases, hardware)


@pytest.mark.slow
@EVERY
def test_every_tile(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    cases = []
    for rows in range(1, 9):
        for vectors in tiles(hardware):
            if rows * vectors > isa_of(hardware).registers:
                continue
            stride = 1 + rows % 2
            plan = SOME_PLANS[rows % len(SOME_PLANS)]
            cases.append(Case(popcount(hardware, plan, None, rows, vectors), 3, 3, 1, stride))
            cases.append(Case(mac8(hardware, rows, vectors), 3, 2, 3, stride))
    check(cases, hardware)


@EVERY
def test_one_plan_with_counters_that_overflow_is_wrong(hardware: Hardware) -> None:
    """The tests above would notice: a period one too long gives other sums."""
    skip_unless_runnable(hardware)
    if not isa_of(hardware).counts_bytes:
        pytest.skip("counts whole words")
    case = flushed(hardware, FULL, "window", 1)
    longer = replace(case, words=case.words + 2)
    library = compile_cases([longer], hardware)
    data, weights = longer.levels("high", np.random.default_rng(0))
    wrong = sums_of(longer, library, data, weights)
    assert not np.array_equal(wrong, expected_sums(longer, data, weights))


def test_names_follow_the_grammar_and_tell_bodies_apart() -> None:
    found: dict[str, str] = {}
    for hardware in PROFILES:
        signatures = [mac8(hardware, rows, v) for rows in (1, 8) for v in tiles(hardware)]
        flushes = FLUSHES if isa_of(hardware).counts_bytes else ("none",)
        signatures += [popcount(hardware, p, f, 1) for p in PLANS for f in flushes]
        for signature in signatures:
            name = signature.name
            assert NAME.fullmatch(name), name
            assert name.isidentifier() and name.isascii()
            text, _ = MicroKernel(signature, isa_of(hardware)).text()
            assert f"@{name}(" in text
            assert found.setdefault(name, text) == text
    for isa in ISAS:
        bodies = [text.split("(", 1)[1] for name, text in found.items() if name.endswith(f"_{isa}")]
        assert len(set(bodies)) == len(bodies) > len(PLANS)


def test_a_plan_without_terms_has_no_period() -> None:
    assert flush_period(()) == 0
