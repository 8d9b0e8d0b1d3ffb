"""Kernels that look products up: layouts, compiled sums beside their meaning, proofs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.isa import isa_of
from hw.profile import Hardware
from stages.kernels.lut import GROUP, additions, pack_lut, unpack_lut
from stages.kernels.packing import pack_weights, raw_sums, unpack_weights
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK, Flush, KernelSignature
from stages.kernels.terms import products
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.sketches import signatures_for
from tests.compiled import Library
from tests.stages.synthesizing.bodies import Case, compile_cases, expected_sums, same
from tests.stages.synthesizing.plans import PROBLEMS
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
TARGETS = (AVX2, AVX512BW, AARCH64)
WITH_TABLES = pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
FLUSHES: tuple[Flush, ...] = ("window", "row", "chunk")
NAME = re.compile(
    r"lookup_a[1-3]w[1-3]_(unipolar|bipolar|signed)(_by[23])?_([1-8]|1[024])x(16|32)_(window|row|chunk)"
    r"_(avx2|avx512bw|neon_aarch64)"
)


def signatures(problem: Problem, hardware: Hardware) -> list[KernelSignature]:
    """Every tile of a problem."""
    return [s for s in signatures_for(problem, isa_of(hardware)) if s.lut is not None]


def tile(
    problem: Problem, hardware: Hardware, rows: int = 2, channels: int = BLOCK, words: int = 1
) -> KernelSignature:
    size = rows, channels, words
    return next(s for s in signatures(problem, hardware) if (s.rows, s.channels, s.step) == size)


def steps(problem: Problem, hardware: Hardware) -> list[KernelSignature]:
    """A tile of one pixel with every number of words a step."""
    return [s for s in signatures(problem, hardware) if (s.rows, s.channels) == (1, BLOCK)]


def stored_range(problem: Problem) -> tuple[int, int]:
    """The smallest and the largest stored weight."""
    half = 1 << (problem.weight_bits - 1)
    return (-half, half - 1) if problem.weights == "signed" else (0, 2 * half - 1)


@dataclass(frozen=True)
class LookupCase(Case):
    """A case whose levels are those of a problem."""

    problem: Problem = PROBLEMS[0]

    def levels(self, kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
        """A strip of levels, and weights: the largest, the smallest, or random ones."""
        columns = (self.signature.rows - 1) * self.stride + self.width + 1
        channels = self.words * self.signature.channels_per_word
        top = (1 << self.problem.activation_bits) - 1
        low, high = stored_range(self.problem)
        data, weights = (self.height, columns, channels), (BLOCK, self.height, self.width, channels)
        if kind == "random":
            return rng.integers(0, top + 1, data), rng.integers(low, high + 1, weights)
        # All bits of a signed weight are set in -1.
        extreme = -1 if self.problem.weights == "signed" and kind == "high" else high
        return np.full(data, top), np.full(weights, extreme if kind == "high" else low)


def sums_of(case: LookupCase, library: Library, data: Array, weights: Array) -> Array:
    """What the compiled body computes: int32 [rows, 32]."""
    tables = case.signature.lut
    assert tables is not None
    stored = pack_lut(data, tables.activation_bits, tables.is_balanced)
    pixel, row = stored.shape[2], stored.shape[1] * stored.shape[2]
    shape = np.array([case.height, case.width * case.words, row, case.stride * pixel, 0], np.int32)
    result = np.zeros((case.signature.rows, BLOCK), np.int32)
    for number, block in enumerate(pack_weights(case.signature, weights)):
        sums = np.zeros((case.signature.rows, BLOCK), np.int32)
        library.call(case.name, stored, block, sums, shape)
        first = number * case.signature.channels
        result[:, first : first + case.signature.channels] = sums[:, : case.signature.channels]
        assert not sums[:, case.signature.channels :].any()
    return result


def check(cases: list[LookupCase], hardware: Hardware) -> None:
    library = compile_cases(cases, hardware)
    rng = np.random.default_rng(len(cases))
    for case in cases:
        for kind in ("high", "low", "random"):
            data, weights = case.levels(kind, rng)
            found = sums_of(case, library, data, weights)
            same(found, expected_sums(case, data, weights), case, kind)


@given(st.integers(1, 3), st.booleans(), st.integers(1, 70), st.integers(0, 1 << 30))
def test_tables_are_unpacked_to_what_they_were_packed_from(
    bits: int, balanced: bool, channels: int, seed: int
) -> None:
    levels = np.random.default_rng(seed).integers(0, 1 << bits, (2, 3, channels))
    packed = pack_lut(levels, bits, balanced)
    assert packed.shape == (2, 3, 4 * (channels + -channels % 32))
    unpacked = unpack_lut(packed, balanced)
    np.testing.assert_array_equal(unpacked[..., :channels], levels)
    assert not unpacked[..., channels:].any()


@given(st.sampled_from([False, True]), st.integers(0, 15), st.integers(0, 1 << 30))
def test_an_entry_adds_up_what_the_bits_of_its_number_say(
    balanced: bool, entry: int, seed: int
) -> None:
    levels = np.random.default_rng(seed).integers(0, 8, 32)
    tables = pack_lut(levels, 3, balanced).reshape(8, 16)
    added = additions(3, balanced)
    for group, table in enumerate(tables):
        own = levels[GROUP * group :][:GROUP]
        assert table[entry] == sum(added[entry >> c & 1, level] for c, level in enumerate(own))


@WITH_TABLES
@given(st.sampled_from(PROBLEMS), st.integers(1, 70), st.integers(1, 40), st.integers(0, 1 << 30))
def test_indices_are_unpacked_to_what_they_were_packed_from(
    hardware: Hardware, problem: Problem, outputs: int, channels: int, seed: int
) -> None:
    low, high = stored_range(problem)
    weights = np.random.default_rng(seed).integers(low, high + 1, (outputs, 2, 3, channels))
    for signature in {s.channels: s for s in signatures(problem, hardware)}.values():
        packed = pack_weights(signature, weights)
        assert packed.shape[1] == signature.weight_planes
        np.testing.assert_array_equal(unpack_weights(signature, packed, weights.shape), weights)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_sums_are_products_up_to_the_weights_alone(problem: Problem) -> None:
    signature = tile(problem, AVX2)
    assert signature.lut is not None
    signature.lut.residual()
    top = (1 << problem.activation_bits) - 1
    low, high = stored_range(problem)
    weights = np.arange(low, high + 1)[:, None]
    sums = raw_sums(signature, np.array([[0], [top]]), weights)
    table = products(problem.activation_bits, problem.weight_bits, problem.weights)
    values = table[:, weights[:, 0] & (len(table[0]) - 1)]
    np.testing.assert_array_equal(sums[1] - sums[0], values[top] - values[0])


@WITH_TABLES
def test_every_problem(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    cases = []
    for number, problem in enumerate(PROBLEMS):
        channels = {s.channels for s in signatures(problem, hardware)}
        chosen = sorted(channels)[number % len(channels)]
        signature = tile(problem, hardware, 1 + number % 3, chosen)
        cases.append(LookupCase(signature, 3, 2, 2, 1 + number % 2, problem=problem))
        cases += [
            LookupCase(s, 2, 2, 3 * s.step, problem=problem) for s in steps(problem, hardware)
        ]
    assert {case.signature.step for case in cases} == {1, 2, 3}
    check(cases, hardware)


@WITH_TABLES
def test_counters_are_emptied_before_they_overflow(hardware: Hardware) -> None:
    """Windows as long as the period allows: extreme levels fill the counters to their limit."""
    skip_unless_runnable(hardware)
    for problem in (Problem(3, 2, "bipolar"), Problem(2, 1, "unipolar")):
        cases = []
        for signature in steps(problem, hardware):
            period, step = signature.flush_period, signature.step
            assert period % step == 0
            shapes = {
                "window": (1, period),
                "row": (2, period),
                "chunk": (1, 2 * period + 3 * step),
            }
            cases += [
                LookupCase(signature.flushed(f), shapes[f][0], 1, shapes[f][1], problem=problem)
                for f in FLUSHES
            ]
        check(cases, hardware)


@WITH_TABLES
def test_counters_that_overflow_would_be_noticed(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    problem = Problem(3, 1, "unipolar")
    signature = tile(problem, hardware, rows=1)
    longer = LookupCase(signature, 1, 1, signature.flush_period + 2, problem=problem)
    data, weights = longer.levels("high", np.random.default_rng(0))
    found = sums_of(longer, compile_cases([longer], hardware), data, weights)
    assert not np.array_equal(found, expected_sums(longer, data, weights))


def test_names_follow_the_grammar_and_tell_bodies_apart() -> None:
    found: dict[str, str] = {}
    for hardware in TARGETS:
        for problem in PROBLEMS:
            for signature in signatures(problem, hardware)[:3]:
                assert NAME.fullmatch(signature.name), signature.name
                text = MicroKernel(signature, isa_of(hardware)).text()[0]
                assert f"@{signature.name}(" in text
                assert found.setdefault(signature.name, text) == text


@pytest.mark.parametrize("hardware", [SSE2, ARMV7], ids=lambda item: item.name)
def test_nothing_is_looked_up_without_an_instruction_for_it(hardware: Hardware) -> None:
    assert not signatures(Problem(2, 1, "bipolar"), hardware)


@pytest.mark.slow
@WITH_TABLES
def test_every_tile(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    problem = Problem(2, 2, "bipolar")
    cases = [
        LookupCase(s, 2, 3, s.step, 1 + s.rows % 2, problem=problem)
        for s in signatures(problem, hardware)
    ]
    check(cases, hardware)
