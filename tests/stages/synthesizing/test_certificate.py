"""A certificate is given to right term plans and to no wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.qnn.packing import raw_sums
from stages.qnn.signature import Encoding, KernelSignature, Term
from stages.synthesizing.certificate import ProofError, certify
from tests.stages.synthesizing.plans import PLANS, mac8, popcount
from tests.targets import AARCH64, AVX512VPOPCNTDQ

Array = np.ndarray[Any, Any]
plans = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, plan)))


def product_of(signature: KernelSignature, a: Array, w: Array) -> Array:
    """The sums a signature promises, by plain multiplication; a [R, K], w [O, K]."""
    n, m = signature.activation_planes, signature.weight_planes
    a, w = a.astype(np.int64), w.astype(np.int64)
    if signature.weights == "bipolar":
        return ((1 << n) - 1) * w.sum(1) - a @ (2 * w - (1 << m) + 1).T
    if signature.weights == "signed":
        w = np.where(w >> (m - 1), w - (1 << m), w)
    return a @ w.T


def is_right(signature: KernelSignature) -> bool:
    """Whether the plan's own meaning agrees with multiplication on every pair of levels."""
    n, m = signature.activation_planes, signature.weight_planes
    a = np.arange(1 << n, dtype=np.uint8)[:, None]
    w = np.arange(1 << m, dtype=np.uint8)[:, None]
    return np.array_equal(raw_sums(signature, a, w), product_of(signature, a, w))


def mutants(signature: KernelSignature) -> Iterator[KernelSignature]:
    """Plans one or two slips away from a right one."""
    terms = signature.terms
    for index, term in enumerate(terms):
        changed = [
            *(replace(term, coefficient=c) for c in coefficients(term)),
            replace(term, op="and" if term.op == "xor" else "xor"),
            *(replace(term, activation_plane=p) for p in range(-1, 4)),
            *(replace(term, weight_plane=p) for p in range(-1, 4)),
        ]
        for other in changed:
            yield replace(signature, terms=(*terms[:index], other, *terms[index + 1 :]))
        yield replace(signature, terms=(*terms, term))
        if len(terms) > 1:
            yield replace(signature, terms=(*terms[:index], *terms[index + 1 :]))
            # Two coefficients swapped.
            swapped = list(terms)
            left, right = swapped[index], swapped[index - 1]
            swapped[index] = replace(left, coefficient=right.coefficient)
            swapped[index - 1] = replace(right, coefficient=left.coefficient)
            yield replace(signature, terms=tuple(swapped))
    yield replace(signature, terms=tuple(replace(t, op="and") for t in terms))
    yield replace(signature, terms=tuple(replace(t, op="xor") for t in terms))
    yield replace(signature, terms=tuple(replace(t, coefficient=-t.coefficient) for t in terms))


def coefficients(term: Term) -> tuple[int, ...]:
    c = term.coefficient
    return 0, -c, 2 * c, c + 1, c - 1, 16 * c


@plans
def test_every_plan_of_the_family_is_certified(plan: tuple[Encoding, int, int]) -> None:
    _, n, m = plan
    signature = popcount(AARCH64, plan)
    assert is_right(signature)
    certificate = certify(signature)
    assert certificate["pairs"] == 1 << (n + m)
    assert 0 < certificate["counter_max"] <= 255
    assert certify(popcount(AVX512VPOPCNTDQ, plan))["counter_max"] == 0


@plans
def test_a_right_plan_is_right_for_long_vectors(plan: tuple[Encoding, int, int]) -> None:
    _, n, m = plan
    rng = np.random.default_rng(n + 3 * m)
    a, w = rng.integers(0, 1 << n, (5, 1000)), rng.integers(0, 1 << m, (7, 1000))
    signature = popcount(AARCH64, plan)
    np.testing.assert_array_equal(raw_sums(signature, a, w), product_of(signature, a, w))


def test_no_wrong_plan_is_certified() -> None:
    wrong = 0
    for plan in PLANS:
        for mutant in mutants(popcount(AARCH64, plan)):
            if is_right(mutant) and planes_exist(mutant):
                continue
            wrong += 1
            with pytest.raises(ProofError):
                certify(mutant)
    assert wrong > 1000


def planes_exist(signature: KernelSignature) -> bool:
    return all(
        0 <= term.activation_plane < signature.activation_planes
        and 0 <= term.weight_plane < signature.weight_planes
        for term in signature.terms
    )


def test_a_plane_behind_the_last_is_refused_although_its_bits_would_be_zero() -> None:
    right = popcount(AARCH64, ("unipolar", 2, 1))
    beyond = replace(right, terms=(*right.terms, Term(1, "and", 2, 0)))
    assert is_right(beyond)
    with pytest.raises(ProofError, match="reads a plane that does not exist"):
        certify(beyond)


@plans
def test_a_plan_is_proved_for_its_own_encoding_alone(plan: tuple[Encoding, int, int]) -> None:
    signature = popcount(AARCH64, plan)
    for other in ("unipolar", "bipolar", "signed"):
        claimed = replace(signature, weights=other)
        if other != plan[0]:
            with pytest.raises(ProofError, match="instead of"):
                certify(claimed)


@plans
def test_the_flush_period_is_the_longest_without_overflow(
    plan: tuple[Encoding, int, int],
) -> None:
    signature = popcount(AARCH64, plan)
    together = certify(signature)["counter_max"] // (8 * signature.flush_period)
    longer = replace(signature, flush_period=signature.flush_period + 1)
    with pytest.raises(ProofError, match=f"counter can reach {longer.flush_period * 8 * together}"):
        certify(longer)
    for period in (0, -1):
        with pytest.raises(ProofError, match="never emptied"):
            certify(replace(signature, flush_period=period))
    with pytest.raises(ProofError, match="never emptied"):
        certify(replace(signature, flush="none"))


def test_products_of_bytes_need_no_plan() -> None:
    assert certify(mac8(AARCH64))["spec"] == "sum of u8 x s8 products in int32"
