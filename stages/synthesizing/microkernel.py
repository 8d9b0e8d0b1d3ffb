"""A micro-kernel: loops over a window around the proved programs of a body, as LLVM IR text.

`void name(data, weights, sums, later, kh, kw, row, pixel, plane, share, odd)`: `data` points at
the window of the tile's first pixel, `weights` at the block of channels, `sums` at int32
[rows][32]; `kh` rows of `kw` words each, `row`, `pixel` and `plane` are strides in bytes, and odd
rows lie `odd` bytes further on. Where a register is a cache line, `share` bytes a word are fetched,
from `later` on, into the second cache: nobody needs them yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hw.isa import Isa, Vector
from stages.qnn.llvm import NEAREST, SECOND, FunctionText
from stages.qnn.signature import BLOCK, WORD_BYTES, KernelSignature
from stages.qnn.tables import ENTRIES
from stages.synthesizing.addresses import row_start
from stages.synthesizing.beginning import PARAMETER, from_nothing
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.carried import body_of
from stages.synthesizing.tiles import TileKernel

PARAMETERS = (
    "ptr noalias readonly %data",
    "ptr noalias readonly %weights",
    "ptr noalias %sums",
    "ptr %later",
    "i64 %kh",
    "i64 %kw",
    "i64 %row",
    "i64 %pixel",
    "i64 %plane",
    "i64 %share",
    "i64 %odd",
)
CACHE_LINE = 64
AHEAD = 4
"""Words whose weights are fetched before they are needed, where a register is a cache line: the
processor's own prefetching keeps less than two lines a step coming from the second cache."""
SHARES = 8
"""Words whose shares of later weights fit a cache line, as a rule."""
Words = Callable[[str, str, str, list[str]], list[str]]


def kernel_text(
    signature: KernelSignature, isa: Isa, body: Body | None = None
) -> tuple[str, list[str]]:
    """The function of a signature, whichever its family, and the declarations it needs."""
    if signature.is_tiled:
        return TileKernel(signature, body or body_of(signature, isa)).text(PARAMETERS)
    return MicroKernel(signature, isa, body).text()


class MicroKernel:
    """Emits one signature of vectors for one instruction set."""

    def __init__(self, signature: KernelSignature, isa: Isa, body: Body | None = None) -> None:
        self.signature, self.isa = signature, isa
        self.body = body or body_of(signature, isa)
        self.code = FunctionText()
        self.word = Vector(isa.lanes, 32)
        self.vectors = signature.channels // isa.lanes
        self.tile = self.body.counters(signature.rows, signature.channels, isa.lanes)
        self.kinds = [self.body.counter(n) for _, n in self.tile]

    def text(self) -> tuple[str, list[str]]:
        """The function and the declarations it needs.

        Sums that can begin with something have another one, which `signature.beginning` names.
        """
        for m in range(self.signature.rows):
            for n in range(0 if self.signature.counts_sums else self.vectors):
                self._store(m, n, "zeroinitializer")
        window = self.code.let("mul nuw nsw i64 %kh, %kw")
        counters: list[str] = []
        for one in self.body.passes:
            counters = self._pass(one, window, self._rescaled(counters, one.carried))
        if self.signature.sum_index is not None:
            self._add_activation_sums(self.signature.sum_index)
        self.code.do("ret void")
        if not self.signature.begins:
            return self.code.function(self.signature.name, PARAMETERS), list(self.code.declarations)
        outer, declarations = from_nothing(self.signature, PARAMETERS)
        inner = self.code.function(self.signature.beginning, (*PARAMETERS, PARAMETER))
        return f"{inner}\n{outer}", [*self.code.declarations, *declarations]

    # -- passes ------------------------------------------------------------------------------

    def _rescaled(self, counters: Sequence[str], factor: int) -> list[str]:
        if factor == 0 and self.signature.begins:
            first = [
                self.code.load(self.word.llvm, "%begin", 4, n * self.isa.bytes)
                for n in range(self.vectors)
            ]
            return [first[n] for _, n in self.tile]
        if factor == 0:
            return ["zeroinitializer"] * len(self.tile)
        if factor == 1:
            return list(counters)
        return [
            self.code.let(f"mul {kind.llvm} {c}, {kind.splat(factor)}")
            for kind, c in zip(self.kinds, counters, strict=True)
        ]

    def _pass(self, one: Pass, window: str, initial: list[str]) -> list[str]:
        """One pass over the window; its counters, for a chain that goes on."""
        code, flush = self.code, self.signature.flush
        carried = self._typed(initial)
        if flush in ("none", "window"):
            counters = code.loop(
                "%kh",
                carried,
                lambda ky, counts: self._words(one, window, ky, "0", "%kw", counts),
            )
            if one.ends_chain:
                self._add(one.coefficient, counters)
            return counters
        zeros = ["zeroinitializer"] * len(self.tile)

        def one_row(ky: str, _: list[str]) -> list[str]:
            if flush == "chunk":
                return self._chunks(one, window, ky)
            self._add(one.coefficient, self._words(one, window, ky, "0", "%kw", zeros))
            return []

        code.loop("%kh", [], one_row)
        return []

    def _chunks(self, one: Pass, window: str, ky: str) -> list[str]:
        """Runs of at most `flush_period` words, each emptied before a counter can overflow."""
        code, period = self.code, self.signature.flush_period
        # In 32 bits, because 32-bit ARM divides longer numbers in a library.
        last = code.let(f"trunc i64 {code.let(f'add i64 %kw, {period - 1}')} to i32")
        chunks = code.let(f"zext i32 {code.let(f'udiv i32 {last}, {period}')} to i64")

        def chunk(index: str, _: list[str]) -> list[str]:
            first = code.let(f"mul nuw nsw i64 {index}, {period}")
            rest = code.let(f"sub i64 %kw, {first}")
            small = code.let(f"icmp ult i64 {rest}, {period}")
            count = code.let(f"select i1 {small}, i64 {rest}, i64 {period}")
            zeros = ["zeroinitializer"] * len(self.tile)
            self._add(one.coefficient, self._words(one, window, ky, first, count, zeros))
            return []

        return code.loop(chunks, [], chunk)

    def _words(
        self, one: Pass, window: str, ky: str, first: str, count: str, counters: list[str]
    ) -> list[str]:
        """Count over `count` words of window row `ky`, from word `first`, a step at a time."""
        code, step = self.code, self.signature.step
        row = row_start(code, ky)
        row_words = code.let(f"mul nuw nsw i64 {ky}, %kw")

        def one_word(index: str, carried: list[str]) -> list[str]:
            done = self._times(index, step) if step > 1 else index
            position = code.let(f"add nuw nsw i64 {done}, {first}")
            moved = self._times(position, self.signature.word_bytes)
            data = code.pointer("%data", code.let(f"add i64 {row}, {moved}"))
            word = code.let(f"add nuw nsw i64 {position}, {row_words}")

            counters = {f"c{m}.{n}": c for (m, n), c in zip(self.tile, carried, strict=True)}
            if self.isa.bytes == CACHE_LINE and one is self.body.passes[0]:
                self._fetch(word)

            def operand(name: str) -> str:
                kind = one.word.types[name]
                if name[0] == "a":
                    return self._activations(name, data, kind)
                return self._weights(name, word, window, kind) if name[0] == "w" else counters[name]

            outputs = one.word.emit(code, operand)
            return [outputs[f"c{m}.{n}"] for m, n in self.tile]

        steps = code.let(f"udiv exact i64 {count}, {step}") if step > 1 else count
        # A body is as long as the registers allow; several in a row would spill.
        return code.loop(steps, self._typed(counters), one_word, unroll=False)

    def _typed(self, counters: Sequence[str]) -> list[tuple[str, str]]:
        return [(kind.llvm, value) for kind, value in zip(self.kinds, counters, strict=True)]

    # -- operands ----------------------------------------------------------------------------

    def _activations(self, name: str, data: str, kind: Vector) -> str:
        """The word of plane or part `a{plane}.{m}` in every lane, or its tables.

        Words of a step have several parts to a plane.
        """
        plane, m = _indices(name)
        place, number = data, 0
        if self.signature.plan is not None:
            plane, number = divmod(plane, self.signature.step)
            if stored := self.signature.plane_index(plane):
                place = self._moved(place, "%plane", stored)
        if m:
            place = self._moved(place, "%pixel", m)
        if (tables := self.signature.tables) is not None:
            size = tables.groups * ENTRIES
            loaded = self.code.load(f"<{size} x i8>", place, ENTRIES, plane * size)
            return self.code.repeated(loaded, size, kind)
        if self.signature.is_float:
            word = self.code.splat(self.code.load("i32", place, 4), "i32", self.isa.lanes)
            return self.code.bitcast(word, self.word.llvm, kind.llvm)
        if self.signature.plan is None and kind.bits == 16 and kind.lanes == 2 * self.isa.lanes:
            return self._pair(place, plane, kind)
        if self.signature.plan is None:
            # Pixels of a picture of few channels may have as many bytes as channels.
            return self._part(self.code.load("i32", place, 1), plane, kind)
        word = self.code.load("i32", place, 4, 4 * number)
        return self.code.splat(word, "i32", self.isa.lanes)

    def _part(self, word: str, part: int, kind: Vector) -> str:
        """The operand of one step of 8-bit products, from a word of four channels.

        `kind` has bytes, of which a step takes one, two or all four, or one channel in 16 bits.
        """
        code, group = self.code, kind.lanes // self.isa.lanes
        if kind.bits == 8:
            element = f"i{8 * group}"
            shifted = code.let(f"lshr i32 {word}, {part * 8 * group}") if part else word
            value = shifted if group == 4 else code.let(f"trunc i32 {shifted} to {element}")
            splat = code.splat(value, element, self.isa.lanes)
            return code.bitcast(splat, f"<{self.isa.lanes} x {element}>", kind.llvm)
        shifted = code.let(f"lshr i32 {word}, {part * 8}") if part else word
        low = code.let(f"and i32 {shifted}, 255")
        return code.splat(code.let(f"trunc i32 {low} to i16"), "i16", kind.lanes)

    def _pair(self, place: str, part: int, kind: Vector) -> str:
        """Two channels in every lane, zero-extended to 16 bits.

        They are spread in the register: from a general one each pair would cost five instructions.
        Each pair is loaded by itself, which is cheaper than a register that keeps the whole word;
        what is loaded behind the last one is not used.
        """
        code, count = self.code, 2 * kind.lanes
        word = code.load("i32", place, 1, 2 * part)
        order = ", ".join(
            f"i32 {lane // 4 * 4 + lane % 4 // 2 if lane % 2 == 0 else count + lane}"
            for lane in range(count)
        )
        vector, mask = f"<{count} x i8>", f"<{count} x i32> <{order}>"
        values = code.bitcast(code.splat(word, "i32", self.isa.lanes), self.word.llvm, vector)
        pairs = code.let(f"shufflevector {vector} {values}, {vector} zeroinitializer, {mask}")
        return code.bitcast(pairs, vector, kind.llvm)

    def _weights(self, name: str, word: str, window: str, kind: Vector) -> str:
        """The register of plane or part `w{plane}.{n}` at a word of the window.

        Words that are looked up have several parts to a plane, one behind the other; so do the
        words of a step.
        """
        plane, n = _indices(name)
        code, channels = self.code, self.signature.channels
        if self.signature.products is None:
            parts = 4 // tables.groups if (tables := self.signature.tables) else 1
            plane, part = divmod(plane, parts * self.signature.step)
            start = self._times(window, plane) if plane else "0"
            at = code.let(f"add nuw nsw i64 {start}, {word}") if plane else word
            pointer = code.pointer("%weights", self._times(at, channels * 4))
            offset = part * channels * 4 // parts + n * self.isa.bytes
            return code.load(kind.llvm, pointer, 4, offset)
        pointer = code.pointer("%weights", self._times(word, channels * 4))
        if self.signature.is_float:
            return code.load(kind.llvm, pointer, 4, n * self.isa.bytes)
        group = kind.lanes // self.isa.lanes
        loaded = Vector(kind.lanes, 8)
        value = code.load(loaded.llvm, pointer, 1, plane * channels * group + n * kind.lanes)
        if kind.bits == 8:
            return value
        return code.let(f"sext {loaded.llvm} {value} to {kind.llvm}")

    def _fetch(self, word: str) -> None:
        """Bring the weights of a later word into the first cache, and a share of later ones closer.

        What is read once a block comes from memory, at a rate that no block could wait for. Bits
        are so few that a block's stay in the first cache. The first pass over a window does it.
        """
        code, size = self.code, self.signature.channels * WORD_BYTES
        if self.signature.products is not None:
            pointer = code.pointer("%weights", self._times(word, size))
            for line in range(0, size, CACHE_LINE):
                code.prefetch(code.pointer(pointer, str(AHEAD * size + line)), NEAREST)
        for moved in range(0, self.signature.step, SHARES):
            at = code.let(f"add nuw nsw i64 {word}, {moved}") if moved else word
            code.prefetch(code.pointer("%later", code.let(f"mul i64 {at}, %share")), SECOND)

    def _moved(self, pointer: str, stride: str, count: int) -> str:
        return self.code.pointer(pointer, self.code.let(f"mul i64 {stride}, {count}"))

    def _times(self, value: str, factor: int) -> str:
        return self.code.let(f"mul nuw nsw i64 {value}, {factor}")

    # -- sums --------------------------------------------------------------------------------

    def _place(self, m: int, n: int) -> int:
        return m * BLOCK * 4 + n * self.isa.bytes

    def _store(self, m: int, n: int, value: str) -> None:
        self.code.store(self.word.llvm, value, "%sums", 4, self._place(m, n))

    def _increase(self, m: int, n: int, value: str) -> None:
        if self.signature.counts_sums:
            self._store(m, n, value)
            return
        before = self.code.load(self.word.llvm, "%sums", 4, self._place(m, n))
        self._store(m, n, self.code.let(f"add {self.word.llvm} {before}, {value}"))

    def _add(self, coefficient: int, counters: Sequence[str]) -> None:
        """Empty counters into the sums, times their coefficient."""
        together, registers = self.body.together, self.body.registers
        for first in range(0, len(counters), together):
            m, n = self.tile[first]
            inputs = {f"c{i}": counters[first + i] for i in range(together)}
            for name, total in self.body.empty.emit(self.code, inputs.__getitem__).items():
                if coefficient != 1:
                    factor = self.word.splat(coefficient)
                    total = self.code.let(f"mul {self.word.llvm} {total}, {factor}")
                self._increase(m, n // together * registers + int(name[1:]), total)

    def _add_activation_sums(self, index: int) -> None:
        """Add what the producer summed over activations: contiguous words, one loop a pixel."""
        for m in range(self.signature.rows):
            pixel = self._moved("%data", "%pixel", m) if m else "%data"
            total = self._window_sum(self._moved(pixel, "%plane", index))
            lanes = self.code.splat(total, "i32", self.isa.lanes)
            for n in range(self.vectors):
                self._increase(m, n, lanes)

    def _window_sum(self, first: str) -> str:
        """The sum of the words of a window that starts at `first`."""
        code = self.code

        def one_row(ky: str, sums: list[str]) -> list[str]:
            row = code.pointer(first, row_start(code, ky))

            def one_word(x: str, total: list[str]) -> list[str]:
                word = code.load("i32", code.pointer(row, self._times(x, 4)), 4)
                return [code.let(f"add i32 {total[0]}, {word}")]

            return code.loop("%kw", [("i32", sums[0])], one_word)

        return code.loop("%kh", [("i32", "0")], one_row)[0]


def _indices(name: str) -> tuple[int, int]:
    """The two numbers of an input's name."""
    first, second = name[1:].split(".")
    return int(first), int(second)
