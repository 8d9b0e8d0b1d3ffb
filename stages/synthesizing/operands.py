"""What a micro-kernel multiplies: activations and weights, loaded as its programs read them."""

from __future__ import annotations

from hw.isa import Isa, Vector
from stages.kernels.families import BytePairs
from stages.kernels.llvm import L1_CACHE, L2_CACHE, FunctionText
from stages.kernels.lut import ENTRIES
from stages.kernels.operand_storage import BYTE_BITS, WORD_BYTES
from stages.kernels.signature import KernelSignature
from stages.synthesizing.weight_expansion import load_expanded

CACHE_LINE = 64
AHEAD = 4
"""Words whose weights are fetched before they are needed, where a register is a cache line: the
processor's own prefetching keeps less than two lines a step coming from the L2 cache."""
SHARES = 8
"""Words whose shares of later weights fit a cache line, as a rule."""


class Operands:
    """Emits loads of one signature for one instruction set: `%data`, `%weights` and `%later`."""

    def __init__(self, signature: KernelSignature, isa: Isa) -> None:
        self.signature, self.isa = signature, isa
        self.code = FunctionText()
        self.word = Vector(isa.lanes, 32)
        self.offset = signature.kernel_offset
        self.pixels: dict[tuple[str, int], str] = {}
        """Where the words of a step are, and pixel → registers of them."""

    def activations(self, name: str, data: str, kind: Vector) -> str:
        """The word of plane or part `a{plane}.{m}` in every lane, or its LUTs.

        Words of a step have several parts to a plane.
        """
        plane, m = _indices(name)
        place, number = data, 0
        if self.signature.plan is not None:
            plane, number = divmod(plane, self.signature.words_per_step)
            place = self.plane(place, self.signature.plane_index(plane))
        if m:
            place = self.moved(place, "%pixel", m)
        if (lut := self.signature.lut) is not None:
            size = lut.groups * ENTRIES
            loaded = self.code.load(f"<{size} x i8>", place, ENTRIES, plane * size)
            return self.code.repeated(loaded, size, kind)
        if self.signature.multiplies_by_lane:
            return self._lane(data, m, plane, kind)
        if self.signature.is_float:
            word = self.code.splat(self.code.load("i32", place, 4), "i32", self.isa.lanes)
            return self.code.bitcast(word, self.word.llvm, kind.llvm)
        if self.signature.pixels > 1:
            return self.code.bitcast(self._joinable(place), self.word.llvm, kind.llvm)
        if self.signature.multiplies_int16:
            group = kind.lanes // self.isa.lanes
            element = f"i{16 * group}"
            value = self.code.load(element, place, 2, 2 * group * plane)
            splat = self.code.splat(value, element, self.isa.lanes)
            return self.code.bitcast(splat, f"<{self.isa.lanes} x {element}>", kind.llvm)
        if self.signature.plan is None and kind.bits == 16 and kind.lanes == 2 * self.isa.lanes:
            return self._pair(place, plane, kind)
        if self.signature.plan is None:
            # Pixels of an image of few channels may have as many bytes as channels.
            part = self._part(self.code.load("i32", place, 1), plane, kind)
            return self._signed(self.code.hidden(kind.llvm, part), kind) if self.offset else part
        return self._word(place, number, kind)

    def _word(self, place: str, number: int, kind: Vector) -> str:
        """A packed word of a step in every lane of its width, or as a whole register."""
        bits = self.signature.word_bits
        size, copies = bits // BYTE_BITS, kind.bytes * BYTE_BITS // bits
        # Planes inside a pixel have no words narrower than 32 bits.
        offset = number * size * (self.signature.word_bytes // WORD_BYTES)
        if copies == 1:
            return self.code.load(kind.llvm, place, WORD_BYTES, offset)
        element = f"i{bits}"
        word = self.code.load(element, place, min(size, WORD_BYTES), offset)
        splat = self.code.splat(word, element, copies)
        return self.code.bitcast(splat, f"<{copies} x {element}>", kind.llvm)

    def place(self, pointer: str, data: str, word: str, window: str) -> str:
        """Where one of the pointers of a loop begins: `a{plane}.{m}` or `w{plane}`."""
        plane, _, m = pointer[1:].partition(".")
        if pointer[0] == "w":
            start = self.times(window, int(plane))
            at = self.code.let(f"add nuw nsw i64 {start}, {word}")
            return self.code.pointer("%weights", self.times(at, self.signature.channels * 4))
        stored = self.plane(data, self.signature.plane_index(int(plane)))
        return self.moved(stored, "%pixel", int(m))

    def plane(self, place: str, number: int) -> str:
        """Where one of the planes, or of the sums behind them, begins."""
        if not number:
            return place
        if inner := self.signature.inner:
            return self.code.pointer(place, str(number * inner * WORD_BYTES))
        return self.moved(place, "%plane", number)

    def word_place(self, word: str) -> str:
        """How far from the first word of a plane another one is, in bytes."""
        inner = self.signature.inner
        if inner < 2:
            return self.times(word, self.signature.word_bytes)
        block, rest = (self.code.let(f"{op} i64 {word}, {inner}") for op in ("udiv", "urem"))
        far = self.times(block, inner * self.signature.word_bytes)
        return self.code.let(f"add i64 {far}, {self.times(rest, WORD_BYTES)}")

    def _lane(self, data: str, m: int, lane: int, kind: Vector) -> str:
        """One of the words, or of the 16 bits, of a pixel, in every lane of a register (ARM).

        What multiplies by one lane of a register needs no register of copies. LLVM must not know
        that some lanes are not used, or it would bring each of the others by itself.
        """
        is_bytes = kind.bits == 8
        step = self.signature.step * self.signature.channels_per_word
        seen = self.word if is_bytes else Vector(max(kind.lanes, step), kind.bits)
        if (data, m) not in self.pixels:
            self.pixels[data, m] = self.pixel(data, m, seen)
        copies = kind.bytes // (seen.bits // 8)
        mask = f"<{copies} x i32> <{', '.join([f'i32 {lane}'] * copies)}>"
        # As what it multiplies: of other types LLVM would copy the lane.
        element = "half" if self.signature.is_float else f"i{seen.bits}"
        of, to = f"<{seen.lanes} x {element}>", f"<{copies} x {element}>"
        words = self.code.bitcast(self.pixels[data, m], seen.llvm, of)
        found = self.code.let(f"shufflevector {of} {words}, {of} poison, {mask}")
        return self.code.bitcast(found, to, kind.llvm)

    def pixel(self, data: str, m: int, kind: Vector) -> str:
        """A register of a pixel's channels, of a kind."""
        place = self.moved(data, "%pixel", m) if m else data
        loaded = self._lanes(place) if kind.bits == 32 else self.code.load(kind.llvm, place, 2)
        hidden = self.code.hidden(kind.llvm, loaded)
        return self._signed(hidden, kind) if self.offset else hidden

    def _joinable(self, place: str) -> str:
        """A pixel's words, to be joined with those of another one."""
        loaded = self._lanes(place)
        return self._signed(loaded, self.word) if self.offset else loaded

    def _lanes(self, place: str) -> str:
        """The words of a step as lanes of a register, whose others are any."""
        count = self.signature.step
        loaded = self.code.load(f"<{count} x i32>", place, 1)
        return self.code.lanes(f"<{count} x i32>", loaded, 0, self.isa.lanes)

    def _signed(self, value: str, kind: Vector) -> str:
        """Bytes of levels less 128, which are signed."""
        flipped = sum(0x80 << 8 * byte for byte in range(kind.bits // 8))
        return self.code.let(f"xor {kind.llvm} {value}, {kind.splat(flipped)}")

    def _part(self, word: str, part: int, kind: Vector) -> str:
        """The operand of one step of 8-bit products, from a word of four channels.

        `kind` has bytes, of which a step takes one, two or all four, or one channel in 16 bits.
        """
        code, group = self.code, self._group(kind)
        if kind.bits == 8:
            element, copies = f"i{8 * group}", kind.lanes // group
            shifted = code.let(f"lshr i32 {word}, {part * 8 * group}") if part else word
            value = shifted if group == 4 else code.let(f"trunc i32 {shifted} to {element}")
            splat = code.splat(value, element, copies)
            return code.bitcast(splat, f"<{copies} x {element}>", kind.llvm)
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

    def weights(self, name: str, word: str, window: str, kind: Vector) -> str:
        """The register of plane or part `w{plane}.{n}` at a word of the window.

        Words that are looked up have several parts to a plane, one behind the other; so do the
        words of a step.
        """
        plane, n = _indices(name)
        code, channels = self.code, self.signature.channels
        if self.signature.products is None:
            lut = self.signature.lut
            parts = 4 // lut.groups * self.signature.step if lut else self.signature.words_per_step
            plane, part = divmod(plane, parts)
            start = self.times(window, plane) if plane else "0"
            at = code.let(f"add nuw nsw i64 {start}, {word}") if plane else word
            pointer = code.pointer("%weights", self.times(at, channels * 4))
            step_bytes = channels * WORD_BYTES * self.signature.step
            offset = part * step_bytes // parts + n * self.isa.bytes
            return code.load(kind.llvm, pointer, 4, offset)
        pointer = code.pointer("%weights", self.times(word, self.signature.weight_bytes))
        if self.signature.is_float:
            return code.load(kind.llvm, pointer, 4, 2 * plane * channels + n * self.isa.bytes)
        if self.signature.code is not None:
            return load_expanded(code, self.signature, self.isa, pointer, n)
        group = self._group(kind)
        if isinstance(self.signature.products, BytePairs) and plane and n == 0:
            # Lines in the order in which they lie: no prefetching follows another one.
            code.do('call void asm sideeffect "", "~{memory}"()')
        if self.signature.multiplies_int16:
            offset = 2 * (plane * channels * group + n * kind.lanes)
            return code.load(kind.llvm, pointer, 4, offset)
        loaded = Vector(kind.lanes, 8)
        value = code.load(loaded.llvm, pointer, 1, plane * channels * group + n * kind.lanes)
        if kind.bits == 8:
            return value
        return code.let(f"sext {loaded.llvm} {value} to {kind.llvm}")

    def _group(self, kind: Vector) -> int:
        """Channels of a register's lane of 32 bits, of which there may be half as many; or of a
        row of a matrix."""
        products = self.signature.products
        if products is not None and products.pixels > 1:
            return products.group
        is_half = isinstance(products, BytePairs)
        return kind.lanes // (self.isa.lanes // 2 if is_half else self.isa.lanes)

    @property
    def fetches(self) -> bool:
        """Whether weights are fetched that are not needed yet.

        Shorter registers compute so long with what they load that they wait for little; with bits,
        which are few, half a line is too short for that as well.
        """
        least = CACHE_LINE if self.signature.products is None else CACHE_LINE // 2
        return self.isa.bytes >= least

    def fetch(self, word: str) -> None:
        """Bring the weights of a later word into the L1 cache, and a share of later ones closer.

        What is read once a block comes from memory, at a rate that no block could wait for. Bits
        are so few that a block's stay in the L1 cache; half lines come from the L2 cache in
        time. The first pass over a window does it.
        """
        code, size = self.code, self.signature.weight_bytes
        if self.signature.products is not None and self.isa.bytes == CACHE_LINE:
            pointer = code.pointer("%weights", self.times(word, size))
            for line in range(0, size, CACHE_LINE):
                ahead = AHEAD * max(size, CACHE_LINE) + line
                code.prefetch(code.pointer(pointer, str(ahead)), L1_CACHE)
        for moved in range(0, self.signature.step, SHARES):
            at = code.let(f"add nuw nsw i64 {word}, {moved}") if moved else word
            code.prefetch(code.pointer("%later", code.let(f"mul i64 {at}, %share")), L2_CACHE)

    def moved(self, pointer: str, stride: str, count: int) -> str:
        """A pointer moved by so many times a stride."""
        return self.code.pointer(pointer, self.code.let(f"mul i64 {stride}, {count}"))

    def times(self, value: str, factor: int) -> str:
        """A number that is not negative, times a constant."""
        return self.code.let(f"mul nuw nsw i64 {value}, {factor}")


def _indices(name: str) -> tuple[int, int]:
    """The two numbers of an input's name."""
    first, second = name[1:].split(".")
    return int(first), int(second)


def row_start(code: FunctionText, ky: str) -> str:
    """Bytes from a window's first row to row `ky`: `row` for each, `wrap` more after every `per`.

    These are constants, and `wrap` is 0 where rows are evenly apart, so that nothing is left of it.
    """
    # In 32 bits, because 32-bit ARM divides longer numbers in a library.
    number, per = (code.let(f"trunc i64 {value} to i32") for value in (ky, "%per"))
    wraps = code.let(f"zext i32 {code.let(f'udiv i32 {number}, {per}')} to i64")
    even = code.let(f"mul nsw i64 {ky}, %row")
    more = code.let(f"mul nsw i64 {wraps}, %wrap")
    return code.let(f"add nsw i64 {even}, {more}")
