"""Convolutions whose micro-kernel wants the windows of a tile widened, a register at a time."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.packaging.addressing import widths
from stages.packaging.interleaving import Interleaving, Window
from stages.qnn.llvm import FunctionText
from stages.qnn.registry import attributes
from stages.qnn.widening import Widened, widened

WIDEN = "bk_widen"


class Widening(Interleaving):
    """Work items whose windows are widened in scratch, behind all else, if the kernel wants it."""

    wide_words = 0
    """Of 32 bits: the windows of a tile, where they are widened."""
    wide: Any = None
    """A pointer to the windows of the tile at hand, where they are widened."""

    def data_of(self, window: Window) -> Any:
        """A pointer to where the first window of a tile begins."""
        raise NotImplementedError

    def widen_windows(self, pixel: int) -> None:
        """Have the windows of a tile widened, of pixels of so many bytes."""
        attrs = attributes(self.composite.main)
        lies = widened(self.rows, attrs["window"], attrs["strides"][1], pixel)
        height, words, row, apart, _, share, odd = self.strides
        self.include(*widening_text(lies, (row, apart, odd), self.isa.lanes))
        self.strides = height, words, 2 * lies.row, 2 * lies.moved, 0, share, 0
        self.wide_words = lies.size // 2

    @property
    def _scratch_words(self) -> int:
        return super()._scratch_words + self.wide_words

    def declare_tile(self) -> None:
        """Declare what the function of a tile reads and writes."""
        self.declare_tensors()
        if self.wide_words:
            wide = T.arg("wide", T.Buffer((self.wide_words,), "int32"))
            self.wide = T.address_of(wide[0])

    def widen(self, block: Any, run: Any, tile: Any) -> None:
        """Widen the windows of a tile, if they are wanted so and not still there from the block
        before."""
        if not self.wide_words:
            return
        self.wide = T.address_of(self.scratch[super()._scratch_words])
        is_new: Any = True
        if self.schedule["order"] == "blocks_inner" and self.tiles == 1:
            is_new = tirx.any(block == 0, self.item == 0)
        with T.If(is_new), T.Then():
            pointers = self.data_of(self.window(run, tile)), self.wide
            T.evaluate(T.call_extern("void", WIDEN, *pointers))


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
