"""A micro-kernel: loops over a window around the proved programs of a body, as LLVM IR text.

`void name(data, weights, sums, later, kh, kw, row, pixel, plane, share, per, wrap)`: `data` points
at the window of the tile's first pixel, `weights` at the block of channels, `sums` at int32
[rows][32]; `kh` rows of `kw` words each, `row`, `pixel` and `plane` are strides in bytes, and after
every `per` rows the next one lies `wrap` bytes further on. Where registers are long, `share` bytes
a word are fetched, from `later` on, into the L2 cache: nobody needs them yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa
from stages.kernels.signature import KernelSignature
from stages.synthesizing.bias_preload import PRELOAD, without_preload
from stages.synthesizing.bodies import body_of
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.operands import row_start
from stages.synthesizing.step_loops import loop_of
from stages.synthesizing.sum_stores import SumStores
from stages.synthesizing.tile_kernel import TileKernel

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
    "i64 %per",
    "i64 %wrap",
)


def kernel_text(
    signature: KernelSignature, isa: Isa, body: Body | None = None
) -> tuple[str, list[str]]:
    """The function of a signature, whichever its family, and the declarations it needs."""
    if signature.is_tiled:
        return TileKernel(signature, isa, body or body_of(signature, isa)).text(PARAMETERS)
    return MicroKernel(signature, isa, body).text()


class MicroKernel(SumStores):
    """Emits one signature of vectors for one instruction set."""

    def __init__(self, signature: KernelSignature, isa: Isa, body: Body | None = None) -> None:
        super().__init__(signature, isa, body or body_of(signature, isa))
        self.kinds = [self.body.counter(n) for _, n in self.tile]

    def text(self) -> tuple[str, list[str]]:
        """The function and the declarations it needs.

        Sums that can begin with something have another one, which `signature.preload_name` names.
        """
        for m in range(self.signature.rows):
            for n in range(0 if self.stores_first else self.vectors):
                self.store(m, n, "zeroinitializer")
        window = self.code.let("mul nuw nsw i64 %kh, %kw")
        counters: list[str] = []
        for one in self.body.passes:
            counters = self._pass(one, window, self._rescaled(counters, one.carried))
        if self.signature.sum_index is not None:
            self.add_activation_sums(self.signature.sum_index)
        self.code.do("ret void")
        if not self.signature.preloads_bias:
            return self.code.function(self.signature.name, PARAMETERS), list(self.code.declarations)
        outer, declarations = without_preload(self.signature, PARAMETERS)
        inner = self.code.function(self.signature.preload_name, (*PARAMETERS, PRELOAD))
        return f"{inner}\n{outer}", [*self.code.declarations, *declarations]

    # -- passes ------------------------------------------------------------------------------

    def _rescaled(self, counters: Sequence[str], factor: int) -> list[str]:
        if factor == 0 and self.signature.preloads_bias:
            first = [
                self.code.load(self.word.llvm, "%begin", 4, n * self.isa.bytes)
                for n in range(self.vectors)
            ]
            parts = [part for value in first for part in self._preloaded(value)]
            return [parts[n] for _, n in self.tile]
        if factor == 0:
            return ["zeroinitializer"] * len(self.tile)
        if factor == 1:
            return list(counters)
        return [
            self.code.let(f"mul {kind.llvm} {c}, {kind.splat(factor)}")
            for kind, c in zip(self.kinds, counters, strict=True)
        ]

    def _preloaded(self, first: str) -> list[str]:
        """Counters that are flushed to what sums begin with: half of their lanes begin with 0, or
        the same of every pixel."""
        together, lanes, kind = self.body.registers_per_flush, self.isa.lanes, self.word.llvm
        if together == 1:
            return [first]
        if self.body.pixels > 1:
            return [self._for_pixels(first, n) for n in range(together)]
        # As a wider integer: where zips are slow (Cortex-A72), widening is not.
        narrow, size = f"<{lanes // together} x i32>", 32 * together
        wide, found = f"<{lanes // together} x i{size}>", []
        for part in range(0, lanes, lanes // together):
            own = self.code.lanes(kind, first, part, lanes // together)
            found.append(self.code.let(f"zext {narrow} {own} to {wide}"))
        return [self.code.bitcast(each, wide, kind) for each in found]

    def _for_pixels(self, first: str, number: int) -> str:
        """One of the parts of a register, for each of the pixels that share one."""
        kind, size = self.word.llvm, self.isa.lanes // self.body.pixels
        own = ", ".join(f"i32 {number * size + lane}" for lane in range(size))
        mask = f"<{self.isa.lanes} x i32> <{', '.join([own] * self.body.pixels)}>"
        return self.code.let(f"shufflevector {kind} {first}, {kind} poison, {mask}")

    def _pass(self, one: Pass, window: str, initial: list[str]) -> list[str]:
        """One pass over the window; its counters, for a chain that goes on."""
        code, flush = self.code, self.signature.flush
        carried = self._typed(initial)
        if flush in ("none", "window"):
            # Rows of a single word would be several bodies in a row, where tiles stay in a loop.
            counters = code.loop(
                "%kh",
                carried,
                lambda ky, counts: self._words(one, window, ky, "0", "%kw", counts),
                unroll=flush == "window",
            )
            if one.ends_chain:
                self.add(one.coefficient, counters, one is self.body.passes[0])
            return counters
        zeros = ["zeroinitializer"] * len(self.tile)

        def one_row(ky: str, _: list[str]) -> list[str]:
            if flush == "chunk":
                return self._chunks(one, window, ky)
            self.add(one.coefficient, self._words(one, window, ky, "0", "%kw", zeros))
            return []

        code.loop("%kh", [], one_row)
        return []

    def _chunks(self, one: Pass, window: str, ky: str) -> list[str]:
        """Runs of at most `flush_period` words, each flushed before a counter can overflow."""
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
            self.add(one.coefficient, self._words(one, window, ky, first, count, zeros))
            return []

        return code.loop(chunks, [], chunk)

    def _words(
        self, one: Pass, window: str, ky: str, first: str, count: str, counters: list[str]
    ) -> list[str]:
        """Count over `count` words of window row `ky`, from word `first`, a step at a time."""
        code, step = self.code, self.signature.step
        row = row_start(code, ky)
        row_words = code.let(f"mul nuw nsw i64 {ky}, %kw")
        if self.signature.coupled:
            return self._pipelined(one, window, row, row_words, first, count, counters)

        steps = code.let(f"udiv exact i64 {count}, {step}") if step > 1 else count
        pixels = range(self.signature.rows if self.signature.loads_ahead else 0)

        def place(index: str) -> tuple[str, str]:
            """The word that a step begins with, and where it is."""
            done = self.times(index, step) if step > 1 else index
            position = code.let(f"add nuw nsw i64 {done}, {first}")
            moved = self.times(position, self.signature.word_bytes)
            return position, code.pointer("%data", code.let(f"add i64 {row}, {moved}"))

        def one_word(index: str, carried: list[str]) -> list[str]:
            position, data = place(index)
            for m in pixels:
                self.pixels[data, m] = carried[len(self.tile) + m]
            word = code.let(f"add nuw nsw i64 {position}, {row_words}")

            counters = {f"c{m}.{n}": c for (m, n), c in zip(self.tile, carried, strict=False)}
            if self.fetches and one is self.body.passes[0]:
                self.fetch(word)

            def operand(name: str) -> str:
                kind = one.word.types[name]
                if name[0] == "a":
                    return self.activations(name, data, kind)
                return self.weights(name, word, window, kind) if name[0] == "w" else counters[name]

            outputs = one.word.emit(code, operand)
            ahead = place(self._next(index, steps))[1] if pixels else ""
            later = [self.pixel(ahead, m, self.word) for m in pixels]
            return [*(outputs[f"c{m}.{n}"] for m, n in self.tile), *later]

        begin = place("0")[1] if pixels else ""
        earlier = [(self.word.llvm, self.pixel(begin, m, self.word)) for m in pixels]
        # A body is as long as the registers allow; several in a row would spill.
        found = code.loop(steps, [*self._typed(counters), *earlier], one_word, unroll=False)
        return found[: len(self.tile)]

    def _next(self, index: str, steps: str) -> str:
        """The number of the next step, or that of the last one again."""
        following = self.code.let(f"add nuw nsw i64 {index}, 1")
        is_last = self.code.let(f"icmp eq i64 {following}, {steps}")
        return self.code.let(f"select i1 {is_last}, i64 {index}, i64 {following}")

    def _pipelined(
        self,
        one: Pass,
        window: str,
        row: str,
        row_words: str,
        first: str,
        count: str,
        counters: list[str],
    ) -> list[str]:
        """The same as a loop that is not left to LLVM."""
        code, loop = self.code, loop_of(self.signature, one.word, self.isa)
        moved = self.times(first, self.signature.word_bytes)
        data = code.pointer("%data", code.let(f"add i64 {row}, {moved}"))
        word = code.let(f"add nuw nsw i64 {first}, {row_words}")
        places = [self.place(name, data, word, window) for name in loop.pointers]
        iterations = code.let(f"udiv exact i64 {count}, {self.signature.step}")
        done = code.let(loop.call([kind.llvm for kind in self.kinds], counters, places, iterations))
        return [code.let(f"extractvalue {loop.result} {done}, {n}") for n in range(len(counters))]

    def _typed(self, counters: Sequence[str]) -> list[tuple[str, str]]:
        return [(kind.llvm, value) for kind, value in zip(self.kinds, counters, strict=True)]
