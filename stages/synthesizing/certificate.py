"""Proof that a kernel's term plan computes the product it stands for, for all inputs.

A sum over popcounts is a sum over bit positions, so a plan is right for every vector if it is for
every pair of an activation level and a weight level: 2^(n+m) pairs at most, checked one by one
(section 3 of the synthesis notes: equality of integer vectors is equality for all inputs).
"""

from __future__ import annotations

from stages.kinds import Table
from stages.qnn.signature import KernelSignature


class ProofError(AssertionError):
    """A term plan that does not compute what its signature promises."""


def certify(signature: KernelSignature) -> Table:
    """The certificate of a signature; raises ProofError with the first pair that is wrong."""
    if signature.family == "mac8":
        return {"spec": "sum of u8 x s8 products in int32", "pairs": 0, "counter_max": 0}
    n, m = signature.activation_planes, signature.weight_planes
    spec = _spec(signature)
    for a in range(1 << n):
        for w in range(1 << m):
            total = _plan(signature, a, w)
            expected = _expected(signature, a, w)
            if total != expected:
                raise ProofError(f"{signature.name}: a={a}, w={w}: {total} instead of {expected}")
    return {"spec": spec, "pairs": 1 << (n + m), "counter_max": _counter_max(signature)}


def _plan(signature: KernelSignature, a: int, w: int) -> int:
    """The plan's value at one bit position."""
    total = 0
    for term in signature.terms:
        x, y = (a >> term.activation_plane) & 1, (w >> term.weight_plane) & 1
        total += term.coefficient * ((x & y) if term.op == "and" else (x ^ y))
    return total


def _spec(signature: KernelSignature) -> str:
    if signature.terms[0].op == "and":
        return "raw = a * w"
    return "raw = v(w) - a * (2w - 2^m + 1), v(w) = (2^n - 1) * w"


def _expected(signature: KernelSignature, a: int, w: int) -> int:
    """What the signature promises; `xor` leaves a term of w alone, which the bias cancels."""
    n, m = signature.activation_planes, signature.weight_planes
    if signature.terms[0].op == "xor":
        return ((1 << n) - 1) * w - a * (2 * w - (1 << m) + 1)
    signed = any(term.coefficient < 0 for term in signature.terms)
    value = w - (1 << m) if signed and w >> (m - 1) else w
    return a * value


def _counter_max(signature: KernelSignature) -> int:
    """Largest byte count before a flush; raises ProofError where a byte could overflow."""
    if signature.flush == "none":
        return 0
    coefficients = [term.coefficient for term in signature.terms]
    together = max(coefficients.count(coefficient) for coefficient in coefficients)
    largest = signature.flush_period * 8 * together
    if largest > 255:
        raise ProofError(f"{signature.name}: a byte counter can reach {largest}")
    return largest
