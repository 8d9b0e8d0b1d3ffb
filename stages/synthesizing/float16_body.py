"""Bodies of products of float16 by lanes, and how counters of float16 are flushed.

A counter is added up in 16 bits for `FLOAT16_TERMS` products, then in float32. A register of
counters holds eight of them. In the bodies of `bodies.py` these are two of each of four output
channels, for both channels of a word. In those here they are one of each of eight output channels:
a register has eight channels of a pixel, and FMLA multiplies by one of its lanes, so that no word
is brought into all lanes first. The channels of a pixel alternate between two registers of
counters:

    c[n][k mod 2] += a[k] * w[k][8 n .. 8 n + 7]

Either way two registers are added up in 16 bits before they are widened, as conversions are slow
(Cortex-A76: two cycles each, in one of two pipes).
"""

from __future__ import annotations

from collections.abc import Iterator

from hw.isa import Isa, Operation
from stages.kernels.families import FloatDots
from stages.kernels.signature import KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.vector_program import Program, Register

WORDS = 4
"""Words of a pixel in a register."""
ALTERNATING = 2
"""Registers of counters of the same output channels."""
_WIDENED = Operation.FLOAT16_WIDEN_LOW, Operation.FLOAT16_WIDEN_HIGH


def float16_products(isa: Isa, channels: int) -> Iterator[FloatDots]:
    """Ways to multiply float16 in tiles of so many output channels."""
    if Operation.FLOAT16_MAC in isa:
        yield FloatDots(2, "float16")
        if channels % isa[Operation.FLOAT16_MAC].result.lanes == 0:
            yield FloatDots(1, "float16", WORDS)


def float16_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of products by lanes: a step is all words of a register of a pixel."""
    row = isa[Operation.FLOAT16_MAC]
    program = Program(part=isa.bytes)
    tile = [
        (m, n) for m in range(signature.rows) for n in range(signature.channels // row.result.lanes)
    ]
    sums: dict[tuple[int, int, int], Register] = {
        (m, n, parity): program.input(f"c{m}.{ALTERNATING * n + parity}", row.operands[0])
        for m, n in tile
        for parity in range(ALTERNATING)
    }
    for part in range(signature.step * signature.channels_per_word):
        parity = part % ALTERNATING
        for m, n in tile:
            a = program.input(f"a{part}.{m}", row.operands[1])
            w = program.input(f"w{part}.{n}", row.operands[2])
            sums[m, n, parity] = program.apply(row, sums[m, n, parity], a, w)
    program.outputs = {
        f"c{m}.{ALTERNATING * n + t}": register for (m, n, t), register in sums.items()
    }
    return Body((Pass(1, program, 0, True),), _flush_program(isa))


def _flush_program(isa: Isa) -> Program:
    """Counters of the same eight output channels as two registers of float32."""
    program = Program(part=isa.bytes)
    row = isa[Operation.FLOAT16_ADD]
    both = program.apply(
        row, *(program.input(f"c{t}", row.operands[0]) for t in range(ALTERNATING))
    )
    program.outputs = {f"s{i}": program.apply(isa[p], both) for i, p in enumerate(_WIDENED)}
    return program


def flush_of_pairs(isa: Isa, together: int) -> Program:
    """Counters, two of each output channel, as float32: of one register, or of two `together`."""
    add = isa[Operation.FLOAT16_PAIR_ADD]
    program = Program(part=isa.bytes)
    counters = [program.input(f"c{i}", add.operands[0]) for i in range(together)]
    both = program.apply(add, counters[0], counters[-1])
    widening = _WIDENED[:together]
    program.outputs = {f"s{i}": program.apply(isa[each], both) for i, each in enumerate(widening)}
    return program
