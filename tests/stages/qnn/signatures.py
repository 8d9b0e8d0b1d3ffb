"""Random kernel signatures, and levels and weights that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from stages.qnn.signature import Encoding, KernelSignature, popcount_terms

Array = np.ndarray[Any, Any]


def popcount(
    activation_bits: int, weight_bits: int, weights: Encoding, channels: int = 8, rows: int = 1
) -> KernelSignature:
    """A bit-serial signature."""
    return KernelSignature(
        family="popcount",
        isa="neon_aarch64",
        terms=popcount_terms(
            "xor" if weights == "bipolar" else "and",
            activation_bits,
            weight_bits,
            weights == "signed",
        ),
        activation_planes=activation_bits,
        weight_planes=weight_bits,
        rows=rows,
        channels=channels,
        flush="window",
        flush_period=10,
        weights=weights,
    )


def mac8(group: int, channels: int = 8) -> KernelSignature:
    """A signature of 8-bit products."""
    return KernelSignature("mac8", "sse2", (), 1, 1, 1, channels, "none", 0, group)


POPCOUNT = st.builds(
    popcount,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["unipolar", "bipolar", "signed"]),
    st.sampled_from([4, 8, 16, 32]),
    st.integers(1, 4),
)
MAC8 = st.builds(mac8, st.sampled_from([1, 2, 4]), st.sampled_from([4, 8, 16, 32]))
SIGNATURES = st.one_of(POPCOUNT, MAC8)


def activation_bits(signature: KernelSignature) -> int:
    """Bits of an input level."""
    return signature.activation_planes if signature.family == "popcount" else 8


def stored_range(signature: KernelSignature) -> tuple[int, int]:
    """Smallest and largest stored weight."""
    if signature.family == "mac8":
        return -128, 127
    bits = signature.weight_planes
    if signature.weights == "signed":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def levels(rng: np.random.Generator, signature: KernelSignature, shape: tuple[int, ...]) -> Array:
    """Random input levels, uint8."""
    return rng.integers(0, 1 << activation_bits(signature), shape).astype(np.uint8)


def stored(rng: np.random.Generator, signature: KernelSignature, shape: tuple[int, ...]) -> Array:
    """Random stored weights, int16."""
    low, high = stored_range(signature)
    return rng.integers(low, high + 1, shape).astype(np.int16)


def meaning(signature: KernelSignature, q: Array) -> Array:
    """Integers that stored weights stand for (numerators), int64."""
    wide = q.astype(np.int64)
    if signature.family == "popcount" and signature.weights == "bipolar":
        return 2 * wide - (1 << signature.weight_planes) + 1
    return wide
