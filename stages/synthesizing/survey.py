"""What the engine finds for every precision, with times: the figures behind `doit kernels`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from hw.core_costs import core_costs
from hw.isa import Instruction, Isa, Operation, isa_of
from hw.profile import Hardware
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.problems import Problem
from stages.kernels.terms import TermPlan
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import prove
from stages.synthesizing.compiled_counts import CompiledCounts, count_compiled
from stages.synthesizing.enumeration import candidates_for
from stages.synthesizing.full_reduction import FullSpec, full_program, full_text, prove_full
from stages.synthesizing.plan_discovery import plans
from stages.synthesizing.reduction import Move, reduction
from stages.synthesizing.vector_program import Program

PRECISIONS = tuple((n, m) for n in (1, 2, 3) for m in (1, 2, 3))
"""Bits of activations and of weights."""
TILES = 3
"""How many tiles of a plan are compared."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class WindowSurvey:
    """The best kernels for a product on a core whose counters are carried from word to word."""

    best: KernelCandidate
    """The cheapest popcount kernel."""
    by_digits: KernelCandidate
    """The cheapest with one popcount a pair of digits."""
    products: KernelCandidate
    """The cheapest of 8-bit products."""
    lookup: KernelCandidate | None
    """The cheapest that looks products up, where the instruction set can."""
    synthesis: float
    """Seconds for all candidates of the problem, discovery of term plans included."""
    proof: float
    """Seconds to prove the best."""


@dataclass(frozen=True)
class FullReductionSurvey:
    """The best kernel that reduces `rows` x `chunk` bytes in one call."""

    spec: FullSpec
    program: Program
    after_llvm: CompiledCounts
    synthesis: float
    """Seconds for the programs of all plans, discovery included, compilation left out."""
    reduction: float
    """Seconds of the searches for reductions, which are part of `synthesis`."""
    proof: float


def window_survey(problem: Problem, hardware: Hardware) -> WindowSurvey:
    """The candidates of a problem, and the proof of the best."""
    candidates, synthesis = _timed(lambda: candidates_for(problem, hardware, TILES))
    popcounts = [candidate for candidate in candidates if candidate.signature.plan is not None]
    by_digits = [candidate for candidate in popcounts if _is_by_digits(candidate.signature.plan)]
    isa, best = isa_of(hardware), popcounts[0]
    _, proof = _timed(lambda: prove(best.signature, isa, body_of(best.signature, isa)))
    products = next(candidate for candidate in candidates if candidate.algorithm == "mac8")
    lookup = next(
        (candidate for candidate in candidates if candidate.signature.lut is not None), None
    )
    return WindowSurvey(best, by_digits[0], products, lookup, synthesis, proof)


def full_reduction_survey(
    problem: Problem, hardware: Hardware, rows: int = 8, chunk: int = 8
) -> FullReductionSurvey:
    """The kernel of fewest instructions after LLVM, of those that every plan of a problem gives."""
    isa, reducing = isa_of(hardware), 0.0

    def programs() -> list[tuple[FullSpec, Program]]:
        wanted = plans(problem.activation_bits, problem.weight_bits, problem.weights)
        # Sums are unsigned: a plan that subtracts cannot be reduced in place.
        positive = [plan for plan in wanted if min(plan.coefficients) > 0]
        specs = [FullSpec(plan, rows, chunk) for plan in positive]
        # Plans of the same coefficients are reduced alike.
        moves: dict[tuple[tuple[int, int], ...], list[Move]] = {s.counts: [] for s in specs}
        nonlocal reducing
        for counts in moves:
            search = partial(reduction, dict(counts), rows, chunk, isa, price_of(isa, hardware))
            moves[counts], seconds = _timed(search)
            reducing += seconds
        return [(spec, full_program(spec, isa, moves[spec.counts])) for spec in specs]

    made, synthesis = _timed(programs)
    fewest = min(len(program.steps) for _, program in made)
    few = {f"k{i}": (s, p) for i, (s, p) in enumerate(made) if len(p.steps) <= 1.1 * fewest}
    counts = count_compiled({name: full_text(name, *pair) for name, pair in few.items()}, hardware)
    name = min(few, key=lambda name: (_instructions(counts[name]), name))
    spec, program = few[name]
    _, proof = _timed(lambda: prove_full(spec, program))
    return FullReductionSurvey(spec, program, counts[name], synthesis, reducing, proof)


def _instructions(after: CompiledCounts) -> tuple[int, int]:
    return after.arithmetic + after.moves, after.loads + after.stores


def price_of(isa: Isa, hardware: Hardware) -> Callable[[Operation], float]:
    """What an instruction costs in the search for a reduction: its cycles, at least one."""
    costs = core_costs(hardware.core)
    return lambda operation: max(1.0, costs.cycles({_form(operation, isa).name: 1}))


def _form(operation: Operation, isa: Isa) -> Instruction:
    """The row that does an operation, on half a register where there is no other."""
    return isa.rows.get(operation) or isa.half_registers[operation]


def _is_by_digits(plan: TermPlan | None) -> bool:
    return plan is not None and {term.op for term in plan.terms} <= {"and", "xor"}


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = perf_counter()
    result = work()
    return result, perf_counter() - start
