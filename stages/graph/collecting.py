"""Batches that were split: what is computed for each image, and what once for all.

    one = layer(data) [1, 14, 14, 256]; all = collect(one) [8, 14, 14, 256]; last(all) [8, 1000]

`main` is run for one image after the other up to where they are collected; whatever depends on
that follows once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.dialect import integer_te
from stages.dialect.calls import dtype_of, is_op, shape_of, tensor_type
from stages.dialect.registry import register
from stages.graph.bindings import bindings_of, variables_in
from stages.kinds import Array, Model
from stages.nodes import Expr, Function, Var


def _infer(types: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    one, *rest = shape_of(types[0]) or (0,)
    if one != 1 or attrs["pictures"] < 1:
        raise TypeError(
            f"qnn.collect: {attrs['pictures']} images of shape {shape_of(types[0])}; accepted: "
            "one image of several"
        )
    return tensor_type((attrs["pictures"], *rest), dtype_of(types[0]))


@register("collect", ["data"], _infer, integer_te.collect)
def collect(data: Array, *, pictures: int) -> Array:
    """All images of a batch, [pictures, ...], of which `data` [1, ...] is the one at hand.

    `data` with all of them is itself; where it is one alone, the others are the same.
    """
    return np.repeat(data, pictures // len(data), axis=0)


def is_collect(expr: Expr) -> bool:
    """Whether an expression collects images."""
    return is_op(expr, "relax.qnn.collect")


def images_of(model: Model) -> int:
    """How many images of a batch `main` is run for, one after the other."""
    return int(model.module["main"].attrs.get("pictures", 1))


def variables_per_batch(main: Function) -> set[Var]:
    """The variables of `main` that are computed once for all images."""
    found: set[Var] = set()
    for binding in bindings_of(main):
        if is_collect(binding.value) or not found.isdisjoint(variables_in(binding.value)):
            found.add(binding.var)
    return found
