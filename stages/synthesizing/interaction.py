"""Functions of a pair of levels, modulo functions of one level alone.

Terms of the activation alone are added once per pixel and terms of the weight alone are constants
of a channel, so a plan need only match a product in the quotient by `u(a) + v(w)`. There `and`,
`or` and `xor` are one function up to a factor, and unipolar, hybrid and bipolar products are one
problem (`method.md`, "Term plans").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stages.kernels.terms import TermPlan, products

Array = np.ndarray[Any, Any]
SCALES = (1, -1, 2, -2, 4, -4)
"""Factors between a product and a plan that are tried, the cheapest first."""


def interaction(table: Array) -> Array:
    """The part of tables [..., 2^n, 2^m] that no `u(a) + v(w)` explains: 0 in row and column 0."""
    return table - table[..., :1, :] - table[..., :1] + table[..., :1, :1]


def completed(plan: TermPlan) -> TermPlan | None:
    """The plan with the scale and the activation sums that make it right; None if none do.

    `plan.scale` and `plan.activation_sum` are found anew. A scale other than 1 beside activation
    sums is multiplied into the coefficients, so that kernels can add the sums as they are.
    """
    wanted = products(plan.activation_bits, plan.weight_bits, plan.weights)
    bare = replace(plan, scale=1, activation_sum=()).table()
    for scale in SCALES:
        rest = wanted - scale * bare
        if interaction(rest).any():
            continue
        sums = tuple(int(x) for x in rest[:, 0] - rest[0, 0])
        if not any(sums):
            return replace(plan, scale=scale, activation_sum=())
        terms = tuple(replace(t, coefficient=scale * t.coefficient) for t in plan.terms)
        return replace(plan, terms=terms, scale=1, activation_sum=sums)
    return None


def residual(plan: TermPlan) -> Array:
    """`v(w)`, int64 [2^m]; AssertionError if the plan is not its product up to such a term."""
    wanted = products(plan.activation_bits, plan.weight_bits, plan.weights)
    rest = wanted - plan.scale * plan.table()
    assert not (rest != rest[:1]).any(), plan.name
    v: Array = rest[0]
    return v
