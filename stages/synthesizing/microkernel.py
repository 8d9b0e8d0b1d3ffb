"""The body of a micro-kernel: a signature in, LLVM IR text out.

`void name(data, weights, sums, kh, kw, row, pixel, plane)`: `data` points at the window of the
tile's first pixel, `weights` at the block of channels, `sums` at int32 [rows][32]; `kh` rows of
`kw` words each, `row`, `pixel` and `plane` are strides in bytes. A lane is one output channel, so
an activation word is broadcast and no horizontal operation is needed before the lane is widened
(`layout` of notes on AVX-512 and NEON alike: rows in lanes).
"""

from __future__ import annotations

from itertools import groupby, pairwise

from hw.isa import Isa
from stages.qnn.llvm import FunctionText
from stages.qnn.signature import BLOCK, KernelSignature, Term

PARAMETERS = (
    "ptr noalias readonly %data",
    "ptr noalias readonly %weights",
    "ptr noalias %sums",
    "i64 %kh",
    "i64 %kw",
    "i64 %row",
    "i64 %pixel",
    "i64 %plane",
)


class MicroKernel:
    """Emits one signature for one instruction set."""

    def __init__(self, signature: KernelSignature, isa: Isa) -> None:
        self.signature = signature
        self.isa = isa
        self.code = FunctionText()
        self.word = f"<{isa.lanes} x i32>"
        self.vectors = signature.channels // isa.lanes
        self.tile = [(m, n) for m in range(signature.rows) for n in range(self.vectors)]
        self.counter = isa.accumulate.result if signature.family == "popcount" else self.word

    def text(self) -> tuple[str, list[str]]:
        """The function and the declarations it needs."""
        window = self.code.let("mul nuw nsw i64 %kh, %kw")
        is_popcount = self.signature.family == "popcount"
        totals = self._popcount(window) if is_popcount else self._mac8()
        for (m, n), total in zip(self.tile, totals, strict=True):
            offset = m * BLOCK * 4 + n * self.isa.lanes * 4
            self.code.store(self.word, total, "%sums", 4, offset)
        self.code.do("ret void")
        name = self.signature.name
        return self.code.function(name, PARAMETERS), list(self.code.declarations)

    # -- popcount ----------------------------------------------------------------------------

    def _popcount(self, window: str) -> list[str]:
        """Terms of one coefficient share counters and a pass over the window."""
        ordered = sorted(self.signature.terms, key=lambda t: (-abs(t.coefficient), t.coefficient))
        groups = [(c, list(g)) for c, g in groupby(ordered, key=lambda term: term.coefficient)]
        steps = pairwise(coefficient for coefficient, _ in groups)
        if self.signature.flush == "none" and all(b and a % b == 0 for a, b in steps):
            return self._in_place(groups, window)
        totals = ["zeroinitializer"] * len(self.tile)
        for coefficient, terms in groups:
            totals = self._phase(coefficient, terms, window, totals)
        return totals

    def _in_place(self, groups: list[tuple[int, list[Term]]], window: str) -> list[str]:
        """Count into the totals themselves: 4 n_1 + 2 n_2 + n_3 = 2 (2 n_1 + n_2) + n_3."""
        totals = ["zeroinitializer"] * len(self.tile)
        unit = 0
        for coefficient, terms in groups:
            totals = self._scaled(totals, unit // coefficient)
            totals = self._pass(terms, window, [(self.word, total) for total in totals])
            unit = coefficient
        return self._scaled(totals, unit)

    def _scaled(self, values: list[str], factor: int) -> list[str]:
        if factor in (0, 1):
            return values
        constant = self._constant(factor)
        return [self.code.let(f"mul {self.word} {value}, {constant}") for value in values]

    def _constant(self, value: int) -> str:
        return "<" + ", ".join([f"i32 {value}"] * self.isa.lanes) + ">"

    def _pass(self, terms: list[Term], window: str, initial: list[tuple[str, str]]) -> list[str]:
        """Count bits over the whole window."""

        def whole_row(ky: str, counts: list[str]) -> list[str]:
            return self._words(terms, window, ky, "0", "%kw", counts)

        return self.code.loop("%kh", initial, whole_row)

    def _phase(
        self, coefficient: int, terms: list[Term], window: str, totals: list[str]
    ) -> list[str]:
        empty = [(self.counter, "zeroinitializer")] * len(self.tile)
        carried = [(self.word, total) for total in totals]
        flush = self.signature.flush
        if flush in ("none", "window"):
            return self._flush(coefficient, self._pass(terms, window, empty), totals)

        def one_row(ky: str, sums: list[str]) -> list[str]:
            if flush == "row":
                counts = self._words(terms, window, ky, "0", "%kw", [v for _, v in empty])
                return self._flush(coefficient, counts, sums)
            return self._chunks(coefficient, terms, window, ky, sums)

        return self.code.loop("%kh", carried, one_row)

    def _chunks(
        self, coefficient: int, terms: list[Term], window: str, ky: str, sums: list[str]
    ) -> list[str]:
        """Runs of at most `flush_period` words, each emptied before a byte can overflow."""
        code, period = self.code, self.signature.flush_period
        # In 32 bits, because 32-bit ARM divides longer numbers in a library.
        last = code.let(f"trunc i64 {code.let(f'add i64 %kw, {period - 1}')} to i32")
        chunks = code.let(f"zext i32 {code.let(f'udiv i32 {last}, {period}')} to i64")

        def chunk(index: str, carried: list[str]) -> list[str]:
            first = code.let(f"mul nuw nsw i64 {index}, {period}")
            rest = code.let(f"sub i64 %kw, {first}")
            small = code.let(f"icmp ult i64 {rest}, {period}")
            count = code.let(f"select i1 {small}, i64 {rest}, i64 {period}")
            zeros = ["zeroinitializer"] * len(self.tile)
            counts = self._words(terms, window, ky, first, count, zeros)
            return self._flush(coefficient, counts, carried)

        return code.loop(chunks, [(self.word, total) for total in sums], chunk)

    def _words(
        self, terms: list[Term], window: str, ky: str, first: str, count: str, counts: list[str]
    ) -> list[str]:
        """Count bits over `count` words of window row `ky`, from word `first`."""
        code = self.code
        row = code.let(f"mul nuw nsw i64 {ky}, %row")
        row_words = code.let(f"mul nuw nsw i64 {ky}, %kw")

        def one_word(index: str, carried: list[str]) -> list[str]:
            position = code.let(f"add nuw nsw i64 {index}, {first}")
            data = code.pointer("%data", code.let(f"add i64 {row}, {self._times(position, 4)}"))
            word = code.let(f"add nuw nsw i64 {position}, {row_words}")
            for term in terms:
                carried = self._term(term, data, word, window, carried)
            return carried

        return code.loop(count, [(self.counter, value) for value in counts], one_word)

    def _times(self, value: str, factor: int) -> str:
        return self.code.let(f"mul nuw nsw i64 {value}, {factor}")

    def _term(self, term: Term, data: str, word: str, window: str, counts: list[str]) -> list[str]:
        code, isa = self.code, self.isa
        plane = code.let(f"mul nuw nsw i64 {window}, {term.weight_plane}")
        at = code.let(f"add nuw nsw i64 {plane}, {word}")
        weights = code.pointer("%weights", self._times(at, self.signature.channels * 4))
        columns = [code.load(self.word, weights, 4, n * isa.lanes * 4) for n in range(self.vectors)]
        if term.activation_plane:
            data = code.pointer(data, code.let(f"mul i64 %plane, {term.activation_plane}"))
        result = list(counts)
        for m in range(self.signature.rows):
            pixel = code.pointer(data, code.let(f"mul i64 %pixel, {m}")) if m else data
            broadcast = code.splat(code.load("i32", pixel, 4), "i32", isa.lanes)
            for n, column in enumerate(columns):
                bits = code.apply(isa.logic[term.op], broadcast, column)
                bits = code.bitcast(bits, self.word, isa.count.operands[0])
                counted = code.apply(isa.count, bits)
                place = m * self.vectors + n
                result[place] = code.apply(isa.accumulate, result[place], counted)
        return result

    def _flush(self, coefficient: int, counts: list[str], totals: list[str]) -> list[str]:
        """Widen counters to 32-bit lanes and add them, times their coefficient."""
        code, result = self.code, []
        for count, total in zip(counts, totals, strict=True):
            for instruction in self.isa.widen:
                count = code.apply(instruction, count)
            scaled = code.let(f"mul {self.word} {count}, {self._constant(coefficient)}")
            result.append(code.let(f"add {self.word} {total}, {scaled}"))
        return result

    # -- 8-bit products ----------------------------------------------------------------------

    def _mac8(self) -> list[str]:
        code = self.code
        zeros = [(self.word, "zeroinitializer")] * len(self.tile)

        def one_row(ky: str, sums: list[str]) -> list[str]:
            row = code.let(f"mul nuw nsw i64 {ky}, %row")
            row_words = code.let(f"mul nuw nsw i64 {ky}, %kw")

            def one_word(index: str, carried: list[str]) -> list[str]:
                data = code.pointer("%data", code.let(f"add i64 {row}, {self._times(index, 4)}"))
                word = code.let(f"add nuw nsw i64 {index}, {row_words}")
                weights = code.pointer("%weights", self._times(word, self.signature.channels * 4))
                return self._dot_word(data, weights, carried)

            return code.loop("%kw", [(self.word, value) for value in sums], one_word)

        return code.loop("%kh", zeros, one_row)

    def _dot_word(self, data: str, weights: str, sums: list[str]) -> list[str]:
        """Four channels of every row times the tile's columns, `dot_group` at a time."""
        code, isa, result = self.code, self.isa, list(sums)
        words = []
        for m in range(self.signature.rows):
            pixel = code.pointer(data, code.let(f"mul i64 %pixel, {m}")) if m else data
            words.append(code.load("i32", pixel, 4))
        for part in range(4 // isa.dot_group):
            columns = [self._column(weights, part, n) for n in range(self.vectors)]
            for m, word in enumerate(words):
                operand = self._operand(word, part)
                for n, column in enumerate(columns):
                    place = m * self.vectors + n
                    result[place] = code.apply(isa.dot, result[place], operand, column)
        return result

    def _column(self, weights: str, part: int, n: int) -> str:
        isa, code = self.isa, self.code
        size = isa.lanes * isa.dot_group
        offset = part * self.signature.channels * isa.dot_group + n * size
        loaded = code.load(f"<{size} x i8>", weights, 1, offset)
        if isa.dot_group == 4:
            return loaded
        return code.let(f"sext <{size} x i8> {loaded} to <{size} x i16>")

    def _operand(self, word: str, part: int) -> str:
        """The activation operand of one dot step: bytes, zero-extended pairs, or one channel."""
        isa, code = self.isa, self.code
        if isa.dot_group == 4:
            return code.bitcast(code.splat(word, "i32", isa.lanes), self.word, isa.dot.operands[1])
        shift = part * isa.dot_group * 8
        shifted = code.let(f"lshr i32 {word}, {shift}") if shift else word
        low = code.let(f"and i32 {shifted}, 255")
        if isa.dot_group == 1:
            return code.splat(code.let(f"trunc i32 {low} to i16"), "i16", isa.lanes)
        high = code.let(f"shl i32 {code.let(f'and i32 {shifted}, 65280')}, 8")
        pair = code.splat(code.let(f"or i32 {low}, {high}"), "i32", isa.lanes)
        return code.bitcast(pair, self.word, isa.dot.operands[1])
