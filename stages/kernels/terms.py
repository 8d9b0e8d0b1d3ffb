"""Term plans: a product of quantized levels as a sum of popcounts of bit planes.

A plane is a truth table over the levels of one operand: bit `l` of an int says whether a channel at
level `l` is set. The raw binary digits of a 2-bit level are the planes 0b1010 and 0b1100; others
are recodings (complements, ternary digits), made where levels are packed. A term counts the bits of
one logic operation on planes. A plan's sum over terms equals the product up to a factor, a function
of the activation (summed per pixel where levels are packed) and one of the weight (part of the
bias): `stages/synthesizing/method.md`, "Term plans".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from stages.layer_options import Encoding

Array = np.ndarray[Any, Any]
Op = Literal["and", "xor", "choose_a", "choose_w"]
"""`choose_a`: a weight bit chooses between two activation planes; `choose_w`: the reverse."""
OPERANDS: dict[Op, tuple[int, int]] = {
    "and": (1, 1),
    "xor": (1, 1),
    "choose_a": (2, 1),
    "choose_w": (1, 2),
}
"""How many planes of activations and of weights an operation reads."""


@dataclass(frozen=True)
class Term:
    """`coefficient * popcount(op(planes))`; planes by their index in the plan."""

    coefficient: int
    op: Op
    activations: tuple[int, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if (len(self.activations), len(self.weights)) != OPERANDS[self.op]:
            raise ValueError(f"{self} has a wrong number of planes")


@dataclass(frozen=True)
class TermPlan:
    """Terms over planes; `levels product = scale * (sum of terms + activation sums) + v(weights)`.

    `activation_sum` holds what each activation level adds, empty if nothing; level 0 adds 0.
    """

    activation_bits: int
    weight_bits: int
    weights: Encoding
    activation_planes: tuple[int, ...]
    weight_planes: tuple[int, ...]
    terms: tuple[Term, ...]
    scale: int = 1
    activation_sum: tuple[int, ...] = field(default=())

    @property
    def widest(self) -> int:
        """The most terms that share a coefficient."""
        return max(len(self.of(coefficient)) for coefficient in self.coefficients)

    @property
    def kind(self) -> str:
        """What the terms are made of: `and4`, `xor2`, `choose_a2`, or `mix3` for several kinds."""
        ops = {term.op for term in self.terms}
        return f"{ops.pop() if len(ops) == 1 else 'mix'}{len(self.terms)}"

    @property
    def name(self) -> str:
        """Unique among plans: kind, then bits and planes (as hexadecimal tables) per operand."""
        a, w = (
            f"{letter}{bits}" + "".join(f"x{table:x}" for table in planes)
            for letter, bits, planes in (
                ("a", self.activation_bits, self.activation_planes),
                ("w", self.weight_bits, self.weight_planes),
            )
        )
        return f"{self.kind}_{a}_{w}_{self.weights}"

    @property
    def coefficients(self) -> tuple[int, ...]:
        """The distinct coefficients, the largest first."""
        return tuple(sorted({term.coefficient for term in self.terms}, key=lambda c: (-abs(c), c)))

    def of(self, coefficient: int) -> tuple[Term, ...]:
        """The terms of one coefficient."""
        return tuple(term for term in self.terms if term.coefficient == coefficient)

    def table(self) -> Array:
        """What the plan adds per pair of levels, activation sums included: int64 [2^n, 2^m]."""
        total = np.zeros((1 << self.activation_bits, 1 << self.weight_bits), np.int64)
        if self.activation_sum:
            total += np.array(self.activation_sum, np.int64)[:, None]
        for term in self.terms:
            total += term.coefficient * term_table(term, self)
        return total


def plane_bits(table: int, levels: int) -> Array:
    """A plane's bit per level, int64 [levels]."""
    return np.array([table >> level & 1 for level in range(levels)], np.int64)


def term_table(term: Term, plan: TermPlan) -> Array:
    """The operation's result per pair of levels, 0 or 1: int64 [2^n, 2^m]."""
    a = [plane_bits(plan.activation_planes[i], 1 << plan.activation_bits) for i in term.activations]
    w = [plane_bits(plan.weight_planes[i], 1 << plan.weight_bits) for i in term.weights]
    x, y = a[0][:, None], w[0][None, :]
    if term.op == "and":
        return x & y
    if term.op == "xor":
        return x ^ y
    if term.op == "choose_a":
        return np.where(y == 1, x, a[1][:, None])
    return np.where(x == 1, y, w[1][None, :])


def weight_values(encoding: Encoding, bits: int) -> Array:
    """What each stored pattern of a weight means: int64 [2^bits]."""
    stored = np.arange(1 << bits, dtype=np.int64)
    if encoding == "bipolar":
        return 2 * stored - (1 << bits) + 1
    if encoding == "signed":
        return stored - (stored >> (bits - 1) << bits)
    return stored


def products(activation_bits: int, weight_bits: int, encoding: Encoding) -> Array:
    """Activation level times weight value, int64 [2^n, 2^m]: what a plan stands for."""
    levels = np.arange(1 << activation_bits, dtype=np.int64)
    return np.multiply.outer(levels, weight_values(encoding, weight_bits))


def raw_planes(bits: int) -> tuple[int, ...]:
    """The binary digits of a level, lowest first, as planes."""
    return tuple(
        sum(1 << level for level in range(1 << bits) if level >> digit & 1) for digit in range(bits)
    )


def digit_plan(
    op: Literal["and", "xor"], activation_bits: int, weight_bits: int, encoding: Encoding
) -> TermPlan:
    """One popcount per pair of binary digits.

    `and`: a * w = sum of 2^(i+j) a_i w_j, with a negative top digit for two's complement. `xor`:
    a * (2w - 1) = w - (a ^ w) for bits, so bipolar weights need the exclusive or alone.
    """
    terms = []
    for i in range(activation_bits):
        for j in range(weight_bits):
            negative = encoding == "signed" and j == weight_bits - 1
            terms.append(Term((-1 if negative else 1) << (i + j), op, (i,), (j,)))
    return TermPlan(
        activation_bits,
        weight_bits,
        encoding,
        raw_planes(activation_bits),
        raw_planes(weight_bits),
        tuple(terms),
        -1 if encoding == "bipolar" and op == "xor" else 1,
    )
