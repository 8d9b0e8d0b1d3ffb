"""Random kernel signatures, and levels and weights that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from stages.kernels.families import Dots, NarrowDots
from stages.kernels.operand_storage import Stored
from stages.kernels.signature import KernelSignature, stored_by
from stages.kernels.terms import TermPlan, weight_values
from tests.stages.synthesizing.plans import PLANS

Array = np.ndarray[Any, Any]


def popcount(
    plan: TermPlan, channels: int = 8, rows: int = 1, inner: bool = False
) -> KernelSignature:
    """A bit-serial signature, its planes outermost or word by word inside a pixel."""
    stored = stored_by(plan, int(inner))
    return KernelSignature("neon_aarch64", plan, None, rows, channels, "window", 10, stored)


def mac8(group: int, channels: int = 8) -> KernelSignature:
    """A signature of 8-bit products."""
    return KernelSignature("sse2", None, Dots(group), 1, channels, "none", 0)


def narrow(
    group: int, bits: int, activation_bits: int, weight_limit: int, channels: int
) -> KernelSignature:
    """A signature of products of small levels in narrow lanes."""
    products = NarrowDots(group, bits, activation_bits, weight_limit)
    return KernelSignature("neon_aarch64", None, products, 2, channels, "window", 3)


def joined(plan: TermPlan) -> st.SearchStrategy[Stored]:
    """What the activations of a plan hold beside other readers, in any order."""
    others = [p for p in PLANS if p.activation_bits == plan.activation_bits]
    readers = st.lists(st.sampled_from(others), max_size=3)
    return st.tuples(readers, readers).map(lambda both: _stored([*both[0], plan, *both[1]]))


def _stored(plans: list[TermPlan]) -> Stored:
    stored = stored_by(plans[0])
    for plan in plans[1:]:
        stored = stored.joined(stored_by(plan))
    return stored


CHANNELS = st.sampled_from([4, 8, 16, 32])
ALONE = st.builds(popcount, st.sampled_from(PLANS), CHANNELS, st.integers(1, 4), st.booleans())
POPCOUNT = st.one_of(
    ALONE,
    ALONE.flatmap(lambda s: st.builds(s.reading, joined(s.plan)) if s.plan else st.nothing()),
)
"""Popcounts of planes that are stored for them alone, or with those of others."""
MAC8 = st.one_of(
    st.builds(mac8, st.sampled_from([1, 2, 4]), CHANNELS),
    st.builds(
        narrow,
        st.sampled_from([1, 2, 4]),
        st.sampled_from([8, 16]),
        st.integers(1, 4),
        st.integers(1, 7),
        CHANNELS,
    ),
)
SIGNATURES = st.one_of(POPCOUNT, MAC8)


def activation_bits(signature: KernelSignature) -> int:
    """Bits of an input level."""
    if signature.plan is not None:
        return signature.plan.activation_bits
    assert signature.products is not None
    return signature.products.activation_bits


def stored_range(signature: KernelSignature) -> tuple[int, int]:
    """Smallest and largest stored weight."""
    if (plan := signature.plan) is None:
        assert signature.products is not None
        limit = signature.products.weight_limit
        return -limit, min(limit, 127)
    if plan.weights == "signed":
        return -(1 << (plan.weight_bits - 1)), (1 << (plan.weight_bits - 1)) - 1
    return 0, (1 << plan.weight_bits) - 1


def levels(rng: np.random.Generator, signature: KernelSignature, shape: tuple[int, ...]) -> Array:
    """Random input levels, uint8."""
    return rng.integers(0, 1 << activation_bits(signature), shape).astype(np.uint8)


def stored(rng: np.random.Generator, signature: KernelSignature, shape: tuple[int, ...]) -> Array:
    """Random stored weights, int16."""
    low, high = stored_range(signature)
    return rng.integers(low, high + 1, shape).astype(np.int16)


def patterns(plan: TermPlan, q: Array) -> Array:
    """Stored weights as the unsigned numbers of their bits."""
    return q.astype(np.int64) & ((1 << plan.weight_bits) - 1)


def meaning(signature: KernelSignature, q: Array) -> Array:
    """Integers that stored weights stand for (numerators), int64."""
    plan = signature.plan
    if plan is None:
        return q.astype(np.int64)
    found: Array = weight_values(plan.weights, plan.weight_bits)[patterns(plan, q)]
    return found
