"""Term plans: found, right for every pair of levels, and with as few popcounts as are known."""

from __future__ import annotations

from collections import Counter
from time import perf_counter

import numpy as np
import pytest

from stages.kernels.terms import TermPlan, products, raw_planes
from stages.layer_options import Encoding
from stages.synthesizing import plan_discovery
from stages.synthesizing.interaction import completed, interaction, residual
from stages.synthesizing.plan_discovery import discovered, plans
from tests.stages.synthesizing.plans import PLANS, PROBLEMS

POPCOUNTS = {
    (1, 1): 1,
    (2, 1): 2,
    (1, 2): 2,
    (3, 1): 2,
    (1, 3): 2,
    (2, 2): 3,
    (3, 2): 4,
    (2, 3): 4,
    (3, 3): 6,
}
"""Bits of activations and weights → popcounts a bit position (`method.md`, "Term plans")."""


@pytest.mark.parametrize(("bits", "popcounts"), POPCOUNTS.items(), ids=str)
def test_the_fewest_popcounts_known_are_found(bits: tuple[int, int], popcounts: int) -> None:
    assert len(discovered(*bits)[0].terms) == popcounts


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_plan_is_its_product_for_every_pair_of_levels(plan: TermPlan) -> None:
    n, m = plan.activation_bits, plan.weight_bits
    constants = residual(plan)
    for a in range(1 << n):
        for w in range(1 << m):
            total = plan.activation_sum[a] if plan.activation_sum else 0
            for term in plan.terms:
                x = [plan.activation_planes[i] >> a & 1 for i in term.activations]
                y = [plan.weight_planes[i] >> w & 1 for i in term.weights]
                value = {
                    "and": lambda x, y: x[0] & y[0],
                    "xor": lambda x, y: x[0] ^ y[0],
                    "choose_a": lambda x, y: x[0] if y[0] else x[1],
                    "choose_w": lambda x, y: y[0] if x[0] else y[1],
                }[term.op](x, y)
                total += term.coefficient * value
            assert plan.scale * total + constants[w] == products(n, m, plan.weights)[a, w]


def test_every_precision_and_encoding_has_a_plan_by_digits_without_sums() -> None:
    for problem in PROBLEMS:
        bits = problem.activation_bits, problem.weight_bits
        kind = f"{'xor' if problem.weights == 'bipolar' else 'and'}{bits[0] * bits[1]}"
        plain = [p for p in plans(*bits, problem.weights) if p.kind == kind]
        assert plain and not plain[0].activation_sum


def test_signed_weights_of_three_bits_need_no_sums() -> None:
    """Balanced ternary digits reach -4 to 3 from 0: the encoding chooses among equal plans."""
    for bits in (1, 2, 3):
        best = plans(bits, 3, "signed")[0]
        assert best.kind == f"choose_w{2 * bits}"
        assert not best.activation_sum


@pytest.mark.parametrize("encoding", ["unipolar", "bipolar", "signed"])
def test_planes_of_one_plan_are_distinct_and_used(encoding: Encoding) -> None:
    for plan in PLANS:
        if plan.weights == encoding:
            used = Counter(i for term in plan.terms for i in term.activations)
            assert set(used) == set(range(len(plan.activation_planes)))
            assert len(set(plan.activation_planes)) == len(plan.activation_planes)


def test_names_tell_plans_apart() -> None:
    assert len({plan.name for plan in PLANS}) == len(PLANS)


def test_interaction_vanishes_for_functions_of_one_level_alone() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.integers(-9, 9, (4, 1)), rng.integers(-9, 9, (1, 8))
    assert not interaction(u + v).any()
    assert interaction(u * v).any()


def test_a_plan_that_is_no_product_is_not_completed() -> None:
    plan = discovered(2, 2)[0]
    first, *rest = plan.terms
    doubled = type(first)(2 * first.coefficient, first.op, first.activations, first.weights)
    wrong = TermPlan(2, 2, "unipolar", plan.activation_planes, plan.weight_planes, (doubled, *rest))
    assert completed(wrong) is None
    with pytest.raises(AssertionError):
        residual(wrong)


def test_raw_planes_are_binary_digits() -> None:
    assert raw_planes(2) == (0b1010, 0b1100)


def test_discovery_takes_seconds() -> None:
    """Generous: it is about one second, and would be hours were it not met in the middle."""
    discovered.cache_clear()
    start = perf_counter()
    for bits in POPCOUNTS:
        plan_discovery.discovered(*bits)
    assert perf_counter() - start < 60
