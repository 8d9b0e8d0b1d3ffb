"""Choose a kernel signature for a convolution: plan, tile and flush, by a deterministic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hw.costs import core_costs
from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.qnn.signature import BLOCK, Encoding, Flush, KernelSignature, Term, popcount_terms

BYTE_MAX = 255
BITS_PER_BYTE = 8


@dataclass(frozen=True)
class Problem:
    """What a layer asks of a micro-kernel: precisions, encoding and the window in words."""

    bitserial: bool
    activation_bits: int
    weight_bits: int
    weights: Encoding
    output_width: int
    window_rows: int
    row_words: int


def choose_signature(problem: Problem, hardware: Hardware) -> KernelSignature:
    """The cheapest signature of the fixed family for a problem on a core."""
    isa = isa_of(hardware)
    terms: tuple[Term, ...] = ()
    if problem.bitserial:
        op: Literal["and", "xor"] = "xor" if problem.weights == "bipolar" else "and"
        signed = problem.weights == "signed"
        terms = popcount_terms(op, problem.activation_bits, problem.weight_bits, signed)
    period = flush_period(terms)
    rows, channels = min(
        _tiles(isa, problem.bitserial, problem.output_width),
        key=lambda tile: (_cost(tile, problem, isa, hardware), tile),
    )
    return KernelSignature(
        family="popcount" if problem.bitserial else "mac8",
        isa=isa.name,
        terms=terms,
        activation_planes=problem.activation_bits if problem.bitserial else 1,
        weight_planes=problem.weight_bits if problem.bitserial else 1,
        rows=rows,
        channels=channels,
        flush=_flush(problem, isa, period),
        flush_period=period,
        dot_group=0 if problem.bitserial else isa.dot_group,
        weights=problem.weights,
    )


def flush_period(terms: tuple[Term, ...]) -> int:
    """Words after which a byte counter can overflow: each term of a coefficient adds up to 8."""
    if not terms:
        return 0
    coefficients = [term.coefficient for term in terms]
    together = max(coefficients.count(coefficient) for coefficient in coefficients)
    return BYTE_MAX // (BITS_PER_BYTE * together)


def _flush(problem: Problem, isa: Isa, period: int) -> Flush:
    """Empty the byte counters as seldom as their range allows."""
    if not problem.bitserial or not isa.counts_bytes:
        return "none"
    if problem.window_rows * problem.row_words <= period:
        return "window"
    return "row" if problem.row_words <= period else "chunk"


def _tiles(isa: Isa, bitserial: bool, width: int) -> list[tuple[int, int]]:
    """Tiles whose accumulators fit the register file beside operands and temporaries."""
    tiles = []
    for vectors in (1, 2, 4, 8):
        if vectors * isa.lanes > BLOCK:
            continue
        for rows in range(1, min(width, 8) + 1):
            accumulators = rows * vectors * (2 if bitserial and isa.counts_bytes else 1)
            temporaries = vectors + 4
            if accumulators + temporaries <= isa.registers:
                tiles.append((rows, vectors * isa.lanes))
    return tiles or [(1, isa.lanes)]


def _cost(tile: tuple[int, int], problem: Problem, isa: Isa, hardware: Hardware) -> float:
    """Modelled cycles per useful output of the tile's inner step, loads included.

    The last tile of a row overlaps its neighbour, so a width that `rows` does not divide wastes.
    """
    rows, channels = tile
    vectors, costs = channels // isa.lanes, core_costs(hardware.core)
    per_vector = (
        costs.logic + costs.count[isa.name] + costs.add
        if problem.bitserial
        else costs.dot[isa.dot.name] * 4 / isa.dot_group
    )
    loads = (rows + vectors) * costs.logic
    computed = -(-problem.output_width // rows) * rows
    return (rows * vectors * per_vector + loads) * computed / (rows * vectors)
