"""Popcount kernels on bits that are packed otherwise than in words of a lane, planes outermost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hw.core_costs import CoreCosts
from hw.isa import Isa
from stages.kernels.operand_storage import BYTE_BITS, WORD_BITS
from stages.kernels.signature import BLOCK, COUPLE, KernelSignature, stored_by
from stages.synthesizing.body import Body
from stages.synthesizing.counter_flush import word_widths
from stages.synthesizing.coupled_body import coupled_steps
from stages.synthesizing.predicted_cost import priced_candidate, rank

BYTE_MAX = 255
MOST_OTHERS = 2
"""Tiles of a method whose packed words are not those of a lane: it takes the place of one whose
are, which is a candidate for every number of pixels."""


def in_bytes(signature: KernelSignature) -> KernelSignature:
    """A kernel of bit planes with counters of bytes instead, which are flushed in time."""
    assert signature.plan is not None
    counts = BYTE_MAX // (BYTE_BITS * signature.plan.widest) * (COUPLE if signature.coupled else 1)
    words = counts * signature.word_bits // WORD_BITS
    period = words // signature.words * signature.words
    return replace(signature, flush="window", flush_period=period)


def other_words(
    bodies: Mapping[KernelSignature, Body], isa: Isa, costs: CoreCosts
) -> Iterator[KernelSignature]:
    """The cheapest plan, coupled and not, in packed words of all other widths, and with planes
    inside pixels, on sets that have a choice of words (Arm).

    Tiles are those of most promise of as many registers: these fit alike, whatever their words.
    """
    widths = word_widths(isa)
    if not widths:
        return
    planes = [s for s in bodies if s.plan is not None and (s.coupled or s.words == 1)]
    for coupled in (False, True):
        alike = [s for s in planes if s.coupled == coupled and s.words_per_step in (1, COUPLE)]
        ranks = {s: rank(priced_candidate(s, bodies[s], isa, costs, 0.0)) for s in alike}
        ordered = sorted(alike, key=ranks.__getitem__)
        tiles = [s for s in ordered if s.plan == ordered[0].plan]
        for bits in (WORD_BITS, *widths):
            scaled = _scaled(tiles, isa, bits)
            for tile in scaled[: MOST_OTHERS + 1] if bits != WORD_BITS else ():
                yield from with_words(tile, isa, bits)
            for tile in scaled[:1] if bits >= WORD_BITS else ():
                yield from _with_planes_inside(tile, isa, bits)


def _scaled(tiles: Sequence[KernelSignature], isa: Isa, bits: int) -> list[KernelSignature]:
    """Tiles of as many registers of packed words of so many bits, of those that channels fill."""
    channels = [tile.channels * WORD_BITS // bits for tile in tiles]
    return [
        replace(tile, channels=count)
        for tile, count in zip(tiles, channels, strict=True)
        if count % isa.lanes == 0 and count <= BLOCK
    ]


def _with_planes_inside(tile: KernelSignature, isa: Isa, bits: int) -> Iterator[KernelSignature]:
    """A tile in packed words of so many bits, on planes that lie inside a pixel as whole words do,
    of a plan of several planes, or of one and sums."""
    assert tile.plan is not None
    stored = stored_by(tile.plan, bits // WORD_BITS)
    if stored.inner:
        yield from (one.reading(stored) for one in with_words(tile, isa, bits))


def with_words(tile: KernelSignature, isa: Isa, bits: int) -> Iterator[KernelSignature]:
    """A tile in packed words of so many bits, of whatever steps there are."""
    assert tile.plan is not None
    once = [max(1, bits // WORD_BITS)]
    for words in coupled_steps(tile.plan, isa, bits) if tile.coupled else once:
        other = in_bytes(replace(tile, words=words, word_bits=bits))
        if other.flush_period:
            yield other
