"""The micro-kernel of depthwise convolutions in LLVM IR: a tile of pixels and channels.

Sums stay in registers over the whole window; lanes are channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw.isa import Vector
from hw.isa.instruction import Instruction
from hw.isa.instruction_set import Isa
from hw.isa.operation import Operation
from stages.kernels.byte_shift import SHIFT
from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK
from stages.packaging.emitting.addressing import FEW_REGISTERS

NAME = "bk_depthwise"
COLUMNS = Operation.COLUMNS_0
"""The first part of a set that puts rows side by side, for half of a block of channels."""
COLUMNS_GROUP = 4
"""How many rows it does that to."""


@dataclass(frozen=True)
class Tile:
    """What one call computes: some neighbouring pixels and channels. Distances are in bytes."""

    pixels: int
    channels: int
    step: int
    """From one pixel's window to the next one's."""
    columns: tuple[int, ...]
    """From a window's first tap to each of its columns."""
    rows: tuple[int, ...]
    """From a column's first tap to each of its rows."""
    is_signed: bool
    offset: int


def depthwise_text(tile: Tile, isa: Isa, dot: Instruction | None) -> tuple[str, list[str]]:
    """`void bk_depthwise(data, weights, sums, begin)` and the declarations it needs.

    Products are added up by `dot`, or without one as pairs of signed bytes.
    `data` points at the first pixel's window, `weights` at the tile's channels of a block
    ([columns * steps, 32, group]), `sums` at int32 [pixels][32], which begin with int32 [channels].
    """
    code = FunctionText()
    counter, vectors = Vector(isa.lanes, 32), tile.channels // isa.lanes
    begin = [code.load(counter.llvm, "%begin", 4, n * isa.bytes) for n in range(vectors)]
    totals = {(m, n): begin[n] for m in range(tile.pixels) for n in range(vectors)}
    if dot is None:
        _add_pairs(code, tile, isa, totals)
    elif dot.operands[2].lanes == counter.lanes:
        _add_rows(code, tile, isa, dot, totals)
    else:
        _add_columns(code, tile, isa, dot, totals)
    for (m, n), total in totals.items():
        place = m * BLOCK * 4 + n * isa.bytes
        code.store(counter.llvm, total, "%sums", 4, place)
    code.do("ret void")
    parameters = [
        "ptr noalias readonly %data",
        "ptr noalias readonly %weights",
        "ptr noalias %sums",
        "ptr noalias readonly %begin",
    ]
    return code.function(NAME, parameters), list(code.declarations)


def _add_rows(
    code: FunctionText, tile: Tile, isa: Isa, dot: Instruction, totals: dict[tuple[int, int], str]
) -> None:
    """Add one tap after the other, row by row: so few weights are needed at a time that all sums
    stay in registers.

    A row's bytes are widened a load at a time, for all windows that they are in.
    """
    _, kind, _ = dot.operands
    whole = Vector(tile.channels, kind.bits)
    columns, height, vectors = len(tile.columns), len(tile.rows), tile.channels // isa.lanes
    for y, row in enumerate(tile.rows):
        places = [(x * height + y) * BLOCK * kind.bits // 8 for x in range(columns)]
        weights = [code.load(whole.llvm, "%weights", 1, place) for place in places]
        for place, windows in _readers(tile):
            bytes_ = f"<{tile.channels} x i8>"
            # For ARMv7 LLVM would load what it is to widen by way of the stack.
            taps = code.hidden(bytes_, code.load(bytes_, "%data", 1, place + row))
            extend = "sext" if tile.is_signed else "zext"
            value = code.let(f"{extend} {bytes_} {taps} to {whole.llvm}")
            # LLVM would widen each half from its bytes anew, by four instructions in place of none.
            value = code.hidden(whole.llvm, value)
            for n in range(vectors):
                part = code.lanes(whole.llvm, value, n * isa.lanes, isa.lanes)
                for m, x in windows:
                    weight = code.lanes(whole.llvm, weights[x], n * isa.lanes, isa.lanes)
                    totals[m, n] = code.apply(dot, totals[m, n], part, weight)
            _keep_order(code, isa, windows, totals)


def _keep_order(
    code: FunctionText,
    isa: Isa,
    windows: Sequence[tuple[int, int]],
    totals: dict[tuple[int, int], str],
) -> None:
    """Have the sums of windows made before what follows, where registers are few.

    LLVM would end those of one pixel before it begins those of the next, and keep all that is
    loaded.
    """
    if isa.registers > FEW_REGISTERS:
        return
    pixels = dict.fromkeys(m for m, _ in windows)
    for m, n in [place for place in totals if place[0] in pixels]:
        totals[m, n] = code.held(f"<{isa.lanes} x i32>", totals[m, n])


def _add_pairs(
    code: FunctionText, tile: Tile, isa: Isa, totals: dict[tuple[int, int], str]
) -> None:
    """Add two taps after the other in 16 bits, then both in 32, row by row.

    What is read is less 128, where that makes it signed. A row's last tap waits for the next row's
    first one.
    """
    multiply, more = isa[Operation.MULTIPLY_8], isa[Operation.MAC_16]
    kind, product = multiply.operands[0], multiply.result
    wide, vectors = Vector(isa.lanes, 32), tile.channels // isa.lanes
    waiting: dict[int, str] = {}

    def widen(m: int, pair: str) -> None:
        for n in range(vectors):
            half = code.lanes(product.llvm, pair, n * isa.lanes, isa.lanes)
            value = code.let(f"sext <{isa.lanes} x i16> {half} to {wide.llvm}")
            totals[m, n] = code.let(f"add {wide.llvm} {totals[m, n]}, {value}")

    for y, row in enumerate(tile.rows):
        places = [(x * len(tile.rows) + y) * BLOCK for x in range(len(tile.columns))]
        weights = [code.load(kind.llvm, "%weights", 1, place) for place in places]
        for place, windows in _readers(tile):
            value = code.load(kind.llvm, "%data", 1, place + row)
            if tile.offset:
                value = code.let(f"xor {kind.llvm} {value}, {kind.splat(-SHIFT)}")
            for m, x in windows:
                if m in waiting:
                    widen(m, code.apply(more, waiting.pop(m), value, weights[x]))
                else:
                    waiting[m] = code.apply(multiply, value, weights[x])
            _keep_order(code, isa, windows, totals)
    for m, last in waiting.items():
        widen(m, last)


def _readers(tile: Tile) -> list[tuple[int, list[tuple[int, int]]]]:
    """Where each column of the image is, with the windows (pixel, column) that it is in."""
    readers: dict[int, list[tuple[int, int]]] = {}
    for m in range(tile.pixels):
        for column, distance in enumerate(tile.columns):
            readers.setdefault(m * tile.step + distance, []).append((m, column))
    return sorted(readers.items())


def _add_columns(
    code: FunctionText, tile: Tile, isa: Isa, dot: Instruction, totals: dict[tuple[int, int], str]
) -> None:
    """Add some taps of a column at a time, column by column: each is read once, for all windows
    that it is in."""
    counter, kind, weights = dot.operands
    group, vectors = weights.lanes // counter.lanes, tile.channels // isa.lanes
    steps = [tile.rows[first : first + group] for first in range(0, len(tile.rows), group)]
    for place, windows in _readers(tile):
        for number, rows in enumerate(steps):
            loaded = f"<{tile.channels} x i8>"
            taps = [code.load(loaded, "%data", 1, place + row) for row in rows]
            for n in range(vectors):
                value = _operand(code, tile, isa, kind, taps, n)
                for m, column in windows:
                    first = (column * len(steps) + number) * BLOCK + n * isa.lanes
                    offset = first * weights.bytes // isa.lanes
                    weight = code.load(weights.llvm, "%weights", 1, offset)
                    totals[m, n] = code.apply(dot, totals[m, n], value, weight)


def _operand(
    code: FunctionText, tile: Tile, isa: Isa, kind: Vector, taps: Sequence[str], number: int
) -> str:
    """A register of a step's taps, those of one channel side by side, as a dot product takes it."""
    group = kind.lanes // isa.lanes
    if COLUMNS in isa and group == COLUMNS_GROUP and len(taps) > 1:
        value = _columns(code, isa, taps, number)
    else:
        channels = range(number * isa.lanes, (number + 1) * isa.lanes)
        filled = [*taps, *["zeroinitializer"] * (group - len(taps))]
        side_by_side = _joined if group > 2 else _interleaved
        value = side_by_side(code, filled, tile.channels, channels)
    narrow = Vector(kind.lanes, 8)
    if tile.offset:
        value = code.let(f"xor {narrow.llvm} {value}, {narrow.splat(-SHIFT)}")
    if kind.bits == 8:
        return value
    return code.let(f"{'sext' if tile.is_signed else 'zext'} {narrow.llvm} {value} to {kind.llvm}")


def _columns(code: FunctionText, isa: Isa, taps: Sequence[str], number: int) -> str:
    """Taps of a block of channels, and zeros where there are no more."""
    rows = [*taps, *["zeroinitializer"] * (COLUMNS_GROUP - len(taps))]
    pairs = [
        code.joined(f"<{BLOCK} x i8>", low, high, BLOCK)
        for low, high in zip(rows[::2], rows[1::2], strict=True)
    ]
    return code.apply(isa[(Operation.COLUMNS_0, Operation.COLUMNS_1)[number]], *pairs)


def _joined(code: FunctionText, taps: Sequence[str], count: int, channels: range) -> str:
    """Taps of some channels, one byte each in a channel's 32 bits.

    x86 widens bytes as it loads them, so that a tap costs one shuffle; interleaving costs more.
    """
    lanes = len(channels)
    words = Vector(lanes, 32)
    total = ""
    for number, tap in enumerate(taps):
        order = ", ".join(f"i32 {lane}" for lane in channels)
        part = code.let(
            f"shufflevector <{count} x i8> {tap}, <{count} x i8> poison, <{lanes} x i32> <{order}>"
        )
        wide = code.let(f"zext <{lanes} x i8> {part} to {words.llvm}")
        if number:
            wide = code.let(f"shl {words.llvm} {wide}, {words.splat(8 * number)}")
        total = code.let(f"or {words.llvm} {total}, {wide}") if total else wide
    return code.bitcast(total, words.llvm, f"<{4 * lanes} x i8>")


def _interleaved(code: FunctionText, taps: Sequence[str], count: int, channels: range) -> str:
    """Some lanes of two vectors of `count` bytes, those of the same number side by side."""
    kind = f"<{count} x i8>"
    order = [lane + count * number for lane in channels for number in range(len(taps))]
    mask = f"<{len(order)} x i32> <{', '.join(f'i32 {place}' for place in order)}>"
    first, second = taps
    return code.let(f"shufflevector {kind} {first}, {kind} {second}, {mask}")
