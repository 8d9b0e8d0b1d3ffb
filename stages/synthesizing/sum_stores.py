"""Where counters go: flushed, times a coefficient, into the sums of a tile."""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa
from stages.kernels.signature import BLOCK, KernelSignature
from stages.synthesizing.body import Body
from stages.synthesizing.operands import Operands, row_start


class SumStores(Operands):
    """Emits what flushes counters of one signature into `%sums`, int32 or float [rows][32]."""

    def __init__(self, signature: KernelSignature, isa: Isa, body: Body) -> None:
        super().__init__(signature, isa)
        self.body = body
        self.vectors = signature.channels // isa.lanes
        self.tile = body.counters(signature.rows, signature.channels, isa.lanes)

    def _place(self, m: int, n: int) -> int:
        return m * BLOCK * 4 + n * self.isa.bytes

    def store(self, m: int, n: int, value: str) -> None:
        """Store the sums of pixel `m` in register `n` of channels."""
        self.code.store(self.word.llvm, value, "%sums", 4, self._place(m, n))

    @property
    def stores_first(self) -> bool:
        """Whether the first pass stores each sum, once, so that none need be 0 before."""
        is_once = self.signature.coupled and self.signature.flush == "window"
        return self.signature.counters_are_sums or is_once

    def _increase(self, m: int, n: int, value: str, is_first: bool = False) -> None:
        if is_first and self.stores_first:
            self.store(m, n, value)
            return
        kind, code = self.word.llvm, self.code
        before = code.load(kind, "%sums", 4, self._place(m, n))
        if not self.signature.is_float:
            self.store(m, n, code.let(f"add {kind} {before}, {value}"))
            return
        floats = f"<{self.isa.lanes} x float>"
        first, second = (code.bitcast(each, kind, floats) for each in (before, value))
        total = code.let(f"fadd {floats} {first}, {second}")
        self.store(m, n, code.bitcast(total, floats, kind))

    def add(self, coefficient: int, counters: Sequence[str], is_first: bool = False) -> None:
        """Flush counters into the sums, times their coefficient."""
        together, registers = self.body.registers_per_flush, self.body.registers
        for first in range(0, len(counters), together):
            m, n = self.tile[first]
            inputs = {f"c{i}": counters[first + i] for i in range(together)}
            for name, total in self.body.flush.emit(self.code, inputs.__getitem__).items():
                if coefficient != 1:
                    factor = self.word.splat(coefficient)
                    total = self.code.let(f"mul {self.word.llvm} {total}, {factor}")
                place = n // together * registers + int(name[1:])
                for pixel, own in enumerate(self._by_pixel(total)):
                    first_one = m * self.body.distance
                    stores = is_first or self.signature.counters_are_sums
                    self._increase(first_one + pixel, place, own, stores)

    def _by_pixel(self, total: str) -> list[str]:
        """The sums of each of the pixels whose counters share a register."""
        if (pixels := self.body.pixels) == 1:
            return [total]
        lanes = pixels * self.isa.lanes
        both = self.code.bitcast(total, f"<{4 * lanes} x i8>", f"<{lanes} x i32>")
        parts = range(0, lanes, self.isa.lanes)
        return [self.code.lanes(f"<{lanes} x i32>", both, n, self.isa.lanes) for n in parts]

    def add_activation_sums(self, index: int) -> None:
        """Add what the producer summed over activations: contiguous words, one loop a pixel."""
        for m in range(self.signature.rows):
            pixel = self.moved("%data", "%pixel", m) if m else "%data"
            total = self._window_sum(self.plane(pixel, index))
            lanes = self.code.splat(total, "i32", self.isa.lanes)
            for n in range(self.vectors):
                self._increase(m, n, lanes)

    def _window_sum(self, first: str) -> str:
        """The sum of the words of a window that starts at `first`."""
        code = self.code

        def one_row(ky: str, sums: list[str]) -> list[str]:
            row = code.pointer(first, row_start(code, ky))

            def one_word(x: str, total: list[str]) -> list[str]:
                word = code.load("i32", code.pointer(row, self.word_place(x)), 4)
                return [code.let(f"add i32 {total[0]}, {word}")]

            return code.loop("%kw", [("i32", sums[0])], one_word)

        return code.loop("%kh", [("i32", "0")], one_row)[0]
