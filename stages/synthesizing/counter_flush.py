"""Flushing counters: bytes of counts, several to a channel or one, become lanes of 32 bits.

Of packed words of 32 bits a lane has one. Narrower words leave a register with more channels than
it has lanes of 32 bits, so that it becomes several; wider ones fewer, so that several become one by
pairwise additions: the reduction along the lanes that kernels with the reduction axis there end
with (Cowan et al., CGO 2020, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa, Operation, Vector
from stages.kernels.operand_storage import BYTE_BITS, WORD_BITS
from stages.synthesizing.vector_program import Program, Register

WORDS = (8, 16, 64, 128)
"""Bits of packed words that are not those of a lane."""
_NEEDED = {
    8: (Operation.WIDEN_8, Operation.WIDEN_16),
    16: (Operation.WIDEN_16,),
    64: (Operation.PAIR_ADD_16,),
    128: (Operation.PAIR_ADD_16,),
}


def word_widths(isa: Isa) -> list[int]:
    """Packed words that a set can flush the counters of, but those of a lane: bytes are counted in,
    and no word is wider than a register."""
    if not isa.counts_bytes:
        return []
    return [
        bits
        for bits in WORDS
        if bits <= BYTE_BITS * isa.bytes and all(each in isa for each in _NEEDED[bits])
    ]


def registers_of(channels: int, word_bits: int, isa: Isa) -> int:
    """Registers that the packed words of so many channels fill; 0 if they do not."""
    return channels * word_bits // (BYTE_BITS * isa.bytes)


def flush_program(
    isa: Isa, counter: Vector, signed: bool = False, word_bits: int = WORD_BITS
) -> Program:
    """Counters `c0` … of neighbouring channels as lanes of 32 bits `s0` …"""
    together = max(1, word_bits // WORD_BITS)
    program = Program(part=isa.bytes // 2 if word_bits < WORD_BITS else isa.bytes)
    counts = [program.input(f"c{n}", counter) for n in range(together)]
    sums = totals(program, isa, counts, counter.bits, word_bits, signed)
    program.outputs = {f"s{n}": register for n, register in enumerate(sums)}
    return program


def totals(
    program: Program,
    isa: Isa,
    counts: Sequence[Register],
    bits: int,
    word_bits: int = WORD_BITS,
    signed: bool = False,
) -> list[Register]:
    """Registers of counts in lanes of `bits` bits, as many as make whole ones of 32 bits."""
    if word_bits == WORD_BITS:
        return [widened(program, isa, counts[0], bits, signed)]
    if word_bits < WORD_BITS:
        return _spread(program, isa, counts[0], word_bits)
    sums = [program.apply(isa[Operation.PAIR_WIDEN_8], one) for one in counts]
    while len(sums) > 1:
        pairs = zip(sums[0::2], sums[1::2], strict=True)
        sums = [program.apply(isa[Operation.PAIR_ADD_16], *pair) for pair in pairs]
    return [program.apply(isa[Operation.PAIR_WIDEN_16], sums[0])]


def _spread(program: Program, isa: Isa, count: Register, word_bits: int) -> list[Register]:
    """A register of more channels than lanes as several."""
    if word_bits == BYTE_BITS:
        halves = [program.apply(isa[Operation.WIDEN_8], (half,)) for half in count]
    else:
        halves = [program.apply(isa[Operation.PAIR_WIDEN_8], count)]
    return [program.apply(isa[Operation.WIDEN_16], (part,)) for half in halves for part in half]


def widened(
    program: Program, isa: Isa, value: Register, bits: int, signed: bool = False
) -> Register:
    """Counters of `bits` bits as 32-bit lanes, by pairwise additions."""
    pair = Operation.PAIR_WIDEN_SIGNED_8 if signed else Operation.PAIR_WIDEN_8
    while bits < WORD_BITS:
        value = program.apply(isa[pair.for_lanes(bits)], value)
        bits *= 2
    return value
