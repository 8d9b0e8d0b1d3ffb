"""Coupled words: the differing bits of two words by one population count.

Where bits x of a pixel and w of weights differ, a plan for bipolar weights counts 1. Of two words
at a time, whose bits at one place are x1, x2 and w1, w2, that is

    (x1 ^ w1) + (x2 ^ w2) = 2 g + (w1 ^ w2) - (x1 ^ x2),
    g = ~(w1 ^ w2) where x2 ^ w1 is set, x1 ^ x2 elsewhere

as a table of all 16 cases shows. Two instructions make g, an exclusive or and a choice that
overwrites it; two more count and add. So four do what takes six word by word. `w1 ^ w2` is of the
weights alone, a constant of the channel; `x1 ^ x2` is of the pixel alone, counted once for all
channels of a tile.

Weights are stored as w1 and ~(w1 ^ w2), the channels of a register of each side by side.
Activations stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.kernels.signature import COUPLE, KernelSignature
from stages.kernels.terms import TermPlan, plane_bits

Array = np.ndarray[Any, Any]
REGISTER = 16
"""Bytes of a register."""


def is_coupled(plan: TermPlan) -> bool:
    """Whether the words of a plan can be coupled: all that its terms count is where bits differ."""
    return all(term.op == "xor" for term in plan.terms) and not any(plan.activation_sum)


def couple(words: Array) -> Array:
    """Words of weight planes uint8 [..., W, channels, bytes] as kernels read them, of equal shape.

    Of both words of a couple the channels of a register lie together, so that loads go through
    memory line by line: only then processors bring the next lines on their own.
    """
    *head, count, channels, size = words.shape
    lanes = REGISTER // size
    both = words.reshape(*head, count // COUPLE, COUPLE, channels // lanes, lanes, size)
    first, second = np.moveaxis(both, -4, 0)
    return np.stack([first, ~(first ^ second)], -3).reshape(words.shape)


def uncouple(words: Array) -> Array:
    """Words of weight planes that `couple` was called with."""
    *head, count, channels, size = words.shape
    lanes = REGISTER // size
    both = words.reshape(*head, count // COUPLE, channels // lanes, COUPLE, lanes, size)
    first, alike = np.moveaxis(both, -3, 0)
    return np.stack([first, ~(first ^ alike)], -4).reshape(words.shape)


def left_out(signature: KernelSignature, weights: Array) -> Array:
    """What coupled kernels leave out of their sums, of stored weights [O, K]: int64 [O].

    It is w1 ^ w2 of all couples, times the coefficients of terms.
    """
    plan = signature.plan
    assert plan is not None and signature.coupled
    patterns = weights.astype(np.int64) & ((1 << plan.weight_bits) - 1)
    couples = patterns.reshape(len(patterns), -1, COUPLE, signature.word_bits)
    total = np.zeros(len(patterns), np.int64)
    for term in plan.terms:
        bits = plane_bits(plan.weight_planes[term.weights[0]], 1 << plan.weight_bits)[couples]
        total += term.coefficient * (bits[:, :, 0] ^ bits[:, :, 1]).sum((1, 2))
    return total
