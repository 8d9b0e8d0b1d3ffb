"""What Winograd's transforms cost around the products of a kernel, counted as they are written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hw.core_costs import CoreCosts
from hw.isa import Isa, Operation
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.signature import BLOCK
from stages.kernels.winograd_transforms import TRANSFORMS, Transform

STREAM, STREAM_OF_BOARDS = 10.0, 150.0
"""Cycles for 64 bytes of weights from beyond the L2 cache, both assumed: 24 GB/s at 3.7 GHz,
where one core of a Zen 4 reads 27 from memory and up to 100 from the L3 cache, as timed; and on
boards with Arm cores, which have no third one, 2 GB/s for four cores of 1.2 GHz, half of what the
memory of a Raspberry Pi 3 (LPDDR2 of 32 bits and 900 MHz) could give."""


STREAM_OF_FLOATS = 12.0
"""Cycles for 64 bytes of weights from beyond the L2 cache, of floats on x86, which are twice as
many bytes: 20 GB/s at 3.7 GHz."""


class _Counted:
    """A value whose operations are counted."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def _after(self, _: Any) -> _Counted:
        self.counts["operations"] += 1
        return self

    __add__ = __sub__ = __mul__ = _after


def operations_of(transform: Transform) -> tuple[int, int]:
    """Additions, and products with powers of two, for the pixels of a tile, and for its sums."""
    pixels, sums = Counter[str](), Counter[str]()
    transform.of_data([_Counted(pixels)] * transform.products)
    transform.of_products([_Counted(sums)] * transform.products)
    return pixels["operations"], sums["operations"]


def with_transform_costs(candidate: KernelCandidate, isa: Isa, costs: CoreCosts) -> KernelCandidate:
    """The candidate of a kernel of transformed products, with what is before and behind it.

    A load costs as a store does, which few tables know; of an operation on lanes of 16 or 32 bits
    all cost as an addition.
    """
    around = _around_floats if candidate.signature.is_float else _around
    before, behind = zip(*(around(one, isa, costs) for one in TRANSFORMS), strict=True)
    stream = stream_of(isa)
    if candidate.signature.is_float and stream == STREAM:
        stream = STREAM_OF_FLOATS
    return replace(
        candidate,
        data_transform_cycles=before,
        sum_transform_cycles=behind,
        weight_stream_cycles=stream,
    )


def _around(transform: Transform, isa: Isa, costs: CoreCosts) -> tuple[float, float]:
    """Cycles for 32 channels of a tile of pixels, and of one of sums."""
    load, of_pixels, of_sums = f"load_{isa.bytes}", *operations_of(transform)
    before = {isa[Operation.ADD_16].name: of_pixels, load: 2 * transform.products}
    sums = transform.outputs**2
    # Sums are stored by the kernel and read again, as are what they become.
    behind = {isa[Operation.ADD_32].name: of_sums, load: 2 * transform.products + 2 * sums}
    if any(transform.shifts):
        behind |= {isa[Operation.ADD_32].name: of_sums + sums}
    if transform.odd != 1:  # multiplied by the inverse
        behind |= {isa[Operation.SCALE_ADD_32].name: sums}
    registers = BLOCK / isa.lanes
    return (
        round(costs.cycles(before) * registers / 2, 3),
        round(costs.cycles(behind) * registers, 3),
    )


def _around_floats(transform: Transform, isa: Isa, costs: CoreCosts) -> tuple[float, float]:
    """The same of floats, of which an operation costs as a product that is added does."""
    load, operation = f"load_{isa.bytes}", isa[Operation.FLOAT_MAC].name
    of_pixels, of_sums = operations_of(transform)
    sums = transform.outputs**2
    before = {operation: of_pixels, load: 2 * transform.products}
    behind = {operation: of_sums + sums, load: 2 * transform.products + 2 * sums}
    registers = BLOCK / isa.lanes
    return round(costs.cycles(before) * registers, 3), round(costs.cycles(behind) * registers, 3)


def stream_of(isa: Isa) -> float:
    """Cycles for 64 bytes of weights from beyond the L2 cache."""
    return STREAM_OF_BOARDS if isa.is_arm else STREAM
