"""Kernel signatures for tests: term plans of every kind, on any instruction set."""

from __future__ import annotations

from itertools import product

from hw.isa import isa_of
from hw.profile import Hardware
from stages.kernels.problems import Problem
from stages.kernels.signature import Flush, KernelSignature
from stages.kernels.terms import TermPlan
from stages.layer_options import Encoding
from stages.synthesizing.plan_discovery import plans
from stages.synthesizing.sketches import signatures_for

ENCODINGS: tuple[Encoding, ...] = ("unipolar", "bipolar", "signed")
PROBLEMS = [
    Problem(n, m, encoding)
    for encoding, n, m in product(ENCODINGS, (1, 2, 3), (1, 2, 3))
    if (encoding, m) != ("signed", 1)
]
PLANS = [
    plan
    for problem in PROBLEMS
    for plan in plans(problem.activation_bits, problem.weight_bits, problem.weights)
]
"""Every term plan that the engine candidates, for every precision and encoding."""
WIDER = [Problem(4, 4, "signed"), Problem(7, 8, "signed"), Problem(5, 1, "bipolar")]
"""Products that have no term plans, but narrow lanes where these have room for a word."""


def plan_named(kind: str, activation_bits: int, weight_bits: int, weights: Encoding) -> TermPlan:
    """The plan of a kind, such as `mix3`."""
    return next(p for p in plans(activation_bits, weight_bits, weights) if p.kind == kind)


def popcount(
    hardware: Hardware,
    plan: TermPlan,
    flush: Flush | None = None,
    rows: int = 1,
    vectors: int = 1,
    words: int = 1,
) -> KernelSignature:
    """A popcount signature of a step of so many words.

    Its byte counters are flushed once a window if nothing else is said.
    """
    isa = isa_of(hardware)
    problem = Problem(plan.activation_bits, plan.weight_bits, plan.weights)
    tile = rows, vectors * isa.lanes
    found = next(
        s
        for s in signatures_for(problem, isa)
        if s.plan == plan and (s.rows, s.channels, s.words) == (*tile, words)
    )
    return found if flush is None else found.flushed(flush)


def mac8(hardware: Hardware, rows: int = 1, vectors: int = 1) -> KernelSignature:
    """A signature of 8-bit products."""
    isa = isa_of(hardware)
    return next(
        s
        for s in signatures_for(Problem(8, 8, "signed"), isa)
        if (s.rows, s.channels) == (rows, vectors * isa.lanes)
    )


def narrow(
    hardware: Hardware, problem: Problem, rows: int = 1, vectors: int = 1
) -> list[KernelSignature]:
    """Signatures that add the products of a problem up in lanes of less than 32 bits."""
    isa = isa_of(hardware)
    return [
        s
        for s in signatures_for(problem, isa)
        if s.products
        and s.products.bits < 32
        and (s.rows, s.channels) == (rows, vectors * isa.lanes)
    ]
