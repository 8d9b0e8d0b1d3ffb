"""Bodies of products of matrices: two pixels by two output channels an instruction (Arm's I8MM).

USMMLA and SMMLA multiply a register of eight bytes of each of two pixels by one of eight weights of
each of two output channels, and add the four sums to a register:

    c[m][n] = [p0 * w0, p0 * w1, p1 * w0, p1 * w1]

That is twice as many products as a dot product of four bytes has. What it takes beside them is to
join the channels of two pixels, half a register of each (ZIP1, ZIP2), which serves all output
channels of a tile; and to put the sums of a pixel side by side when a tile is done, the same way.
"""

from __future__ import annotations

from hw.isa import Dot, Isa, Operation
from stages.kernels.families import MatrixDots, Signed, SignedMatrixDots
from stages.kernels.operand_storage import BYTE_BITS, WORD_BYTES
from stages.kernels.signature import KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.vector_program import Program, Register

WORDS = (2, 4)
"""Words of a pixel that are loaded at a time: half a register of them, or all."""
HALVES = (Operation.LOW_HALVES_8, Operation.HIGH_HALVES_8)
SUMS = (Operation.LOW_HALVES_32, Operation.HIGH_HALVES_32)


def matrix_dots(isa: Isa, activation_bits: int) -> list[MatrixDots | SignedMatrixDots]:
    """Ways to multiply matrices of bytes, for levels of so many bits."""
    levels = BYTE_BITS if activation_bits == BYTE_BITS else BYTE_BITS - 1
    return [
        SignedMatrixDots(dot.group, levels, words)
        if dot.is_signed
        else MatrixDots(dot.group, words)
        for dot in _matrices(isa)
        for words in WORDS
    ]


def matrix_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of products of matrices: a step is all words that are loaded at a time."""
    products, pixels = signature.products, signature.pixels
    assert isinstance(products, MatrixDots | SignedMatrixDots)
    is_signed = isinstance(products, Signed)
    row = next(isa[dot.operation] for dot in _matrices(isa) if dot.is_signed == is_signed)
    counter, kind = row.operands[:2]
    program = Program(part=kind.bytes)
    parts = range(products.words * WORD_BYTES // products.group)
    joined: dict[tuple[int, int], Register] = {}
    for m in range(signature.rows // pixels):
        both = [program.input(f"a0.{pixels * m + pixel}", kind) for pixel in range(pixels)]
        for part in parts:
            joined[part, m] = program.apply(isa[HALVES[part]], *both)
    tile = [
        (m, n) for n in range(signature.channels // pixels) for m in range(signature.rows // pixels)
    ]
    sums = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in tile}
    for part in parts:
        for m, n in tile:
            w = program.input(f"w{part}.{n}", kind)
            sums[m, n] = program.apply(row, sums[m, n], joined[part, m], w)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in sorted(sums.items())}
    return Body((Pass(1, program, 0, True),), _flush_program(isa), pixels=pixels, distance=pixels)


def _matrices(isa: Isa) -> list[Dot]:
    return [dot for dot in isa.dots if dot.pixels > 1]


def _flush_program(isa: Isa) -> Program:
    """Two counters as sums of four output channels, of one pixel and then of the next."""
    kind = isa[SUMS[0]].operands[0]
    program = Program(part=isa.bytes)
    both = [program.input(f"c{number}", kind) for number in range(2)]
    program.outputs = {"s0": sum((program.apply(isa[each], *both) for each in SUMS), ())}
    return program
