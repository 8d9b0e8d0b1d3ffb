"""Bodies of byte pairs: two products of signed bytes are added up in 16 bits, and pairs of those in
32 (the Arm kernels of TVM's RFC on quantized convolutions for ARMv8: SMULL, SMLAL, SADALP).

A word of a pixel stands twice in half a register, beside the weights of two output channels. Its
four products a channel are added to those of the next word, if there is one, before they are
widened. So a counter has two lanes an output channel, which are added up when it is flushed:

    c[2 n + h] += pairwise(a[k] * w[k][2 n + h] + a[k + 1] * w[k + 1][2 n + h])

Two products fit 16 bits, as no weight is -128.
"""

from __future__ import annotations

from hw.isa import Isa, Operation
from stages.kernels.families import BytePairs
from stages.kernels.operand_storage import BYTE_BITS
from stages.kernels.signature import KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.vector_program import Program, Register

GROUP = 4
WORDS = (1, 2, 3, 4)
"""Words of a pixel that are loaded at a time."""
OPERATIONS = (
    Operation.MULTIPLY_8,
    Operation.MAC_16,
    Operation.PAIR_WIDEN_ADD_SIGNED_16,
    Operation.PAIR_ADD_32,
)
"""Rows that it is made of (SMULL, SMLAL, SADALP, ADDP)."""
AHEAD = 4
"""Products under way before the first of them are widened: a core that runs in order waits less."""


def byte_pairs(isa: Isa, activation_bits: int) -> list[BytePairs]:
    """Ways to add up byte pairs, for levels of so many bits."""
    if not all(each in isa for each in OPERATIONS):
        return []
    levels = BYTE_BITS if activation_bits == BYTE_BITS else BYTE_BITS - 1
    return [BytePairs(GROUP, levels, words) for words in WORDS]


def pairs_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of byte pairs: a step is all words that are loaded at a time."""
    products = signature.products
    assert isinstance(products, BytePairs)
    multiply, more, widen, _ = (isa[each] for each in OPERATIONS)
    kind, counter = multiply.operands[0], widen.operands[0]
    program = Program(part=kind.bytes)
    halves = range(2 * signature.channels // isa.lanes)
    tile = [(m, n) for n in halves for m in range(signature.rows)]
    sums = {place: program.input(f"c{place[0]}.{place[1]}", counter) for place in tile}
    for word in range(0, products.words, 2):
        parts = range(word, min(word + 2, products.words))
        for first in range(0, len(tile), AHEAD):
            places = tile[first : first + AHEAD]
            found: dict[tuple[int, int], Register] = {}
            for part in parts:
                for m, n in places:
                    a = program.input(f"a{part}.{m}", kind)
                    w = program.input(f"w{part}.{n}", kind)
                    before = () if part == parts[0] else (found[m, n],)
                    found[m, n] = program.apply(more if before else multiply, *before, a, w)
            for place in places:
                sums[place] = program.apply(widen, sums[place], found[place])
    program.outputs = {f"c{m}.{n}": sums[m, n] for m in range(signature.rows) for n in halves}
    return Body((Pass(1, program, 0, True),), _flush_program(isa))


def _flush_program(isa: Isa) -> Program:
    """Two counters as sums of four output channels."""
    add = isa[Operation.PAIR_ADD_32]
    program = Program(part=isa.bytes)
    both = [program.input(f"c{half}", add.operands[0]) for half in range(2)]
    program.outputs = {"s0": program.apply(add, *both)}
    return program
