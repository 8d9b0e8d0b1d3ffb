"""Convolutions whose micro-kernel wants the windows of a tile widened, a register at a time."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa.instruction_set import Isa
from stages.codegen import Text
from stages.dialect.calls import attributes
from stages.kernels.llvm import FunctionText
from stages.kernels.widened_windows import Widened as Layout
from stages.kernels.widened_windows import widened
from stages.nodes import Buffer, Index, Scalar
from stages.packaging.emitting.addressing import widths
from stages.packaging.sums.parts import Composition, Window
from stages.packaging.sums.window_reads import RowStrides, Windows

PIXEL_STRIDE = 3
"""Where strides say how far from one another the pixels of a tile are."""
WIDEN = "bk_widen"


class WidenedWindows(Windows):
    """Windows that are widened in scratch, behind all else, before they are read."""

    buffer: Buffer | None = None
    """Where the windows of the tile at hand are widened, from `place` on."""
    place: Index = 0

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether the micro-kernel takes widened inputs."""
        return kernel.composite.signature.is_widened

    @cached_property
    def lies(self) -> Layout:
        """How widened windows of a tile lie."""
        attrs = attributes(self.main)
        unit, right = self.signature.row_unit, attrs["strides"][1]
        return widened(self.rows, attrs["window"], right, self.pixel, unit)

    @property
    def widened_words(self) -> int:
        """Words of 32 bits of scratch for the windows of a tile."""
        return self.lies.size // 2

    @property
    def strides(self) -> tuple[int | None, ...]:
        """What micro-kernels are told of the windows: the strides of what is widened."""
        rows, words, *_, share, _, _ = super().strides
        wide = RowStrides(2 * self.lies.row)
        if self.reads:
            wide = wide.by_pixels(2 * self.pixel, attributes(self.main)["window"][1])
        return rows, words, wide.row, 2 * self.lies.moved, 0, share, wide.per, wide.wrap

    def include(self) -> None:
        """Include the function that widens."""
        pixel_stride = super().strides[PIXEL_STRIDE]
        assert pixel_stride is not None
        self.kernel.include(
            *widening_text(self.lies, self.row_strides, pixel_stride, self.kernel.isa)
        )

    def declare(self) -> None:
        """Declare `wide`, the widened inputs that the function of a tile reads."""
        self.buffer, self.place = T.arg("wide", T.Buffer((self.widened_words,), "int32")), 0

    def passed(self) -> list[Any]:
        """A pointer to the widened inputs."""
        return [self._at(0)]

    def prepare(self, block: Index, run: Index, tile: Index) -> None:
        """Widen the windows of a tile, if they are not still there from the block before."""
        kernel = self.kernel
        self.buffer, self.place = kernel.scratch, kernel.widened_at
        is_new: Any = True
        if kernel.work.blocks_are_inner and kernel.work.tiles == 1:
            is_new = tirx.any(block == 0, kernel.work.item == 0)
        with T.If(is_new), T.Then():
            pointers = super().pointer(kernel.work.window(run, tile)), self._at(0)
            T.evaluate(T.call_extern("void", WIDEN, *pointers))

    def pointer(self, window: Window, channel: Index = 0) -> Scalar:
        """A pointer to a channel, of even number, of the first window that is widened."""
        return self._at(channel)

    def _at(self, channel: Index) -> Scalar:
        assert self.buffer is not None, "no tile yet"
        return T.address_of(self.buffer[self.place + channel // 2])


def widening_text(windows: Layout, rows: RowStrides, pixel_stride: int, isa: Isa) -> Text:
    """`void bk_widen(data, wide)`: the windows of a tile, uint8 to int16.

    Pieces of a row of windows are `pixel_stride` bytes from one another.
    """
    code = FunctionText()
    for y in range(windows.height):
        source = code.pointer("%data", str(rows.start(y)))
        target = code.pointer("%wide", str(2 * y * windows.row))
        _pieces(code, windows, source, target, pixel_stride, isa)
    code.do("ret void")
    return code.function(WIDEN, ["ptr noalias readonly %data", "ptr noalias %wide"]), []


def _pieces(
    code: FunctionText, windows: Layout, source: str, target: str, pixel_stride: int, isa: Isa
) -> None:
    """Widen the pieces of a row of windows, `pixel_stride` bytes from one another."""

    def piece(number: str, _: list[str]) -> list[str]:
        read = code.pointer(source, code.let(f"mul nuw nsw i64 {number}, {pixel_stride}"))
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
