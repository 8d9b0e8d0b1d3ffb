"""Proof that a kernel's term plan computes the product it stands for, for all inputs.

A sum over popcounts is a sum over bit positions, so a plan is right for every vector if it is for
every pair of an activation level and a weight level: 2^(n+m) pairs at most, checked one by one
(section 3 of the synthesis notes: equality of integer vectors is equality for all inputs).
"""

from __future__ import annotations

from hw.isa import ISAS
from stages.kinds import Table
from stages.qnn.signature import Encoding, KernelSignature

SPECS: dict[Encoding, str] = {
    "unipolar": "raw = a * w",
    "signed": "raw = a * w, w in two's complement",
    "bipolar": "raw = (2^n - 1) * w - a * (2w - 2^m + 1)",
}
BYTE_MAX = 255
BITS_PER_BYTE = 8


class ProofError(AssertionError):
    """A term plan that does not compute what its signature promises."""


def certify(signature: KernelSignature) -> Table:
    """The certificate of a signature; raises ProofError with the first thing that is wrong.

    `counter_max` is the largest value of a byte counter if each is emptied after `flush_period`
    words at the latest, which `stages.synthesizing.check` makes sure of.
    """
    if signature.family == "mac8":
        return {"spec": "sum of u8 x s8 products in int32", "pairs": 0, "counter_max": 0}
    n, m = signature.activation_planes, signature.weight_planes
    for term in signature.terms:
        if not (0 <= term.activation_plane < n and 0 <= term.weight_plane < m):
            raise ProofError(f"{signature.name}: {term} reads a plane that does not exist")
    for a in range(1 << n):
        for w in range(1 << m):
            total = _plan(signature, a, w)
            expected = _expected(signature, a, w)
            if total != expected:
                raise ProofError(f"{signature.name}: a={a}, w={w}: {total} instead of {expected}")
    return {
        "spec": SPECS[signature.weights],
        "pairs": 1 << (n + m),
        "counter_max": _counter_max(signature),
    }


def _plan(signature: KernelSignature, a: int, w: int) -> int:
    """The plan's value at one bit position."""
    total = 0
    for term in signature.terms:
        x, y = (a >> term.activation_plane) & 1, (w >> term.weight_plane) & 1
        total += term.coefficient * ((x & y) if term.op == "and" else (x ^ y))
    return total


def _expected(signature: KernelSignature, a: int, w: int) -> int:
    """What the signature promises; bipolar weights leave a term of w alone, for the bias."""
    n, m = signature.activation_planes, signature.weight_planes
    if signature.weights == "bipolar":
        return ((1 << n) - 1) * w - a * (2 * w - (1 << m) + 1)
    negative = signature.weights == "signed" and w >> (m - 1)
    return a * (w - (1 << m) if negative else w)


def _counter_max(signature: KernelSignature) -> int:
    """Largest byte count before a flush; raises ProofError where a byte could overflow."""
    if not ISAS[signature.isa].counts_bytes:
        return 0
    if signature.flush == "none" or signature.flush_period < 1:
        raise ProofError(f"{signature.name}: its byte counters are never emptied")
    coefficients = [term.coefficient for term in signature.terms]
    together = max(coefficients.count(coefficient) for coefficient in coefficients)
    largest = signature.flush_period * BITS_PER_BYTE * together
    if largest > BYTE_MAX:
        raise ProofError(f"{signature.name}: a byte counter can reach {largest}")
    return largest
