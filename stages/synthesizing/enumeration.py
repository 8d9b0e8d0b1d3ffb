"""Enumeration: every kernel the engine can make for a product, with its predicted cost on a core.

A term plan times a tile is a candidate if its program's live registers fit the instruction set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from hw.core_costs import CoreCosts, core_costs
from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.kernels.families import (
    BytePairs,
    PairedDots,
)
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK, KernelSignature
from stages.synthesizing.bodies import (
    body_of,
)
from stages.synthesizing.body import Body
from stages.synthesizing.compiled_counts import CompiledCounts, count_compiled_loops
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.predicted_cost import priced_candidate, rank, row_of
from stages.synthesizing.sketches import fits_registers, signatures_for, tiles_of
from stages.synthesizing.tile_body import tile_candidate
from stages.synthesizing.winograd_cost import stream_of, with_transform_costs
from stages.synthesizing.word_variants import MOST_OTHERS, other_words

NEAR = 1.3
"""Methods within this factor of the best are candidates for every number of pixels."""


def candidates_for(
    problem: Problem, hardware: Hardware, most: int | None = None
) -> list[KernelCandidate]:
    """The candidates for a problem, the cheapest per multiply-accumulate first.

    `most` limits how many tiles of a plan are considered; without it a plan has candidates for
    every number of pixels, as layers of all widths need.

    Every kernel is compiled and counted once more: LLVM copies a register where an instruction
    overwrites an operand that is needed again, which costs, and it may spill. A kernel that spills
    is left out, and a tile of other channels tried, unless a single pixel has no other kernel.
    """
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    bodies = {
        signature: body
        for signature in signatures_for(problem, isa)
        if fits_registers(signature, body := body_of(signature, isa), isa)
    }
    for signature in other_words(bodies, isa, costs):
        if fits_registers(signature, body := body_of(signature, isa), isa):
            bodies[signature] = body
    groups = _promising(bodies, isa, costs, most)
    counts = _compiled((first for first, *_ in groups), bodies, isa, hardware)
    others = [s for first, *rest in groups if counts[first].stores for s in rest]
    counts |= _compiled(others, bodies, isa, hardware)
    kept = _without_spills({s: counted.stores for s, counted in counts.items()})
    candidates = [
        priced_candidate(s, bodies[s], isa, costs, _copies(bodies[s], counts[s])) for s in kept
    ]
    candidates = [
        replace(
            one,
            row_cycles=row_of(one.signature, bodies[one.signature], isa),
            l1_bytes=1024 * hardware.l1d_kib,
            l2_bytes=1024 * hardware.l2_kib,
        )
        for one in candidates
    ]
    vectors = [_with_memory_costs(one, isa, costs) for one in candidates]
    tiles = [tile_candidate(signature, isa, costs) for signature in tiles_of(problem, isa)]
    return sorted([*vectors, *tiles], key=rank)


def _with_memory_costs(candidate: KernelCandidate, isa: Isa, costs: CoreCosts) -> KernelCandidate:
    """A candidate with what caches, memory, transforms and its epilogue add to its kernel."""
    if candidate.signature.is_transformed:
        memory = costs.memory_line_cycles
        return replace(
            with_transform_costs(candidate, isa, costs),
            l2_line_cycles=costs.l2_line_cycles if memory else 0.0,
            memory_line_cycles=memory,
        )
    return replace(
        candidate,
        l2_line_cycles=costs.l2_line_cycles,
        memory_line_cycles=costs.memory_line_cycles,
        exposed_epilogue=_exposed_epilogue(candidate.signature, isa, costs),
        weight_stream_cycles=stream_of(isa) if candidate.signature.is_widened else 0.0,
    )


def _exposed_epilogue(signature: KernelSignature, isa: Isa, costs: CoreCosts) -> float:
    """Cycles of a tile's epilogue that no product hides.

    A core that has pipes for what products do not use computes a tile's results beside the next
    one's products, as far as it looks ahead: `overlap_window` registers of sums.
    """
    if not signature.is_direct:
        return 0.0
    registers = signature.rows * signature.channels // isa.lanes
    return costs.exposed_epilogue * max(0, registers - costs.overlap_window)


def _compiled(
    signatures: Iterable[KernelSignature],
    bodies: Mapping[KernelSignature, Body],
    isa: Isa,
    hardware: Hardware,
) -> dict[KernelSignature, CompiledCounts]:
    """What LLVM makes of the loops of kernels."""
    kernels = {s.name: MicroKernel(s, isa, bodies[s]) for s in signatures}
    counts = count_compiled_loops(
        {name: kernel.text() for name, kernel in kernels.items()}, hardware
    )
    return {kernel.signature: counts[name] for name, kernel in kernels.items()}


def _without_spills(stores: Mapping[KernelSignature, int]) -> list[KernelSignature]:
    """Those without stores in their loops; of a method that has none, one pixel's fewest."""
    kept = [signature for signature, count in stores.items() if count == 0]
    methods = {signature.method for signature in kept if signature.rows == 1}
    fewest: dict[object, KernelSignature] = {}
    for signature in sorted(stores, key=lambda s: (s.rows, stores[s])):
        if signature.method not in methods:
            fewest.setdefault(signature.method, signature)
    return [*kept, *(s for s in fewest.values() if s not in kept)]


def _promising(
    bodies: dict[KernelSignature, Body], isa: Isa, costs: CoreCosts, most: int | None
) -> list[list[KernelSignature]]:
    """What is worth compiling: per method and number of pixels a tile, and what may replace it.

    Tiles of a part of a block are for layers whose last one is not full. A method much dearer than
    another of its algorithm with as many pixels has only its best tile.
    Those that take several words a step do not compare: not every window has as many. Nor do those
    for small weights, of what is widened, or of pairs of pixels.
    """
    candidates = sorted(
        (priced_candidate(s, body, isa, costs, 0.0) for s, body in bodies.items()), key=rank
    )
    groups: dict[tuple[object, int, bool], list[KernelCandidate]] = {}
    cheapest: dict[Hashable, float] = {}
    for candidate in candidates:
        signature = candidate.signature
        is_part = signature.is_direct and signature.channels < BLOCK
        groups.setdefault((signature.method, signature.rows, is_part), []).append(candidate)
        cheapest.setdefault(_rivals(candidate), candidate.cycles_per_mac)
    kept, counts = [], Counter[object]()
    for (method, *_), group in groups.items():
        is_near = group[0].cycles_per_mac < NEAR * cheapest[_rivals(group[0])]
        is_other = group[0].signature.word_bits != WORD_BITS or bool(group[0].signature.inner)
        at_most = MOST_OTHERS if is_other and most is None else most
        if (is_near or not counts[method]) and (at_most is None or counts[method] < at_most):
            counts[method] += 1
            kept.append([candidate.signature for candidate in group[: 2 if is_near else 1]])
    return kept


def _rivals(candidate: KernelCandidate) -> Hashable:
    """What candidates of one method and another have in common that may replace each other."""
    signature, products = candidate.signature, candidate.signature.products
    is_paired = isinstance(products, PairedDots | BytePairs)
    return (
        candidate.algorithm,
        signature.rows,
        signature.step > 1,
        is_paired,
        signature.multiplies_int16,
        signature.pixels,
    )


def _copies(body: Body, counted: CompiledCounts) -> float:
    """Copies of registers per step, from their share of the arithmetic in the compiled loops."""
    steps = sum(len(one.word.steps) for one in body.passes)
    return steps * counted.moves / max(counted.arithmetic, 1)
