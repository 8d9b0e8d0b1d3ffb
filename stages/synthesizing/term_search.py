"""The search for term plans: sums of few terms that equal a product, up to `u(a) + v(w)`.

A term of one logic operation is, up to functions of one level alone (`interaction.py`), the outer
product of a function of the activation and one of the weight: of two planes for `and` and `xor`; of
a plane and a difference of two planes for the `choose` operations. All such outer products times
small coefficients are hashed linearly, and sums of up to three that equal the product are met in
the middle (`method.md`, "Term plans").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from stages.kernels.terms import Op
from stages.synthesizing.interaction import interaction

Array = np.ndarray[Any, Any]
Function = tuple[int, ...]
"""Values per level: 0 and 1 for a plane, -1 to 1 for a difference of planes."""
COEFFICIENTS = (1, 2, 3, 4)


@dataclass(frozen=True)
class OuterProduct:
    """A term in the quotient: a function of the activation times one of the weight."""

    a: Function
    w: Function

    @property
    def op(self) -> Op:
        """The operation that computes it."""
        if -1 in self.a:
            return "choose_a"
        return "choose_w" if -1 in self.w else "and"


Solution = tuple[tuple[int, OuterProduct], ...]
"""Coefficients and candidates whose sum is the product, up to `u(a) + v(w)`."""


def functions(levels: int, values: Sequence[int]) -> list[Function]:
    """Functions of a level up to sign and constants, not constant themselves."""
    seen: dict[Function, Function] = {}
    for f in product(values, repeat=levels):
        shape = tuple(x - f[0] for x in f)
        opposite = tuple(-x for x in shape)
        if any(shape) and shape not in seen and opposite not in seen:
            seen[shape] = f
    return list(seen.values())


def outer_products(activation_bits: int, weight_bits: int) -> list[OuterProduct]:
    """Every term of one logic operation, once."""
    a, w = 1 << activation_bits, 1 << weight_bits
    bits_a, bits_w = functions(a, (0, 1)), functions(w, (0, 1))
    differences_a = [f for f in functions(a, (0, 1, -1)) if max(f) - min(f) == 2]
    differences_w = [f for f in functions(w, (0, 1, -1)) if max(f) - min(f) == 2]
    pairs = [*product(bits_a, bits_w), *product(differences_a, bits_w)]
    pairs += product(bits_a, differences_w)
    return [OuterProduct(x, y) for x, y in pairs]


def met_in_the_middle(pool: list[OuterProduct], wanted: Array, terms: int) -> list[Solution]:
    """All solutions with the fewest terms, up to `terms`."""
    a = np.array([c.a for c in pool], np.int64)
    w = np.array([c.w for c in pool], np.int64)
    vectors = interaction(a[:, :, None] * w[:, None, :]).reshape(len(pool), -1)
    weights = np.random.default_rng(7).integers(1, 1 << 62, vectors.shape[1], np.int64)
    target = int((interaction(wanted).reshape(-1) * weights).sum())
    factors = np.array([s * c for c in COEFFICIENTS for s in (1, -1)], np.int64)
    # Wrapping products and sums: the hash is linear modulo 2^64.
    hashes = ((vectors * weights).sum(1)[:, None] * factors[None, :]).ravel()
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]

    def numbered(index: int) -> tuple[int, OuterProduct]:
        return int(factors[index % len(factors)]), pool[index // len(factors)]

    for count in range(1, terms + 1):
        found = []
        for chosen, rest in _partial_sums(hashes, target, count - 1):
            first = np.searchsorted(ordered, rest)
            hits = np.flatnonzero(ordered[np.minimum(first, len(ordered) - 1)] == rest)
            for hit in hits:
                indices = (*chosen, *([int(hit)] if count > 1 else []), int(order[first[hit]]))
                if tuple(sorted(indices)) == indices:
                    found.append(tuple(numbered(i) for i in indices))
        exact = [s for s in found if not (interaction(wanted) - _sum_of(s)).any()]
        if exact:
            return exact
    return []


def _partial_sums(hashes: Array, target: int, free: int) -> Iterator[tuple[tuple[int, ...], Array]]:
    """What is left of the target after `free` terms: the last of them runs along an array."""
    with np.errstate(over="ignore"):
        if free == 0:
            yield (), np.array([target], np.int64)
        elif free == 1:
            yield (), np.int64(target) - hashes
        else:
            for first in range(len(hashes)):
                for chosen, rest in _partial_sums(hashes, int(target - hashes[first]), free - 1):
                    yield (first, *chosen), rest


def _sum_of(solution: Solution) -> Array:
    terms = [c * interaction(np.multiply.outer(x.a, x.w).astype(np.int64)) for c, x in solution]
    total: Array = np.sum(terms, axis=0)
    return total
