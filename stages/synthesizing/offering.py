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
from stages.qnn.terms import TermPlan, weight_values
from stages.synthesizing.carried import Body, body_of, narrow_products
from stages.synthesizing.discovering import plans
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.program import Program
from stages.synthesizing.recounting import recount_loops

MAX_BITS = 3
"""Popcount kernels exist for up to three bits of each operand."""
MAX_ROWS = 8
BYTE_MAX = 255
BITS_PER_BYTE = 8
LOOP = 4
"""Scalar instructions of the loop over words: two addresses, a comparison and a branch."""


def offers_for(problem: Problem, hardware: Hardware) -> list[Offer]:
    """All offers for a problem, the cheapest per multiply-accumulate first.

    The best tile of every plan is counted once more after LLVM, which copies a register where an
    instruction overwrites an operand that is needed again; that share of copies is the plan's.
    """
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    bodies = {
        signature: body
        for signature in candidates(problem, isa)
        if _fits(body := body_of(signature, isa), isa)
    }
    offers = [_offer(signature, body, isa, costs, 0.0) for signature, body in bodies.items()]
    copies: dict[TermPlan | Products | None, float] = {}
    for offer in sorted(offers, key=_rank):
        method = offer.signature.plan or offer.signature.products
        if method not in copies:
            copies[method] = _copies(offer.signature, bodies[offer.signature], isa, hardware)
    final = [
        _offer(s, body, isa, costs, copies[s.plan or s.products]) for s, body in bodies.items()
    ]
    return sorted(final, key=_rank)


def _rank(offer: Offer) -> tuple[float, str]:
    return offer.cycles_per_mac, offer.signature.name


def _copies(signature: KernelSignature, body: Body, isa: Isa, hardware: Hardware) -> float:
    """Copies of registers in the inner loops, per instruction that chooses."""
    chooses = _chooses(body, isa)
    if not chooses:
        return 0.0
    kernel = MicroKernel(signature, isa, body)
    text, declarations = kernel.text()
    return recount_loops(text, declarations, signature.name, hardware).moves / chooses


def _chooses(body: Body, isa: Isa) -> int:
    return sum(one.word.counts()[isa["select"].name] for one in body.passes)


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


def _offer(
    signature: KernelSignature, body: Body, isa: Isa, costs: CoreCosts, copies: float
) -> Offer:
    """The offer of a kernel in which LLVM copies `copies` registers for each that chooses."""
    vectors = signature.rows * (signature.channels // isa.lanes)
    word: float = 0
    for one in body.passes:
        counts: Counter[str] = one.word.counts() + _loads(one.word)
        copied = copies * counts[isa["select"].name]
        word += costs.block(
            counts + Counter(_copying(isa, copied)),
            LOOP + _free(isa, copied),
            _chain(one.word, costs),
        )
    load = f"load_{isa.bytes}"
    add = isa["add.32"].name
    if signature.sum_index is not None:
        each = signature.rows / isa.lanes
        word += costs.cycles({load: each, add: each})
    ends = sum(one.ends_chain for one in body.passes)
    emptying = Counter({name: count * ends for name, count in body.empty.counts().items()})
    # Load, multiply by the coefficient, add, and a store, which costs as a load.
    emptying += Counter({load: 2 * ends, isa["scale_add.32"].name: ends})
    empty = costs.cycles({name: count * vectors for name, count in emptying.items()})
    return Offer(signature, round(word, 3), round(empty, 3))


def _copying(isa: Isa, copies: float) -> dict[str, float]:
    """Copies as instructions: ARM's is an `orr` of a register with itself."""
    return {isa["or"].name: copies} if isa.name.startswith("neon") else {}


def _free(isa: Isa, copies: float) -> float:
    """Copies that only take a place in the front end: x86 cores rename the register."""
    return 0.0 if isa.name.startswith("neon") else copies


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


def _loads(word: Program) -> Counter[str]:
    """Registers of weights and broadcast words of activations that a word of the window needs."""
    return Counter(
        f"{'broadcast' if name[0] == 'a' else 'load'}_{kind.bytes}"
        for name, kind in word.types.items()
        if name[0] != "c"
    )
