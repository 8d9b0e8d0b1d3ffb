"""Packed words of all widths: what kernels of them compute, what is proved, what is a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from hw.isa import isa_of
from hw.profile import Hardware
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.packing import pack_weights, unpack_weights
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK, KernelSignature
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.counter_flush import WORDS, word_widths
from stages.synthesizing.enumeration import candidates_for
from stages.synthesizing.sketches import signatures_for
from stages.synthesizing.step_loops import fits
from stages.synthesizing.word_variants import with_words
from tests.stages.synthesizing.bodies import (
    FLUSHES,
    compile_cases,
    expected_sums,
    filled,
    same,
    sums_of,
)
from tests.stages.synthesizing.plans import plan_named
from tests.targets import AARCH64, ARMV7, AVX2, AVX512VPOPCNTDQ, skip_unless_runnable

ARM = pytest.mark.parametrize("hardware", [AARCH64, ARMV7], ids=lambda item: item.name)
PLANS = [
    plan_named("xor1", 1, 1, "bipolar"),
    plan_named("mix3", 2, 2, "bipolar"),
    plan_named("xor4", 2, 2, "bipolar"),
    plan_named("and4", 2, 2, "signed"),
    plan_named("choose_w6", 3, 3, "signed"),
]


def kernels(hardware: Hardware) -> Iterator[KernelSignature]:
    """A few tiles of every width and plan, coupled and not."""
    isa = isa_of(hardware)
    for plan in PLANS:
        problem = Problem(plan.activation_bits, plan.weight_bits, plan.weights)
        tiles = [s for s in signatures_for(problem, isa) if s.plan == plan and s.rows < 4]
        for bits in word_widths(isa):
            for coupled in (False, True):
                found = [
                    other
                    for tile in tiles
                    if tile.coupled == coupled and tile.channels * bits % (8 * isa.bytes) == 0
                    for other in with_words(tile, isa, bits)
                    if not coupled
                    or all(fits(other, p.word, isa) for p in body_of(other, isa).passes)
                ]
                yield from {s.name: s for s in found[:: max(1, len(found) // 2)]}.values()


@ARM
def test_words_of_every_width(hardware: Hardware) -> None:
    """Counters reach their limit, on windows of several rows and strides."""
    skip_unless_runnable(hardware)
    cases = []
    for number, signature in enumerate(kernels(hardware)):
        case = filled(signature, FLUSHES[number % 3])
        cases.append(replace(case, stride=1 + number % 2))
    assert {case.signature.word_bits for case in cases} == {*WORDS}
    library = compile_cases(cases, hardware)
    rng = np.random.default_rng(7)
    for case in cases:
        for data, weights in (*(case.full(*pair) for pair in case.extremes), case.random(rng)):
            same(sums_of(case, library, data, weights), expected_sums(case, data, weights), case)


@ARM
def test_every_width_is_proved_and_no_longer_period_can_be(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    for signature in kernels(hardware):
        body = body_of(signature, isa)
        prove(signature, isa, body)
        longer = replace(signature, flush_period=signature.flush_period + signature.step)
        with pytest.raises(ProofError, match="bits holds"):
            prove(longer, isa, body)


def test_weights_come_back_from_words_of_every_width() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for signature in kernels(AARCH64):
        assert signature.plan is not None
        low = -(1 << signature.plan.weight_bits - 1) if signature.plan.weights == "signed" else 0
        high = low + (1 << signature.plan.weight_bits)
        q = rng.integers(low, high, (BLOCK + 1, 3, 1, WORD_BITS * signature.step), np.int16)
        packed = pack_weights(signature, q)
        assert np.array_equal(unpack_weights(signature, packed, q.shape), q)
        seen.add(packed.tobytes())
    assert len(seen) > 20


def test_a_word_holds_neighbouring_channels_of_one_output() -> None:
    """Channel `c` is bit `c mod width` of word `c div width`, whatever the width."""
    plan = plan_named("xor1", 1, 1, "bipolar")
    tile = next(
        s for s in signatures_for(Problem(1, 1, "bipolar"), isa_of(AARCH64)) if s.plan == plan
    )
    q = np.random.default_rng(2).integers(0, 2, (BLOCK, 1, 1, 256), np.int16)
    for bits in WORDS:
        signature = next(with_words(replace(tile, channels=16), isa_of(AARCH64), bits))
        packed = np.unpackbits(pack_weights(signature, q).view(np.uint8), bitorder="little")
        words = packed.reshape(BLOCK // 16, 256 // bits, 16, bits)
        for output, channel in ((0, 0), (5, 77), (17, 200), (31, 255)):
            word = words[output // 16, channel // bits, output % 16]
            assert word[channel % bits] == q[output, 0, 0, channel]


def test_all_widths_are_candidates_where_bytes_are_counted() -> None:
    """The instruction sets of x86 have no rows that flush other words: nothing changes there."""
    for hardware, widths in ((AARCH64, {*WORDS}), (ARMV7, {*WORDS}), (AVX2, set())):
        assert {*word_widths(isa_of(hardware))} == widths
    assert not word_widths(isa_of(AVX512VPOPCNTDQ))
    for bits in ((1, 1), (2, 2)):
        candidates = candidates_for(Problem(*bits, "bipolar"), AARCH64)
        found = {o.signature.word_bits for o in candidates if o.signature.plan is not None}
        assert found == {*WORDS, WORD_BITS}
