"""Reduction of counts along the lanes of a register, as a shortest path.

In the layout with the reduction axis in lanes, every term leaves bytes of counts: `lanes` a row,
all with one coefficient. Streams of such counts are added up pairwise, widened, and merged, until
each row is one 16-bit lane of the accumulator. A uniform-cost search over multisets of streams
finds the cheapest way under a core's costs; widening 8 to 16 bits is a move like any other.
Independent moves commute, so only the first stream, which has most lanes, is ever moved: without
that order the search is a hundred times as long (`method.md`, "Reduction along lanes").
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from hw.isa import Isa, Operation

REGISTER = 16
"""Bytes of a NEON register."""
OUTPUT_BITS = 16
_ADDING = Operation.ADD_8, Operation.SCALE_ADD_8
_FINISHING = Operation.WIDEN_ADD_8, Operation.WIDEN_SCALE_ADD_8
"""Additions without and with a factor, in lanes of one width and into wider ones."""

Kind = Literal["pair_add", "pair_widen", "pair_widen_add", "merge", "finish"]
Price = Callable[[Operation], float]
"""Cost of the instruction that does an operation."""


@dataclass(frozen=True, order=True)
class Stream:
    """Counts of all rows: `lanes` a row of `bits` bits, in units of `coefficient`."""

    negated_lanes: int
    """Negated, so that the stream with most lanes sorts first."""
    bits: int
    coefficient: int
    most: int
    """The largest value a lane can have; it always fits."""

    @property
    def lanes(self) -> int:
        """Lanes a row."""
        return -self.negated_lanes

    def size(self, rows: int) -> int:
        """Bytes of all rows."""
        return rows * self.lanes * self.bits // 8


@dataclass(frozen=True)
class Move:
    """One step of a reduction: what becomes of `stream`, with `other` or the accumulator."""

    kind: Kind
    stream: Stream
    other: Stream | None
    result: Stream | None
    operation: Operation
    """What the instruction does that the step takes."""
    factor: int = 1


State = tuple[Stream, ...]


@dataclass(frozen=True)
class _Path:
    """Moves so far, the last one first."""

    move: Move
    before: _Path | None


def reduction(
    counts: Mapping[int, int], rows: int, chunk: int, isa: Isa, price: Price
) -> list[Move]:
    """The cheapest moves for `counts[coefficient]` terms of `chunk` bytes in each of `rows` rows.

    Terms of one coefficient are added up first: whichever way that is done, it costs the same.
    """
    start = tuple(sorted(Stream(-chunk, 8, c, 8 * terms) for c, terms in counts.items()))
    order = count()
    queue: list[tuple[float, int, State, _Path | None]] = [(0.0, next(order), start, None)]
    done: set[State] = set()
    while queue:
        cost, _, state, path = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        if not state:
            return _unwound(path)
        for move in _moves(state, isa):
            rest = _without(state, move)
            following = tuple(sorted([*rest, move.result] if move.result else rest))
            if following not in done:
                step = price(move.operation) * _repeats(move, rows, isa)
                item = (cost + step, next(order), following, _Path(move, path))
                heapq.heappush(queue, item)
    raise ValueError(f"no reduction of {dict(counts)} to {OUTPUT_BITS} bits")


def _unwound(path: _Path | None) -> list[Move]:
    moves: list[Move] = []
    while path is not None:
        moves.append(path.move)
        path = path.before
    return moves[::-1]


def _without(state: State, move: Move) -> list[Stream]:
    rest = list(state)
    rest.remove(move.stream)
    if move.other is not None:
        rest.remove(move.other)
    return rest


def _moves(state: State, isa: Isa) -> Iterator[Move]:
    """What can become of the first stream."""
    x, others = state[0], state[1:]
    bits, top = x.bits, (1 << x.bits) - 1
    halved = Stream(x.negated_lanes // 2, bits, x.coefficient, 2 * x.most)
    if x.lanes > 1 and halved.most <= top:
        yield Move("pair_add", x, None, halved, Operation.PAIR_ADD_8.for_lanes(bits))
    if x.lanes > 1 and bits < OUTPUT_BITS:
        widened = Stream(x.negated_lanes // 2, 2 * bits, x.coefficient, 2 * x.most)
        yield Move("pair_widen", x, None, widened, Operation.PAIR_WIDEN_8.for_lanes(bits))
    if x.lanes == 2 and 2 * bits == OUTPUT_BITS and x.coefficient == 1:
        yield Move("finish", x, None, None, Operation.PAIR_WIDEN_ADD_8.for_lanes(bits))
    if x.lanes == 1:
        plain, scaled = _FINISHING if bits < OUTPUT_BITS else _ADDING
        operation = plain if x.coefficient == 1 else scaled
        yield Move("finish", x, None, None, operation.for_lanes(bits), x.coefficient)
    for y in others:
        yield from _merges(x, y, top)


def _merges(x: Stream, y: Stream, top: int) -> Iterator[Move]:
    if (y.negated_lanes, y.bits) == (x.negated_lanes, x.bits):
        small, large = (x, y) if y.coefficient % x.coefficient == 0 else (y, x)
        factor, rest = divmod(large.coefficient, small.coefficient)
        most = small.most + factor * large.most
        if rest == 0 and most <= top:
            operation = _ADDING[factor != 1]
            merged = Stream(x.negated_lanes, x.bits, small.coefficient, most)
            yield Move("merge", small, large, merged, operation.for_lanes(x.bits), factor)
    is_half = (y.negated_lanes * 2, y.bits) == (x.negated_lanes, 2 * x.bits)
    if is_half and y.coefficient == x.coefficient and y.most + 2 * x.most < 1 << y.bits:
        merged = Stream(y.negated_lanes, y.bits, y.coefficient, y.most + 2 * x.most)
        yield Move("pair_widen_add", x, y, merged, Operation.PAIR_WIDEN_ADD_8.for_lanes(x.bits))


def _repeats(move: Move, rows: int, isa: Isa) -> int:
    """How many instructions a move takes."""
    size = move.stream.size(rows)
    if move.kind == "pair_add":
        # Two registers in, one out; ARMv7 adds pairwise in halves of registers only.
        return max(1, -(-size // 2 // (REGISTER // 2 if isa.adds_half_registers else REGISTER)))
    if move.kind == "finish" and move.operation.startswith("widen"):
        size *= 2
    return max(1, -(-size // REGISTER))
