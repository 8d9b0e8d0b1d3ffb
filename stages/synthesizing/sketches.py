"""Sketches: signatures of all kernels that the engine can make, every method times every tile.

A signature is worth pricing if its program's live registers fit the instruction set
(`fits_registers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hw.isa import Isa
from stages.dialect.float_linear import FLOAT16_TERMS
from stages.kernels.families import (
    Dots,
    FloatDots,
    NarrowDots,
    Products,
    TransformedDots,
)
from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, code_for
from stages.kernels.problems import BFLOAT16, FLOAT16, FLOAT32, Problem
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.terms import weight_values
from stages.synthesizing.bodies import (
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
from stages.synthesizing.coupled_body import coupled_steps
from stages.synthesizing.float16_body import float16_products
from stages.synthesizing.lut_body import luts_for, words_between
from stages.synthesizing.matrix_body import matrix_dots
from stages.synthesizing.operands import CACHE_LINE
from stages.synthesizing.plan_discovery import plans
from stages.synthesizing.step_loops import fits
from stages.synthesizing.tile_body import tile_signatures
from stages.synthesizing.word_variants import BYTE_MAX, in_bytes

MAX_BITS = 3
"""Kernels of stored bits exist for up to three of each operand."""
MAX_ROWS = 8
LONG_ROWS = (10, 12, 14)
"""Pixels of longer tiles, which images are often multiples of. Only registers as wide as a line
of the cache gain by them: there the weights of a step are the most that has to come from one."""
FLOAT_PRODUCTS = {FLOAT32: FloatDots(1), BFLOAT16: FloatDots(2, "bfloat16")}
SPARE = 3
"""Registers beside counters and planes."""


def tiles_of(problem: Problem, isa: Isa) -> list[KernelSignature]:
    """Kernels of tiles for a problem; of float32, and of weights that no byte holds, are none."""
    if problem in (FLOAT32, FLOAT16) or problem.has_wide_weights:
        return []
    code = None if problem.is_float else code_for(problem.weight_bits, problem.weights)
    return tile_signatures(isa, "bfloat16" if problem.is_float else "int8", code)


def signatures_for(problem: Problem, isa: Isa) -> Iterator[KernelSignature]:
    """Signatures of all plans and tiles, whether they fit the registers or not."""
    for rows, vectors in _tiles(isa):
        blank = KernelSignature(
            isa.name, None, Dots(isa.dot_group), rows, vectors * isa.lanes, "none", 0
        )
        if problem.is_float:
            if problem == FLOAT16:
                for halves in float16_products(isa, blank.channels):
                    yield replace(
                        blank, products=halves, flush="window", flush_period=FLOAT16_TERMS
                    )
                continue
            floats = FLOAT_PRODUCTS[problem]
            yield replace(blank, products=floats)
            if problem == FLOAT32:
                yield replace(blank, products=TransformedDots(floats.group, "float32"))
            continue
        if problem.has_wide_weights:
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
        for lut in luts_for(problem, isa):
            if not blank.channels % lut.channels:
                looked_up = replace(blank, products=None, lut=lut, flush="window")
                yield replace(looked_up, flush_period=words_between(lut))
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


def fits_registers(signature: KernelSignature, body: Body, isa: Isa) -> bool:
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
    return signature.plan is None or signature.words_per_step > 1 or loaded + SPARE <= isa.registers
