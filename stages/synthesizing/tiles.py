"""Kernels of matrix tiles (AMX): rows of pixels times weights.

A register of data holds a row of bytes for each of up to 16 pixels, read where the picture lies: no
copy is made of it (im2col), as the bytes of a window row follow one another. Weights are those of
the dot products: 16 channels' words of four bytes, or of two bfloat16, one behind the other, are a
row. Two registers of each make four of sums, up to 32 pixels by 32 channels, so that every one that
is loaded is used twice. A small picture is multiplied as a whole by 16 channels at a time: such a
layer waits for its weights, and these are read a single time, as they lie. Registers are shaped
once for all calls, by `shaping_text`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hw.costs import CoreCosts
from hw.isa import Isa, Vector, tiles
from stages.qnn.llvm import NEAREST, SECOND, FunctionText
from stages.qnn.methods import WORD_BYTES, Products
from stages.qnn.offers import LINE, Offer
from stages.qnn.signature import BLOCK, TILES_BEGIN, TILES_END, KernelSignature
from stages.synthesizing.addresses import row_start
from stages.synthesizing.beginning import BEGIN
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.program import Program

PIXELS = (7, 8, 14, 16, 28, 32)
"""Pixels of a tile, in one register or two: whole ones, and what pictures are multiples of."""
WHOLE = (52, 55, 61)
"""Pixels of a tile of half a block's channels, in four registers: of pictures of 7 x 7 for windows
of 3 x 3, with what lies between rows; of the same where windows move by two pixels, half of these
or, if rows lie in phases, all. Those of 1 x 1 took 1.1 to 1.2 of the time so: data, which such
layers have more of, are read twice as often."""
SUMS = 4
"""Registers of sums, at most."""
STEPS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
"""Words of a window's row that are taken at a time; a row must be a multiple."""
LOOP = 6
"""Scalar instructions of the loop over steps: addresses, a comparison and a branch."""
LEAST = 9
"""Rows whose product takes as long as that of fewer, as timed on a Xeon: 9.3 cycles for
4 to 8 rows, 13.9 for 14, 16 for 16."""
STREAM, STREAM_ONCE = 8.0, 6.2
"""Cycles for 64 bytes of weights from beyond the second cache, if they are fetched while the block
before is multiplied, and if they are read once: 20 and 26 GB/s at 2.5 GHz, as timed on a Xeon."""
AWAKE = 'call float asm sideeffect "vaddss $1, $1, $0", "=x,x"(float 0.0)'
"""A sum of floats that nobody reads. On a Xeon, kernels that store tiles and leave the unit of
float products idle took 1.25 of the time where weights come from the second cache, in plain C as
well; one such instruction every 64 cycles, of any width, ends that."""
BYTES = Products(4)
"""Products of bytes; those of bfloat16 have tiles too."""


@dataclass(frozen=True)
class Shape:
    """How registers divide a kernel's tile."""

    count: int
    """Registers of pixels that are multiplied by the same weights."""
    rows: int
    """Pixels in each of them."""
    distance: int
    """Pixels from one to the next; less than `rows` where the number of all is no multiple."""
    columns: int
    """Registers of weights, of 16 channels each."""

    @property
    def sums(self) -> int:
        """Registers of sums."""
        return self.count * self.columns

    @property
    def data(self) -> int:
        """Registers that pixels are loaded to: what others leave, used again if there are fewer."""
        return min(self.count, tiles.REGISTERS - self.sums - self.columns)


def shape_of(signature: KernelSignature) -> Shape:
    """The registers of a kernel's tile."""
    count, columns = -(-signature.rows // tiles.ROWS), signature.channels // tiles.COLUMNS
    if count * columns > SUMS or columns < 1 or signature.step > tiles.COLUMNS:
        raise ValueError(f"no tiles for {signature.name}")
    if count == 1:
        return Shape(1, signature.rows, signature.rows, columns)
    for rows in range(-(-signature.rows // count), tiles.ROWS + 1):
        distance, rest = divmod(signature.rows - rows, count - 1)
        if not rest:
            return Shape(count, rows, distance, columns)
    raise ValueError(f"no tiles for {signature.name}")


def tiles_body(signature: KernelSignature) -> Body:
    """The body of a kernel of tiles: a step of `signature.step` words, for every pair of them."""
    shape = shape_of(signature)
    make = tiles.bfloat16_dot if signature.is_float else tiles.tile_dot
    dot = make(shape.rows, signature.step)
    counter, data, weights = dot.operands
    program = Program(part=0)
    places = [(m, n) for m in range(shape.count) for n in range(shape.columns)]
    sums = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in places}
    for m, n in sums:
        a, w = program.input(f"a0.{m}", data), program.input(f"w0.{n}", weights)
        sums[m, n] = program.apply(dot, sums[m, n], a, w)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in sums.items()}
    empty = Program(part=0)
    empty.outputs = {"s0": empty.input("c0", Vector(counter.lanes, 32))}
    passes = (Pass(1, program, 0, True),)
    return Body(passes, empty, pixels=shape.rows, distance=shape.distance)


def tile_signatures(isa: Isa, products: Products = BYTES) -> list[KernelSignature]:
    """Every kernel of tiles for products, where the instruction set has them."""
    blank = KernelSignature(isa.name, None, products, 1, BLOCK, "none", 0)
    shapes = [(rows, BLOCK) for rows in PIXELS] + [(rows, tiles.COLUMNS) for rows in WHOLE]
    return [
        replace(blank, products=replace(products, tile=step), rows=rows, channels=channels)
        for rows, channels in shapes
        for step in STEPS
        if isa.tiles
    ]


def tile_offer(signature: KernelSignature, costs: CoreCosts) -> Offer:
    """A kernel of tiles with its cost.

    A product keeps the multiplier busy for as many cycles as its data or its weights have rows, of
    which there are `ROWS` in a whole one, but for `LEAST` at least.
    """
    shape = shape_of(signature)
    loads = (shape.count * shape.rows + shape.columns * signature.step) / tiles.ROWS
    dot = tiles.BFLOAT16_DOT if signature.is_float else tiles.DOT
    part = max(shape.rows, signature.step, LEAST) / tiles.ROWS
    step = costs.block({dot: shape.sums * part, tiles.LOAD: loads}, LOOP)
    # Nothing can be stored before the last product is there.
    stores = costs.cycles({tiles.STORE: shape.sums * shape.rows / tiles.ROWS})
    empty = stores + costs.latency(dot)
    word = round(step / signature.step, 3)
    stream = STREAM_ONCE if signature.is_whole else STREAM
    return Offer(signature, word, round(empty, 3), stream=stream)


class TileKernel:
    """Emits a signature; the interface is that of `stages.synthesizing.microkernel`.

    A kernel is made of parts, so that something else may stand between products: `name_beginM()`
    clears the sums of the M-th register of pixels, `name_fromM(begin)` has them begin with integers
    [channels] instead, `name_endM(sums)` stores them, and
    `name_productN(data, weights, later, ky, step, kh, …)` is the N-th product of a step of row `ky`
    of the window. `name_awake()` stands in every step that nothing else does.
    """

    def __init__(self, signature: KernelSignature, body: Body) -> None:
        self.signature, self.program = signature, body.passes[0].word
        self.shape = shape_of(signature)
        self.declarations: dict[str, None] = {}
        # Sums first, then data, then weights: as `shaping_text` shapes registers.
        ordered = sorted(self.program.inputs)
        counters = [name for name in ordered if name[0] == "c"]
        sums, data = self.shape.sums, self.shape.data
        self.numbers = {name: str(number) for number, name in enumerate(counters)}
        for m in range(self.shape.count):
            self.numbers[f"a0.{m}"] = str(sums + m % data)
        for n in range(self.shape.columns):
            self.numbers[f"w0.{n}"] = str(sums + data + n)

    def text(self, parameters: tuple[str, ...]) -> tuple[str, list[str]]:
        """The functions and the declarations they need."""
        pointers = [p for p in parameters if p.startswith("ptr") and "%sums" not in p]
        numbers = [p for p in parameters if p.startswith("i64")]
        given = (*pointers, "i64 %ky", "i64 %step", *numbers)
        registers, begins = range(self.shape.count), self.signature.begins
        parts = (
            self._awake(),
            *(self._begin(m) for m in registers),
            *(self._from(m) for m in registers if begins),
            *self._products(given),
            *(self._end(m) for m in registers),
            self._whole(parameters, given, "begin", ""),
            *([self._whole((*parameters, BEGIN), given, "from", "ptr %begin")] if begins else []),
        )
        return "\n".join(parts), list(self.declarations)

    def _whole(
        self, parameters: tuple[str, ...], given: tuple[str, ...], first: str, begin: str
    ) -> str:
        """All parts, one after the other."""
        name, code = self.signature.name, FunctionText()
        arguments = ", ".join(f"{each.split()[0]} {each.split()[-1]}" for each in given)
        steps = code.let(f"udiv i64 %kw, {self.signature.step}")
        for m in range(self.shape.count):
            code.do(f"call void @{name}_{first}{m}({begin})")

        def one_row(ky: str, _: list[str]) -> list[str]:
            def one_step(step: str, _: list[str]) -> list[str]:
                here = arguments.replace("%ky", ky).replace("%step", step)
                code.do(f"call void @{name}_awake()")
                for number in range(len(self.program.steps)):
                    code.do(f"call void @{name}_product{number}({here})")
                return []

            return code.loop(steps, [], one_step, unroll=False)

        code.loop("%kh", [], one_row)
        for m in range(self.shape.count):
            code.do(f"call void @{name}_end{m}(ptr %sums)")
        return self._function(code, "_from" if begin else "", parameters)

    def _function(self, code: FunctionText, part: str, parameters: tuple[str, ...]) -> str:
        """The finished function of a part."""
        code.do("ret void")
        self.declarations.update(code.declarations)
        return code.function(self.signature.name + part, parameters)

    def _begin(self, m: int) -> str:
        code = FunctionText()
        for n in range(self.shape.columns):
            self._call(code, "tilezero", f"i8 {self.numbers[f'c{m}.{n}']}", "i8 immarg")
        return self._function(code, f"_begin{m}", ())

    def _from(self, m: int) -> str:
        code = FunctionText()
        for n in range(self.shape.columns):
            place = code.pointer("%begin", str(n * tiles.ROW_BYTES))
            self._move(code, tiles.LOAD, f"c{m}.{n}", place, "0")  # every row is the same
        return self._function(code, f"_from{m}", ("ptr %begin",))

    def _awake(self) -> str:
        code = FunctionText()
        code.do(AWAKE)
        return self._function(code, "_awake", ())

    def _end(self, m: int) -> str:
        code = FunctionText()
        stride = BLOCK * WORD_BYTES
        for n in range(self.shape.columns):
            offset = m * self.shape.distance * stride + n * tiles.ROW_BYTES
            place = code.pointer("%sums", str(offset))
            self._move(code, tiles.STORE, f"c{m}.{n}", place, str(stride))
        return self._function(code, f"_end{m}", ("ptr %sums",))

    def _products(self, given: tuple[str, ...]) -> list[str]:
        """The products of a step, each in a function of its own that loads what is new to it."""
        named = {register: name for name, register in self.program.inputs.items()}
        loaded: set[str] = set()
        functions = []
        for number, one in enumerate(self.program.steps):
            code = FunctionText()
            word = self._word(code)
            if not number:
                self._fetch(code, word)
            total, *factors = (named[register] for register in one.operands)
            for name in factors:
                if name not in loaded:
                    loaded.add(name)
                    self._load(code, name, word)
            code.do(one.instruction.text([self.numbers[name] for name in (total, *factors)]))
            assert one.instruction.declares is not None
            code.declarations[one.instruction.declares] = None
            named[one.result] = total  # which the instruction overwrites
            functions.append(self._function(code, f"_product{number}", given))
        return functions

    def _word(self, code: FunctionText) -> str:
        """The first word of the window that a step takes."""
        words = code.let("mul nuw nsw i64 %ky, %kw")
        first = code.let(f"mul nuw nsw i64 %step, {self.signature.step}")
        return code.let(f"add nuw nsw i64 {words}, {first}")

    def _fetch(self, code: FunctionText, word: str) -> None:
        """Bring the share of later weights that belongs to a step's words closer, line by line.

        Those of a kernel that has all pixels are its own, needed soon.
        """
        cache = NEAREST if self.signature.is_whole else SECOND
        start = code.pointer("%later", code.let(f"mul i64 {word}, %share"))
        size = code.let(f"mul i64 %share, {self.signature.step}")
        lines = code.let(f"udiv i64 {code.let(f'add i64 {size}, {LINE - 1}')}, {LINE}")

        def one_line(line: str, _: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i64 {line}, {LINE}")
            code.prefetch(code.pointer(start, offset), cache)
            return []

        code.loop(lines, [], one_line)

    def _load(self, code: FunctionText, name: str, word: str) -> None:
        place = int(name.split(".")[1])
        if name[0] == "w":
            stride = self.signature.channels * WORD_BYTES
            weights = code.pointer("%weights", code.let(f"mul nuw nsw i64 {word}, {stride}"))
            pointer = code.pointer(weights, str(place * tiles.ROW_BYTES))
            self._move(code, tiles.LOAD, name, pointer, str(stride))
            return
        row = row_start(code, "%ky")
        offset = code.let(f"mul nuw nsw i64 %step, {self.signature.step * WORD_BYTES}")
        data = code.pointer("%data", code.let(f"add nsw i64 {row}, {offset}"))
        distance = code.let(f"mul i64 %pixel, {place * self.shape.distance}")
        self._move(code, tiles.LOAD, name, code.pointer(data, distance), "%pixel")

    def _move(
        self, code: FunctionText, instruction: str, name: str, place: str, stride: str
    ) -> None:
        operands = f"i8 {self.numbers[name]}, ptr {place}, i64 {stride}"
        self._call(code, f"{instruction}64", operands, "i8 immarg, ptr, i64")

    @staticmethod
    def _call(code: FunctionText, intrinsic: str, operands: str, types: str) -> None:
        code.declarations[f"declare void @llvm.x86.{intrinsic}({types})"] = None
        code.do(f"call void @llvm.x86.{intrinsic}({operands})")


def shaping_text(signature: KernelSignature) -> tuple[str, list[str]]:
    """The functions TILES_BEGIN and TILES_END for a kernel, and the declarations they need.

    Each thread has registers, and shapes, of its own.
    """
    shape = shape_of(signature)
    shapes = [(shape.rows, tiles.ROW_BYTES)] * shape.sums
    shapes += [(shape.rows, signature.step * WORD_BYTES)] * shape.data
    shapes += [(signature.step, tiles.ROW_BYTES)] * shape.columns
    text = "\n".join(
        (
            tiles.configuration_text("bk_tiles", shapes),
            f"define internal void @{TILES_BEGIN}() alwaysinline nounwind {{",
            "  call void @llvm.x86.ldtilecfg(ptr @bk_tiles)",
            "  ret void",
            "}",
            f"define internal void @{TILES_END}() alwaysinline nounwind {{",
            "  call void @llvm.x86.tilerelease()",
            "  ret void",
            "}",
        )
    )
    return text, ["declare void @llvm.x86.ldtilecfg(ptr)", "declare void @llvm.x86.tilerelease()"]
