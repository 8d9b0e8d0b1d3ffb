"""Offering: every kernel the engine can make for a product, with its predicted cost on a core.

A term plan times a tile is a candidate if its program's live registers fit the instruction set. Its
cost is the core's: the cycles that the program's instructions and the loads of its operands need at
least, by the pipes they go to (`hw.costs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hw.costs import CoreCosts, core_costs
from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.qnn.offers import Offer, Problem
from stages.qnn.signature import BLOCK, KernelSignature, Products
from stages.qnn.tables import ENTRIES
from stages.qnn.terms import weight_values
from stages.synthesizing.body import Body
from stages.synthesizing.carried import body_of, narrow_products
from stages.synthesizing.discovering import plans
from stages.synthesizing.looked_up import tables_of, words_between
from stages.synthesizing.program import Program

MAX_BITS = 3
"""Kernels of stored bits exist for up to three of each operand."""
MAX_ROWS = 8
BYTE_MAX = 255
BITS_PER_BYTE = 8
LOOP = 4
"""Scalar instructions of the loop over words: two addresses, a comparison and a branch."""


def offers_for(problem: Problem, hardware: Hardware) -> list[Offer]:
    """All offers for a problem, the cheapest per multiply-accumulate first."""
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    offers = [
        _offer(signature, body, isa, costs)
        for signature in candidates(problem, isa)
        if (body := body_of(signature, isa)) and _fits(body, isa)
    ]
    return sorted(offers, key=lambda offer: (offer.cycles_per_mac, offer.signature.name))


def candidates(problem: Problem, isa: Isa) -> Iterator[KernelSignature]:
    """Signatures of all plans and tiles, whether they fit the registers or not."""
    for rows, vectors in _tiles(isa):
        blank = KernelSignature(
            isa.name, None, Products(isa.dot_group), rows, vectors * isa.lanes, "none", 0
        )
        yield blank
        for products, period in _narrow(problem, isa):
            yield replace(blank, products=products, flush="window", flush_period=period)
        if max(problem.activation_bits, problem.weight_bits) > MAX_BITS:
            continue
        tables = tables_of(problem, isa)
        if tables and not blank.channels % tables.channels:
            period = words_between(tables)
            looked_up = replace(blank, products=None, tables=tables)
            yield replace(looked_up, flush="window", flush_period=period)
        for plan in plans(problem.activation_bits, problem.weight_bits, problem.weights):
            signature = replace(blank, plan=plan, products=None)
            if isa.counts_bytes:
                together = max(len(plan.of(c)) for c in plan.coefficients)
                period = BYTE_MAX // (BITS_PER_BYTE * together)
                signature = replace(signature, flush="window", flush_period=period)
            yield signature


def _narrow(problem: Problem, isa: Isa) -> Iterator[tuple[Products, int]]:
    """Ways to add up products in lanes of less than 32 bits, and how many words fit."""
    top = (1 << problem.activation_bits) - 1
    limit = int(np.abs(weight_values(problem.weights, problem.weight_bits)).max())
    for bits in (8, 16):
        group = narrow_products(isa, bits)
        if not group or problem.activation_bits == 8:
            continue
        # A word's four products a channel are spread over the lanes of a 32-bit one.
        per_word = 4 * bits // 32 * top * limit
        period = ((1 << (bits - 1)) - 1) // per_word
        if period:
            yield Products(group, bits, problem.activation_bits, limit), period


def _tiles(isa: Isa) -> Iterator[tuple[int, int]]:
    for vectors in (1, 2, 4, 8):
        if vectors * isa.lanes <= BLOCK:
            for rows in range(1, MAX_ROWS + 1):
                yield rows, vectors


def _fits(body: Body, isa: Isa) -> bool:
    """Whether no pass needs more registers than there are; a constant may need one more."""
    parts = max(isa.bytes // one.word.part for one in body.passes)
    return all(one.word.live() + parts <= isa.registers * parts for one in body.passes)


def _offer(signature: KernelSignature, body: Body, isa: Isa, costs: CoreCosts) -> Offer:
    columns = signature.rows * body.columns(signature.channels, isa.lanes)
    word: float = 0
    for one in body.passes:
        memory = _loads(one.word, _is_broadcast(signature, isa))
        word += costs.block(one.word.counts() + memory, LOOP, _chain(one.word, costs))
    load = f"load_{isa.bytes}"
    add = isa["add.32"].name
    if signature.sum_index is not None:
        each = signature.rows / isa.lanes
        word += costs.cycles({load: each, add: each})
    ends = sum(one.ends_chain for one in body.passes)
    emptying = Counter({name: count * ends for name, count in body.empty.counts().items()})
    # Load, multiply by the coefficient, add, and a store, which costs as a load.
    ends *= body.registers
    emptying += Counter({load: 2 * ends, isa["scale_add.32"].name: ends})
    empty = costs.cycles({name: count * columns for name, count in emptying.items()})
    return Offer(signature, round(word, 3), round(empty, 3))


def _chain(word: Program, costs: CoreCosts) -> float:
    """Latency of the additions to one counter, which wait for each other from word to word."""
    through: dict[int, float] = {}
    for name, register in word.inputs.items():
        if name[0] == "c":
            through |= dict.fromkeys(register, 0.0)
    for step in word.steps:
        waits = [through[part] for operand in step.operands for part in operand if part in through]
        if waits:
            latency = max(waits) + costs.latency(step.instruction.name)
            through |= dict.fromkeys(step.result, latency)
    return max(through[part] for register in word.outputs.values() for part in register)


def _is_broadcast(signature: KernelSignature, isa: Isa) -> bool:
    """Whether activations fill a register several times over."""
    return signature.tables is None or signature.tables.groups * ENTRIES < isa.bytes


def _loads(word: Program, broadcast: bool) -> Counter[str]:
    """Registers of weights, and of activations (broadcast words or tables), that a word needs."""
    return Counter(
        f"{'broadcast' if name[0] == 'a' and broadcast else 'load'}_{kind.bytes}"
        for name, kind in word.types.items()
        if name[0] != "c"
    )
