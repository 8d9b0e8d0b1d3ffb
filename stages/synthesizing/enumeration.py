"""Offering: every kernel the engine can make for a product, with its predicted cost on a core.

A term plan times a tile is a candidate if its program's live registers fit the instruction set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from hw.core_costs import CoreCosts, core_costs
from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.dialect.floats import HALF_TERMS
from stages.kernels.candidates import BFLOATS, FLOATS, HALVES, Offer, Problem
from stages.kernels.families import (
    BytePairs,
    Dots,
    FloatDots,
    NarrowDots,
    PairedDots,
    Products,
    TransformedDots,
)
from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, WORD_BITS, code_for
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.terms import weight_values
from stages.synthesizing.bodies import (
    body_of,
    by_words,
    dots_of_bytes,
    narrow_products,
    paired_products,
    spanning_products,
    transformed_products,
    widened_products,
)
from stages.synthesizing.body import Body
from stages.synthesizing.byte_pairs_body import byte_pairs
from stages.synthesizing.carry_save_body import MOST_PIXELS, steps_of
from stages.synthesizing.compiled_counts import Recount, recount_loops
from stages.synthesizing.coupled_body import coupled_steps
from stages.synthesizing.float16_body import ways_of_halves
from stages.synthesizing.lut_body import tables_of, words_between
from stages.synthesizing.matrix_body import matrix_dots
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.operands import CACHE_LINE
from stages.synthesizing.plan_discovery import plans
from stages.synthesizing.predicted_cost import offer_of, rank, row_of
from stages.synthesizing.step_loops import fits
from stages.synthesizing.tile_body import tile_offer, tile_signatures
from stages.synthesizing.winograd_cost import stream_of, transformed_offer
from stages.synthesizing.word_variants import BYTE_MAX, MOST_OTHERS, in_bytes, other_words

MAX_BITS = 3
"""Kernels of stored bits exist for up to three of each operand."""
MAX_ROWS = 8
LONG_ROWS = (10, 12, 14)
"""Pixels of longer tiles, which pictures are often multiples of. Only registers as wide as a line
of the cache gain by them: there the weights of a step are the most that has to come from one."""
FLOAT_PRODUCTS = {FLOATS: FloatDots(1), BFLOATS: FloatDots(2, "bfloat16")}
SPARE = 3
"""Registers beside counters and planes."""
NEAR = 1.3
"""Methods within this factor of the best are offered for every number of pixels."""


def offers_for(problem: Problem, hardware: Hardware, most: int | None = None) -> list[Offer]:
    """The offers for a problem, the cheapest per multiply-accumulate first.

    `most` limits how many tiles of a plan are considered; without it a plan is offered for every
    number of pixels, as layers of all widths need.

    Every kernel is compiled and counted once more: LLVM copies a register where an instruction
    overwrites an operand that is needed again, which costs, and it may spill. No kernel that does
    is offered, but for a single pixel where there is no other: a tile of other channels is tried.
    """
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    bodies = {
        signature: body
        for signature in candidates(problem, isa)
        if _fits(signature, body := body_of(signature, isa), isa)
    }
    for signature in other_words(bodies, isa, costs):
        if _fits(signature, body := body_of(signature, isa), isa):
            bodies[signature] = body
    groups = _promising(bodies, isa, costs, most)
    counts = _compiled((first for first, *_ in groups), bodies, isa, hardware)
    others = [s for first, *rest in groups if counts[first].stores for s in rest]
    counts |= _compiled(others, bodies, isa, hardware)
    kept = _without_spills({s: counted.stores for s, counted in counts.items()})
    offers = [offer_of(s, bodies[s], isa, costs, _copies(bodies[s], counts[s])) for s in kept]
    offers = [replace(o, row=row_of(o.signature, bodies[o.signature], isa)) for o in offers]
    near, second = 1024 * hardware.l1d_kib, 1024 * hardware.l2_kib
    far = [_around(replace(o, cache=near, second=second), isa, costs) for o in offers]
    tiles = [tile_offer(signature, isa, costs) for signature in tiles_of(problem, isa)]
    return sorted([*far, *tiles], key=rank)


def _around(offer: Offer, isa: Isa, costs: CoreCosts) -> Offer:
    """An offer with what it costs beside its kernel."""
    if offer.signature.is_transformed:
        line, memory = (costs.line, costs.memory) if costs.memory else (0.0, 0.0)
        return replace(transformed_offer(offer, isa, costs), line=line, memory=memory)
    late = _late(offer.signature, isa, costs)
    near = replace(offer, line=costs.line, memory=costs.memory, late=late)
    return replace(near, stream=stream_of(isa)) if offer.signature.is_widened else near


def _late(signature: KernelSignature, isa: Isa, costs: CoreCosts) -> float:
    """Cycles that results of a tile take alone.

    A core that has pipes for what products do not use computes a tile's results beside the next
    one's products, as far as it looks ahead.
    """
    registers = signature.rows * signature.channels // isa.lanes
    return costs.late * max(0, registers - costs.beside) if signature.is_direct else 0.0


def _compiled(
    signatures: Iterable[KernelSignature],
    bodies: Mapping[KernelSignature, Body],
    isa: Isa,
    hardware: Hardware,
) -> dict[KernelSignature, Recount]:
    """What LLVM makes of the loops of kernels."""
    kernels = {s.name: MicroKernel(s, isa, bodies[s]) for s in signatures}
    counts = recount_loops({name: kernel.text() for name, kernel in kernels.items()}, hardware)
    return {kernel.signature: counts[name] for name, kernel in kernels.items()}


def _without_spills(stores: Mapping[KernelSignature, int]) -> list[KernelSignature]:
    """Those without stores in their loops; of a method that has none, one pixel's fewest."""
    kept = [signature for signature, count in stores.items() if count == 0]
    methods = {signature.method for signature in kept if signature.rows == 1}
    fewest: dict[object, KernelSignature] = {}
    for signature in sorted(stores, key=lambda s: (s.rows, stores[s])):
        if signature.method not in methods:
            fewest.setdefault(signature.method, signature)
    return [*kept, *(s for s in fewest.values() if s not in kept)]


def _promising(
    bodies: dict[KernelSignature, Body], isa: Isa, costs: CoreCosts, most: int | None
) -> list[list[KernelSignature]]:
    """What is worth compiling: per method and number of pixels a tile, and what may replace it.

    Tiles of a part of a block are for layers whose last one is not full. A method much dearer than
    another of its algorithm with as many pixels has only its best tile.
    Those that take several words a step do not compare: not every window has as many. Nor do those
    for small weights, of what is widened, or of pairs of pixels.
    """
    offers = sorted((offer_of(s, body, isa, costs, 0.0) for s, body in bodies.items()), key=rank)
    groups: dict[tuple[object, int, bool], list[Offer]] = {}
    cheapest: dict[Hashable, float] = {}
    for offer in offers:
        signature = offer.signature
        is_part = signature.is_direct and signature.channels < BLOCK
        groups.setdefault((signature.method, signature.rows, is_part), []).append(offer)
        cheapest.setdefault(_rivals(offer), offer.cycles_per_mac)
    kept, counts = [], Counter[object]()
    for (method, *_), group in groups.items():
        is_near = group[0].cycles_per_mac < NEAR * cheapest[_rivals(group[0])]
        is_other = group[0].signature.word_bits != WORD_BITS or bool(group[0].signature.inner)
        at_most = MOST_OTHERS if is_other and most is None else most
        if (is_near or not counts[method]) and (at_most is None or counts[method] < at_most):
            counts[method] += 1
            kept.append([offer.signature for offer in group[: 2 if is_near else 1]])
    return kept


def _rivals(offer: Offer) -> Hashable:
    """What offers of one method and another have in common that may replace each other."""
    signature, products = offer.signature, offer.signature.products
    is_paired = isinstance(products, PairedDots | BytePairs)
    return (
        offer.algorithm,
        signature.rows,
        signature.step > 1,
        is_paired,
        signature.multiplies_words,
        signature.pixels,
    )


def _copies(body: Body, counted: Recount) -> float:
    """Copies of registers per step, from their share of the arithmetic in the compiled loops."""
    steps = sum(len(one.word.steps) for one in body.passes)
    return steps * counted.moves / max(counted.arithmetic, 1)


def tiles_of(problem: Problem, isa: Isa) -> list[KernelSignature]:
    """Kernels of tiles for a problem; of float32, and of weights that no byte holds, are none."""
    if problem in (FLOATS, HALVES) or problem.spans:
        return []
    code = None if problem.is_float else code_for(problem.weight_bits, problem.weights)
    return tile_signatures(isa, "bfloat16" if problem.is_float else "int8", code)


def candidates(problem: Problem, isa: Isa) -> Iterator[KernelSignature]:
    """Signatures of all plans and tiles, whether they fit the registers or not."""
    for rows, vectors in _tiles(isa):
        blank = KernelSignature(
            isa.name, None, Dots(isa.dot_group), rows, vectors * isa.lanes, "none", 0
        )
        if problem.is_float:
            if problem == HALVES:
                for halves in ways_of_halves(isa, blank.channels):
                    yield replace(blank, products=halves, flush="window", flush_period=HALF_TERMS)
                continue
            floats = FLOAT_PRODUCTS[problem]
            yield replace(blank, products=floats)
            if problem == FLOATS:
                yield replace(blank, products=TransformedDots(floats.group, "float32"))
            continue
        if problem.spans:
            for spanning in by_words(spanning_products(isa)):
                yield replace(blank, products=spanning)
            continue
        yield blank
        for transformed in by_words(transformed_products(isa)):
            yield replace(blank, products=transformed)
        if (wide := widened_products(isa)) is not None:
            for each in by_words(wide):
                yield replace(blank, products=each)
        ways = dots_of_bytes(isa, problem.activation_bits)
        for way in (*ways, *byte_pairs(isa, problem.activation_bits)):
            yield replace(blank, products=way)
        for matrix in matrix_dots(isa, problem.activation_bits):
            if rows % matrix.pixels == 0:
                yield replace(blank, products=matrix)
        if problem.activation_bits == BYTE_BITS and (paired := paired_products(isa)) is not None:
            yield replace(blank, products=paired)
        for products, period in _narrow(problem, isa):
            yield replace(blank, products=products, flush="window", flush_period=period)
        if max(problem.activation_bits, problem.weight_bits) > MAX_BITS:
            continue
        for tables in tables_of(problem, isa):
            if not blank.channels % tables.channels:
                looked_up = replace(blank, products=None, tables=tables, flush="window")
                yield replace(looked_up, flush_period=words_between(tables))
        for plan in plans(problem.activation_bits, problem.weight_bits, problem.weights):
            signature = replace(blank, plan=plan, products=None)
            yield in_bytes(signature) if isa.counts_bytes else signature
            for words in coupled_steps(plan, isa):
                yield in_bytes(replace(signature, words=words, coupled=True))
            for words in steps_of(plan, isa) if rows <= MOST_PIXELS else ():
                period = BYTE_MAX // BYTE_BITS * words
                yield replace(signature, words=words, flush="window", flush_period=period)


def _narrow(problem: Problem, isa: Isa) -> Iterator[tuple[NarrowDots, int]]:
    """Ways to add up products in lanes of less than 32 bits, and how many words fit."""
    top = (1 << problem.activation_bits) - 1
    limit = int(np.abs(weight_values(problem.weights, problem.weight_bits)).max())
    if limit > BYTE_LIMIT:  # no byte holds such weights
        return
    for bits in (8, 16):
        group = narrow_products(isa, bits)
        if not group or problem.activation_bits == BYTE_BITS:
            continue
        # A word's four products a channel are spread over the lanes of a 32-bit one.
        per_word = 4 * bits // 32 * top * limit
        period = ((1 << (bits - 1)) - 1) // per_word
        if period:
            yield NarrowDots(group, bits, problem.activation_bits, limit), period


def whole_products(isa: Isa) -> list[Products]:
    """Ways to add products up in lanes of 32 bits, one of each family."""
    return [Dots(isa.dot_group), transformed_products(isa), *FLOAT_PRODUCTS.values()]


def _tiles(isa: Isa) -> Iterator[tuple[int, int]]:
    for vectors in (1, 2, 4, 8):
        if vectors * isa.lanes <= BLOCK:
            for rows in (*range(1, MAX_ROWS + 1), *(LONG_ROWS if isa.bytes == CACHE_LINE else ())):
                yield rows, vectors


def _fits(signature: KernelSignature, body: Body, isa: Isa) -> bool:
    """Whether every pass has the registers that it needs, and that LLVM takes.

    LLVM loads the planes of a word all at once, however few are in use at one time; a constant, a
    count and the result of a choice need registers too. Steps of several words and products load
    part by part. Loops that are not left to LLVM say themselves what they need.
    """
    if signature.coupled:
        return all(fits(signature, one.word, isa) for one in body.passes)
    parts = max(isa.bytes // one.word.part for one in body.passes)
    if any(one.word.live() + parts > isa.registers * parts for one in body.passes):
        return False
    loaded = max(len(one.word.inputs) for one in body.passes)
    return signature.plan is None or signature.counted > 1 or loaded + SPARE <= isa.registers
