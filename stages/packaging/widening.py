"""Widening the windows of a tile, in LLVM IR: bytes to words of 16 bits, a register at a time."""

from __future__ import annotations

from stages.codegen import Text
from stages.packaging.addressing import widths
from stages.qnn.llvm import FunctionText
from stages.qnn.widening import Widened

WIDEN = "bk_widen"


def widening_text(windows: Widened, strides: tuple[int, int, int], lanes: int) -> Text:
    """`void bk_widen(data, wide)`: the windows of a tile, uint8 to int16.

    `strides` are bytes from a row of windows to the next one, from a piece of a row to the next
    one, and how much further odd rows lie; `lanes` are those of 32 bits in a register.
    """
    code = FunctionText()
    row, apart, odd = strides
    for y in range(windows.height):
        source = code.pointer("%data", str(y * row + y % 2 * odd))
        target = code.pointer("%wide", str(2 * y * windows.row))
        _pieces(code, windows, source, target, apart, 2 * lanes)
    code.do("ret void")
    return code.function(WIDEN, ["ptr noalias readonly %data", "ptr noalias %wide"]), []


def _pieces(
    code: FunctionText, windows: Widened, source: str, target: str, apart: int, most: int
) -> None:
    """Widen the pieces of a row of windows, `apart` bytes from one another."""

    def piece(number: str, _: list[str]) -> list[str]:
        read = code.pointer(source, code.let(f"mul nuw nsw i64 {number}, {apart}"))
        written = code.pointer(target, code.let(f"mul nuw nsw i64 {number}, {2 * windows.pitch}"))
        first = 0
        for count, times in widths(windows.elements, most):

            def register(
                number: str, _: list[str], first: int = first, n: int = count
            ) -> list[str]:
                at = code.let(f"mul nuw nsw i64 {number}, {n}")
                at = code.let(f"add nuw nsw i64 {at}, {first}")
                value = code.load(f"<{n} x i8>", code.pointer(read, at), 1)
                wide = code.let(f"zext <{n} x i8> {value} to <{n} x i16>")
                place = code.pointer(written, code.let(f"mul nuw nsw i64 {at}, 2"))
                code.store(f"<{n} x i16>", wide, place, 2)
                return []

            code.loop(str(times), [], register)
            first += count * times
        return []

    code.loop(str(windows.pieces), [], piece)
