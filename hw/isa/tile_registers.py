"""Tiles of x86-64 (AMX): eight registers of rows of bytes, and products of two of them.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2:
TDPBUSD, TDPBF16PS, TILELOADD, TILESTORED, LDTILECFG. How many rows and bytes a register has is set
for all of them together, before they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hw.isa.instruction import Instruction, Meaning, Vector
from hw.isa.lane import L, Lane, Lanes

REGISTERS = 8
ROWS = 16
"""Rows of a register, at most."""
ROW_BYTES = 64
"""Bytes of a row, at most."""
COLUMNS = ROW_BYTES // 4
"""Lanes of 32 bits in a row, at most."""
NAMES = DOT, BFLOAT16_DOT, LOAD, STORE = "tdpbusd", "tdpbf16ps", "tileloadd", "tilestored"
"""Names in tables of costs, of whole registers."""
FEATURES = ("+amx-bf16", "+amx-int8", "+amx-tile")
"""All that there is of them: no processor has tiles without both products."""


@cache
def tile_dot(rows: int, words: int) -> Instruction:
    """TDPBUSD: `rows` x 16 lanes of 32 bits, increased by products of u8 and s8.

    The first factor has `rows` rows of `words` groups of four bytes, the second `words` rows of 16
    such groups: row k holds the four bytes that lane n multiplies by group k. Operands are numbers
    of registers; the first one is overwritten.
    """
    return Instruction(
        DOT,
        (
            Vector(rows * COLUMNS, 32),
            Vector(rows * words * 4, 8),
            Vector(words * ROW_BYTES, 8),
        ),
        Vector(rows * COLUMNS, 32),
        "call void @llvm.x86.tdpbusd(i8 {0}, i8 {1}, i8 {2})",
        _products(rows, words),
        "declare void @llvm.x86.tdpbusd(i8 immarg, i8 immarg, i8 immarg)",
    )


@cache
def bfloat16_dot(rows: int, words: int) -> Instruction:
    """TDPBF16PS: the same of pairs of bfloat16, added up in floats.

    What is smaller than normal floats is 0 to it.
    """
    return Instruction(
        BFLOAT16_DOT,
        (
            Vector(rows * COLUMNS, 32),
            Vector(rows * words * 2, 16),
            Vector(words * COLUMNS * 2, 16),
        ),
        Vector(rows * COLUMNS, 32),
        "call void @llvm.x86.tdpbf16ps(i8 {0}, i8 {1}, i8 {2})",
        _float_products(rows, words),
        "declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)",
    )


def _float_products(rows: int, words: int) -> Meaning:
    """Lower and upper halves of words are added up on their own, then both, then all to the sum."""

    def meaning(total: Lanes, a: Lanes, w: Lanes) -> list[Lane]:
        left, right = ([lane.bfloat16() for lane in lanes] for lanes in (a, w))
        sums = []
        for lane, (row, column) in zip(total, _places(rows), strict=True):
            halves = []
            for half in (0, 1):
                x = [left[2 * (row * words + k) + half] for k in range(words)]
                y = [right[2 * (k * COLUMNS + column) + half] for k in range(words)]
                found = x[0].fmul(y[0])
                for p, q in zip(x[1:], y[1:], strict=True):
                    found = p.fma(q, found)
                halves.append(found)
            sums.append(lane.fadd(halves[0].fadd(halves[1])))
        return sums

    return meaning


def _products(rows: int, words: int) -> Meaning:
    def meaning(total: Lanes, a: Lanes, w: Lanes) -> list[Lane]:
        left = [lane.extend(32) for lane in a]
        right = [lane.extend(32, True) for lane in w]
        sums = []
        for lane, (row, column) in zip(total, _places(rows), strict=True):
            factors = [
                (left[4 * (row * words + k) + byte], right[4 * (k * COLUMNS + column) + byte])
                for k in range(words)
                for byte in range(4)
            ]
            sums.append(lane + _sum([x * y for x, y in factors]))
        return sums

    return meaning


def _places(rows: int) -> list[tuple[int, int]]:
    return [(row, column) for row in range(rows) for column in range(COLUMNS)]


def _sum(lanes: Sequence[L]) -> L:
    """The sum of lanes, by halves: of exact lanes, long sums are dear to add to."""
    if len(lanes) == 1:
        return lanes[0]
    middle = len(lanes) // 2
    return _sum(lanes[:middle]) + _sum(lanes[middle:])


def configuration(shapes: Sequence[tuple[int, int]]) -> bytes:
    """The operand of LDTILECFG for registers of (rows, bytes a row), the first ones: palette 1."""
    data = bytearray(64)
    data[0] = 1
    for number, (rows, row_bytes) in enumerate(shapes):
        if number >= REGISTERS or not (0 < rows <= ROWS and 0 < row_bytes <= ROW_BYTES):
            raise ValueError(f"no tile {number} of {rows} rows of {row_bytes} bytes")
        data[16 + 2 * number] = row_bytes
        data[48 + number] = rows
    return bytes(data)


def configuration_text(name: str, shapes: Sequence[tuple[int, int]]) -> str:
    """The operand of LDTILECFG as a constant `@name` in LLVM IR."""
    data = "".join(f"\\{byte:02X}" for byte in configuration(shapes))
    return f'@{name} = private constant [64 x i8] c"{data}", align 64'
