"""Convolutions whose micro-kernel wants the windows of a tile widened, a register at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import Isa
from stages.codegen import Text
from stages.packaging.addressing import widths
from stages.packaging.interleaving import Interleaving, Window
from stages.qnn.llvm import FunctionText
from stages.qnn.registry import attributes
from stages.qnn.widening import Widened, widened

WIDEN = "bk_widen"


@dataclass(frozen=True)
class Apart:
    """Where rows of a window lie: `row` bytes apart, and after every `per` rows `wrap` more."""

    row: int
    per: int = 1
    wrap: int = 0

    def start(self, y: int) -> int:
        """Where a row begins, as `stages.synthesizing.addresses.row_start` has it."""
        return y * self.row + y // self.per * self.wrap

    def by_pixels(self, pixel: int, columns: int) -> Apart:
        """Where pixels lie, of so many bytes, that are rows of their own."""
        return Apart(pixel, columns, self.row - columns * pixel)


class Widening(Interleaving):
    """Work items whose windows are widened in scratch, behind all else, if the kernel wants it."""

    wide_words = 0
    """Of 32 bits: the windows of a tile, where they are widened."""
    wide: tuple[Any, Any] = (None, 0)
    """Where the windows of the tile at hand are widened: a buffer and a place in it."""
    reads: tuple[int, ...] = ()
    """What a tile of the kernel reads, if that is not all (`Groups.reads`)."""

    def data_of(self, window: Window, channel: Any = 0) -> Any:
        """A pointer to where the first window of a tile begins, or to a channel there."""
        raise NotImplementedError

    def rows_apart(self, pixel: int) -> Apart:
        """Where the rows of a window lie, of pixels of so many bytes."""
        raise NotImplementedError

    def widen_windows(self, pixel: int) -> None:
        """Have the windows of a tile widened, of pixels of so many bytes."""
        attrs = attributes(self.composite.main)
        unit = self.signature.row_unit
        lies = widened(self.rows, attrs["window"], attrs["strides"][1], pixel, unit)
        rows, words, *_, apart, _, share = self.strides[:6]
        self.include(*widening_text(lies, self.rows_apart(pixel), apart, self.isa))
        wide = Apart(2 * lies.row)
        if self.reads:
            wide = wide.by_pixels(2 * pixel, attrs["window"][1])
        self.strides = rows, words, wide.row, 2 * lies.moved, 0, share, wide.per, wide.wrap
        self.wide_words = lies.size // 2

    @property
    def _scratch_words(self) -> int:
        return super()._scratch_words + self.wide_words

    def declare_tile(self) -> None:
        """Declare what the function of a tile reads and writes."""
        self.declare_tensors()
        if self.wide_words:
            self.wide = T.arg("wide", T.Buffer((self.wide_words,), "int32")), 0

    def widen(self, block: Any, run: Any, tile: Any) -> None:
        """Widen the windows of a tile, if they are wanted so and not still there from the block
        before."""
        if not self.wide_words:
            return
        self.wide = self.scratch, super()._scratch_words
        is_new: Any = True
        if self.goes_through_blocks and self.tiles == 1:
            is_new = tirx.any(block == 0, self.item == 0)
        with T.If(is_new), T.Then():
            pointers = self.data_of(self.window(run, tile)), self.wide_at(0)
            T.evaluate(T.call_extern("void", WIDEN, *pointers))

    def wide_at(self, channel: Any) -> Any:
        """A pointer to a channel, of even number, of the first window that is widened."""
        buffer, place = self.wide
        return T.address_of(buffer[place + channel // 2])


def widening_text(windows: Widened, rows: Apart, apart: int, isa: Isa) -> Text:
    """`void bk_widen(data, wide)`: the windows of a tile, uint8 to int16.

    Pieces of a row of windows are `apart` bytes from one another.
    """
    code = FunctionText()
    for y in range(windows.height):
        source = code.pointer("%data", str(rows.start(y)))
        target = code.pointer("%wide", str(2 * y * windows.row))
        _pieces(code, windows, source, target, apart, isa)
    code.do("ret void")
    return code.function(WIDEN, ["ptr noalias readonly %data", "ptr noalias %wide"]), []


def _pieces(
    code: FunctionText, windows: Widened, source: str, target: str, apart: int, isa: Isa
) -> None:
    """Widen the pieces of a row of windows, `apart` bytes from one another."""

    def piece(number: str, _: list[str]) -> list[str]:
        read = code.pointer(source, code.let(f"mul nuw nsw i64 {number}, {apart}"))
        written = code.pointer(target, code.let(f"mul nuw nsw i64 {number}, {2 * windows.pitch}"))
        first = 0
        for count, times in widths(windows.elements, 2 * isa.lanes):

            def register(
                number: str, _: list[str], first: int = first, n: int = count
            ) -> list[str]:
                at = code.let(f"mul nuw nsw i64 {number}, {n}")
                at = code.let(f"add nuw nsw i64 {at}, {first}")
                value = code.load(f"<{n} x i8>", code.pointer(read, at), 1)
                if isa.architecture == "armv7" and n == 2 * isa.lanes:
                    # LLVM would load what it is to widen by way of the stack.
                    value = code.hidden(f"<{n} x i8>", value)
                wide = code.let(f"zext <{n} x i8> {value} to <{n} x i16>")
                place = code.pointer(written, code.let(f"mul nuw nsw i64 {at}, 2"))
                code.store(f"<{n} x i16>", wide, place, 2)
                return []

            code.loop(str(times), [], register)
            first += count * times
        return []

    code.loop(str(windows.pieces), [], piece)
