"""The body of a signature, whichever its family, and those that add up products lane by lane.

In the latter a 32-bit lane is one output channel, and counters go on from word to word, so that no
horizontal addition is needed before a counter is flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hw.isa import Isa, Operation, Vector
from stages.kernels.families import (
    BytePairs,
    Dots,
    FloatDots,
    PairedDots,
    Products,
    SignedDots,
    TransformedDots,
    WideDots,
)
from stages.kernels.operand_storage import BYTE_BITS, SPAN_LIMIT, WORD_BITS
from stages.kernels.signature import KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.byte_pairs_body import pairs_body
from stages.synthesizing.carry_save_body import carry_save_body
from stages.synthesizing.counter_flush import flush_program
from stages.synthesizing.coupled_body import coupled_body
from stages.synthesizing.float16_body import float16_body, flush_of_pairs
from stages.synthesizing.lut_body import lookup_body
from stages.synthesizing.matrix_body import matrix_body
from stages.synthesizing.popcount_body import popcount_body
from stages.synthesizing.tile_body import tiles_body
from stages.synthesizing.vector_program import Program, Register

__all__ = [
    "Body",
    "Pass",
    "body_of",
    "by_words",
    "dots_of_bytes",
    "narrow_products",
    "paired_products",
    "spanning_products",
    "step_of",
    "transformed_products",
    "widened_products",
]

_WORDS = (Operation.PRODUCTS_16, Operation.ADD_32)
"""Rows that add up two products in 32 bits (PMADDWD, PADDD), where there are two of them."""
_STEPS: dict[int, tuple[tuple[Operation, ...], ...]] = {
    8: ((Operation.MAC_8,),),
    16: ((Operation.MAC_16,), (Operation.PRODUCTS_8, Operation.ADD_16)),
    32: (_WORDS, (Operation.DOT,)),
}
"""Width of the lanes that products are added up in → rows that do it."""
_ELEMENTS: dict[str, tuple[tuple[Operation, ...], ...]] = {
    "int16": (_WORDS, (Operation.DOT_16,)),
    "float32": ((Operation.FLOAT_MAC,),),
    "bfloat16": ((Operation.BFLOAT16_DOT,),),
    "float16": ((Operation.FLOAT16_MAC,),),
}
"""What is multiplied, if not bytes → rows that add its products up."""
TOGETHER = 2
"""Products that follow one another before they are added. On a Zen 4, half of whose units multiply
and all of which add, 512 bits at a time take 0.85 of the time that they take one by one."""
PAIRED = (Operation.PRODUCTS_8, Operation.PAIR_WIDEN_SIGNED_16, Operation.ADD_32)
"""Rows that add up four products in 32 bits by way of 16 (PMADDUBSW, PMADDWD, PADDD)."""
WORDS = (1, 2, 4)
"""Words of a pixel in a register of four lanes."""
PAIRED_GROUP = 4
PAIRED_LIMIT = ((1 << 15) - 1) // (2 * 255)
"""The largest weight of which two, times 255, fit 16 bits."""


def body_of(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a signature, whichever its family."""
    if signature.is_tiled:
        return tiles_body(signature)
    if signature.coupled:
        return coupled_body(signature, isa)
    if signature.family == "popcount" and signature.word_bits == WORD_BITS and signature.step > 1:
        return carry_save_body(signature, isa)
    if isinstance(signature.products, BytePairs):
        return pairs_body(signature, isa)
    if isinstance(signature.products, FloatDots) and signature.multiplies_by_lane:
        return float16_body(signature, isa)
    if signature.pixels > 1:
        return matrix_body(signature, isa)
    if signature.products is not None:
        return products_body(signature, isa)
    bodies = {"popcount": popcount_body, "lookup": lookup_body}
    return bodies[signature.family](signature, isa)


def products_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of products: `group` neighbouring channels a step, of those in a word."""
    products = signature.products
    assert products is not None
    step = _step_for(products, isa)
    counter, a_kind, w_kind = step.kinds(isa)
    program = Program(part=min(kind.bytes for kind in (counter, a_kind, w_kind)))
    vectors = signature.channels // isa.lanes
    tile = [(m, n) for m in range(signature.rows) for n in range(vectors)]
    sums = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in tile}
    for part in range(signature.step * products.channels_per_word // products.group):
        for first in range(0, len(tile), TOGETHER):
            places = tile[first : first + TOGETHER]
            factors = [
                (program.input(f"a{part}.{m}", a_kind), program.input(f"w{part}.{n}", w_kind))
                for m, n in places
            ]
            totals = step.emit(program, isa, [sums[place] for place in places], factors)
            sums |= zip(places, totals, strict=True)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in sums.items()}
    if products.element == "float16":
        return Body((Pass(1, program, 0, True),), flush_of_pairs(isa, min(vectors, 2)))
    return Body((Pass(1, program, 0, True),), flush_program(isa, counter, signed=True))


def _step_for(products: Products, isa: Isa) -> _Step:
    if isinstance(products, PairedDots):
        return _Step(PAIRED)
    if isinstance(products, Dots | SignedDots):
        wanted = products.group, isinstance(products, SignedDots)
        for dot in isa.dots[1:]:
            if (dot.group, dot.is_signed) == wanted:
                return _Step((dot.operation,))
    step = _first(isa, _ELEMENTS.get(products.element, _STEPS[products.bits]))
    assert step is not None
    return step


@dataclass(frozen=True)
class _Step:
    """How products get into lanes of one width."""

    operations: tuple[Operation, ...]
    """Rows of the instruction set: one that multiplies and adds, or one each, others between."""

    def kinds(self, isa: Isa) -> tuple[Vector, Vector, Vector]:
        """Types of counters, activations and weights."""
        first = isa[self.operations[0]]
        if len(self.operations) == 1:
            return first.operands[0], first.operands[1], first.operands[2]
        return isa[self.operations[-1]].result, first.operands[0], first.operands[1]

    def emit(
        self,
        program: Program,
        isa: Isa,
        totals: Sequence[Register],
        factors: Sequence[tuple[Register, Register]],
    ) -> list[Register]:
        """Add the products of two registers each to others, which take every operation in turn."""
        first, last = isa[self.operations[0]], isa[self.operations[-1]]
        if len(self.operations) == 1:
            return [program.apply(last, t, a, w) for t, (a, w) in zip(totals, factors, strict=True)]
        values = [program.apply(first, a, w) for a, w in factors]
        for operation in self.operations[1:-1]:
            values = [program.apply(isa[operation], value) for value in values]
        waits = [values[-1]] * (len(values) - 1) + [None]
        return [
            program.apply(last, total, value, after=after)
            for total, value, after in zip(totals, values, waits, strict=True)
        ]


def step_of(isa: Isa, bits: int) -> _Step | None:
    """The step for lanes of `bits` bits, if the instruction set has one."""
    return _first(isa, _STEPS[bits])


def _first(isa: Isa, ways: Sequence[tuple[Operation, ...]]) -> _Step | None:
    return next((_Step(way) for way in ways if all(each in isa for each in way)), None)


def paired_products(isa: Isa) -> PairedDots | None:
    """Four products a lane by way of sums of two, where nothing multiplies four at once."""
    if isa.dot_group == PAIRED_GROUP or not all(each in isa for each in PAIRED):
        return None
    return PairedDots(PAIRED_GROUP, PAIRED_LIMIT)


def dots_of_bytes(isa: Isa, activation_bits: int) -> list[Dots | SignedDots]:
    """Dot products of bytes beside the first, for levels of so many bits; several words at a time
    where a register of a pixel holds them. Levels of fewer bits are signed bytes as they are."""
    levels = BYTE_BITS if activation_bits == BYTE_BITS else BYTE_BITS - 1
    return [
        SignedDots(dot.group, levels, words) if dot.is_signed else Dots(dot.group, words)
        for dot in isa.dots[1:]
        if dot.pixels == 1
        for words in WORDS
    ]


def transformed_products(isa: Isa) -> TransformedDots:
    """Products of transformed pixels and weights (`stages.kernels.winograd_transforms`)."""
    group = isa[Operation.DOT_16].operands[2].lanes // isa.lanes
    return TransformedDots(group)


def widened_products(isa: Isa) -> WideDots | None:
    """Bytes that were widened, where nothing multiplies more of them at once than of words."""
    group = transformed_products(isa).group
    return None if isa.dot_group > group else WideDots(group)


def by_words(products: WideDots | TransformedDots) -> list[WideDots | TransformedDots]:
    """The families that take a word of a pixel at a time, or as many as a register holds (Arm)."""
    if products.group > 1:
        return [products]
    return [replace(products, words=words) for words in WORDS]


def spanning_products(isa: Isa) -> WideDots:
    """Bytes that were widened, times weights that no byte holds."""
    return WideDots(transformed_products(isa).group, SPAN_LIMIT)


def narrow_products(isa: Isa, bits: int) -> int:
    """Channels a step multiplies into one 32-bit lane, in lanes of `bits` bits; 0 if it cannot."""
    step = step_of(isa, bits)
    return step.kinds(isa)[2].lanes // isa.lanes if step else 0
