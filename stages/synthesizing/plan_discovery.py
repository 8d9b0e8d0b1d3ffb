"""Discovery of term plans: the fewest popcounts whose sum is a product of levels.

What the search finds (`term_search.py`) are functions; here they get planes, the cheapest ones.
Wider operands are composed from narrower ones digit by digit, and other encodings of weights take
the plans of unipolar ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Literal

from stages.kernels.terms import Op, Term, TermPlan, digit_plan, products, raw_planes
from stages.layer_options import Encoding
from stages.synthesizing.interaction import completed
from stages.synthesizing.term_search import (
    Function,
    OuterProduct,
    Solution,
    met_in_the_middle,
    outer_products,
)

DIRECT_TERMS = 3
"""Sums of up to so many terms are searched for; wider products are composed."""
DIRECT_FUNCTIONS = 5000
"""No direct search over more candidate terms than this."""
KEPT = 24
"""Solutions that are given planes and compared."""
ALTERNATIVES = 8
"""Plans of equally many terms that are kept: encodings differ in which of them they like."""


@cache
def discovered(activation_bits: int, weight_bits: int) -> tuple[TermPlan, ...]:
    """The plans with the fewest popcounts found for unipolar weights, the cheapest first."""
    found = [digit_plan("and", activation_bits, weight_bits, "unipolar")]
    found += _composed(activation_bits, weight_bits)
    fewest = min(len(plan.terms) for plan in found)
    found += _direct(activation_bits, weight_bits, min(fewest - 1, DIRECT_TERMS))
    fewest = min(len(plan.terms) for plan in found)
    distinct = {plan.name: plan for plan in found if len(plan.terms) == fewest}
    return tuple(sorted(distinct.values(), key=_cost)[:ALTERNATIVES])


def plans(activation_bits: int, weight_bits: int, encoding: Encoding) -> list[TermPlan]:
    """Complete plans for a product: one popcount a pair of digits, and fewer where there are.

    Of the alternatives with the same terms one without activation sums goes first.
    """
    return list(_plans(activation_bits, weight_bits, encoding))


@cache
def _plans(activation_bits: int, weight_bits: int, encoding: Encoding) -> tuple[TermPlan, ...]:
    # Of bipolar weights the exclusive or needs no activation sums, and the and would.
    op: Literal["and", "xor"] = "xor" if encoding == "bipolar" else "and"
    plain = digit_plan(op, activation_bits, weight_bits, encoding)
    found = [
        retargeted(plan, encoding)
        for plan in discovered(activation_bits, weight_bits)
        if any(term.op != "and" for term in plan.terms)
    ]
    complete = [done for plan in [plain, *found] if (done := completed(plan)) is not None]
    best: dict[str, TermPlan] = {}
    for plan in sorted(complete, key=lambda plan: (any(plan.activation_sum), _cost(plan))):
        best.setdefault(plan.kind, plan)
    return tuple(sorted(best.values(), key=_cost))


def forget() -> None:
    """Find everything anew: for those who measure how long that takes."""
    discovered.cache_clear()
    _plans.cache_clear()


def _direct(activation_bits: int, weight_bits: int, terms: int) -> list[TermPlan]:
    """Plans of at most `terms` terms by search; none where there are too many outer products."""
    ternary = 3 ** (1 << max(activation_bits, weight_bits))
    if terms < 1 or ternary * (1 << min(activation_bits, weight_bits) - 1) > 2 * DIRECT_FUNCTIONS:
        return []
    pool = outer_products(activation_bits, weight_bits)
    solutions = met_in_the_middle(pool, products(activation_bits, weight_bits, "unipolar"), terms)
    ranked = sorted(solutions, key=_solution_cost)[:KEPT]
    return [_with_planes(s, activation_bits, weight_bits) for s in ranked]


def _solution_cost(solution: Solution) -> tuple[int, ...]:
    """Few choices, few different functions, small coefficients of few sizes."""
    return (
        sum(c.op != "and" for _, c in solution),
        len({c.a for _, c in solution}) + len({c.w for _, c in solution}),
        len({abs(k) for k, _ in solution}),
        sum(abs(k) for k, _ in solution),
    )


def _cost(plan: TermPlan) -> tuple[object, ...]:
    """Few popcounts, few choices, few planes, the raw ones first, positive coefficients."""
    raw = set(raw_planes(plan.activation_bits)), set(raw_planes(plan.weight_bits))
    return (
        len(plan.terms),
        sum(term.op not in ("and", "xor") for term in plan.terms),
        len(plan.activation_planes),
        len(plan.weight_planes),
        sum(term.coefficient < 0 for term in plan.terms),
        len(set(plan.activation_planes) - raw[0]) + len(set(plan.weight_planes) - raw[1]),
        len(plan.coefficients),
        plan.name,
    )


# -- planes -----------------------------------------------------------------------------------


def _with_planes(solution: Solution, activation_bits: int, weight_bits: int) -> TermPlan:
    """The cheapest plan of a solution.

    Complements are free, and levels where two planes do not differ may be in both or in neither.
    """
    a, w = (1 << (1 << bits) for bits in (activation_bits, weight_bits))
    forms = [
        _forms(coefficient, product_of_levels, a - 1, w - 1)
        for coefficient, product_of_levels in solution
    ]
    plans = (_assembled(choice, activation_bits, weight_bits) for choice in product(*forms))
    return min(plans, key=_cost)


Form = tuple[int, Op, tuple[int, ...], tuple[int, ...]]
"""Coefficient, operation, activation tables and weight tables of a term."""


def _forms(coefficient: int, product_of_levels: OuterProduct, all_a: int, all_w: int) -> list[Form]:
    """Every way to write a term with one logic operation on two or three planes."""
    if product_of_levels.op == "choose_a":
        choices = _choices(product_of_levels.a, product_of_levels.w, all_w)
        return [(s * coefficient, "choose_a", both, (one,)) for s, both, one in choices]
    if product_of_levels.op == "choose_w":
        choices = _choices(product_of_levels.w, product_of_levels.a, all_a)
        return [(s * coefficient, "choose_w", (one,), both) for s, both, one in choices]
    a, w = _plane(product_of_levels.a), _plane(product_of_levels.w)
    return [
        (x * y * coefficient, "and", (a if x > 0 else all_a ^ a,), (w if y > 0 else all_w ^ w,))
        for x in (1, -1)
        for y in (1, -1)
    ]


def _plane(function: Function, value: int = 1) -> int:
    return sum(1 << level for level, x in enumerate(function) if x == value)


def _choices(
    difference: Function, selector: Function, all_s: int
) -> Iterator[tuple[int, tuple[int, int], int]]:
    """Sign, the two planes chosen from, and the plane that chooses."""
    free = [level for level, x in enumerate(difference) if x == 0]
    for inside in product((0, 1), repeat=len(free)):
        shared = sum(1 << level for level, x in zip(free, inside, strict=True) if x)
        plus, minus = _plane(difference) | shared, _plane(difference, -1) | shared
        one = _plane(selector)
        yield 1, (plus, minus), one
        yield -1, (minus, plus), one
        # The complement of the selector exchanges the planes.
        yield 1, (minus, plus), all_s ^ one
        yield -1, (plus, minus), all_s ^ one


def _assembled(choice: Sequence[Form], activation_bits: int, weight_bits: int) -> TermPlan:
    a = sorted({table for _, _, tables, _ in choice for table in tables})
    w = sorted({table for _, _, _, tables in choice for table in tables})
    terms = tuple(
        Term(c, op, tuple(map(a.index, tables_a)), tuple(map(w.index, tables_w)))
        for c, op, tables_a, tables_w in choice
    )
    return TermPlan(activation_bits, weight_bits, "unipolar", tuple(a), tuple(w), terms)


# -- composition ------------------------------------------------------------------------------


def _composed(activation_bits: int, weight_bits: int) -> list[TermPlan]:
    """Plans of an operand's low digits and of its high ones, side by side."""
    splits = [
        ((low, weight_bits), (activation_bits - low, weight_bits), (low, 0))
        for low in range(1, activation_bits)
    ]
    splits += [
        ((activation_bits, low), (activation_bits, weight_bits - low), (0, low))
        for low in range(1, weight_bits)
    ]
    return [
        _sum_of_plans(parts, shift, activation_bits, weight_bits)
        for low_bits, high_bits, shift in splits
        for parts in product(discovered(*low_bits), discovered(*high_bits))
    ]


def _sum_of_plans(
    parts: tuple[TermPlan, TermPlan], shift: tuple[int, int], a_bits: int, w_bits: int
) -> TermPlan:
    """`low + 2^shift * high` as a plan of the whole operands."""
    choice: list[Form] = []
    for part, shifts in zip(parts, ((0, 0), shift), strict=True):
        a = [_lifted(t, part.activation_bits, shifts[0], a_bits) for t in part.activation_planes]
        w = [_lifted(t, part.weight_bits, shifts[1], w_bits) for t in part.weight_planes]
        for term in part.terms:
            tables = tuple(a[i] for i in term.activations), tuple(w[i] for i in term.weights)
            choice.append((term.coefficient << sum(shifts), term.op, *tables))
    return _assembled(choice, a_bits, w_bits)


def _lifted(table: int, bits: int, shift: int, whole: int) -> int:
    """A plane of `bits` digits as a plane of the whole level, `shift` digits up."""
    mask = (1 << bits) - 1
    return sum(1 << x for x in range(1 << whole) if table >> (x >> shift & mask) & 1)


def retargeted(plan: TermPlan, encoding: Encoding) -> TermPlan:
    """The terms of an unipolar plan for weights stored otherwise, scale and sums to be completed.

    Two's complement is the unipolar order with the top digit inverted, up to a function of the
    activation; the other encodings need no change of planes.
    """
    if encoding == "signed":
        top = 1 << (plan.weight_bits - 1)
        levels = range(1 << plan.weight_bits)
        planes = tuple(
            sum(1 << (x ^ top) for x in levels if table >> x & 1) for table in plan.weight_planes
        )
        return replace(plan, weights="signed", weight_planes=planes)
    return replace(plan, weights=encoding)
