"""Selection: which candidate kernels fit a layer's weights, and which is the cheapest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Any

import numpy as np

from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelAlgorithm, KernelCandidate, from_table
from stages.kernels.operand_storage import BYTE_LIMIT
from stages.kernels.signature import BLOCK
from stages.kernels.winograd_transforms import WINDOW, transforms_of
from stages.kinds import Table
from stages.layer_options import Algorithm

_BYTES: tuple[KernelAlgorithm, ...] = ("mac8",)


def weight_limit_of(weight: np.ndarray[Any, Any]) -> int:
    """The largest magnitude of weights, where that of 128, which no signed byte holds, is 129."""
    levels = weight.astype(np.int32)
    largest = int(np.abs(levels).max(initial=0))
    return max(largest, BYTE_LIMIT + 1) if levels.max(initial=0) == BYTE_LIMIT else largest


def byte_algorithms(
    weight: np.ndarray[Any, Any], strides: Sequence[int], wanted: Algorithm | None = None
) -> set[KernelAlgorithm]:
    """The algorithms for products of levels as bytes, by their weights [O, KH, KW, C] and what
    windows move by, or the one that is `wanted` if it is among them."""
    transforms = transforms_of(strides) if weight.shape[1:3] == (WINDOW, WINDOW) else []
    is_byte = weight_limit_of(weight) <= BYTE_LIMIT
    sums_fit = is_byte and all(one.fits(weight) for one in transforms)
    found: set[KernelAlgorithm] = {"mac8", "winograd"} if transforms and sums_fit else {"mac8"}
    return found if wanted is None else found & {wanted}


def byte_candidates(
    table: Table,
    activation_bits: int,
    weight: np.ndarray[Any, Any],
    algorithms: Collection[KernelAlgorithm] = _BYTES,
) -> list[KernelCandidate]:
    """Candidates for products of levels as bytes, of any problem but those of floats, that levels
    of so many bits and these weights fit."""
    weight_limit = weight_limit_of(weight)
    found = {
        candidate.signature.name: candidate
        for data in table.values()
        for candidate in storable(from_table(data), weight)
        if (products := candidate.signature.products) is not None
        and not candidate.signature.is_float
        and candidate.algorithm in algorithms
        and activation_bits <= products.activation_bits
        and weight_limit <= products.weight_limit
    }
    return [found[name] for name in sorted(found)]


def storable(
    candidates: Sequence[KernelCandidate], weight: np.ndarray[Any, Any]
) -> list[KernelCandidate]:
    """The candidates whose kernels can store these weights."""
    codes = {code for candidate in candidates if (code := candidate.signature.code) is not None}
    lacking = {code for code in codes if not code.holds(weight)}
    return [candidate for candidate in candidates if candidate.signature.code not in lacking]


def best(
    candidates: Sequence[KernelCandidate], geometry: Geometry, outputs: int = BLOCK
) -> KernelCandidate:
    """The cheapest candidate for a layer; ties go to the smaller name, so that builds repeat."""
    return ranked(candidates, geometry, outputs)[0]


def ranked(
    candidates: Sequence[KernelCandidate], geometry: Geometry, outputs: int
) -> list[KernelCandidate]:
    """The candidates that fit a layer, the cheapest first."""
    costs = [
        (candidate.layer(geometry, outputs), candidate.signature.name, candidate)
        for candidate in candidates
        if geometry.takes(candidate.signature)
    ]
    return [candidate for cost, _, candidate in sorted(costs, key=lambda c: c[:2]) if cost < inf]
