"""Kernels of matrix tiles (AMX): rows of pixels times weights.

A register of data holds a row of bytes for each of up to 16 pixels, read where the image lies: no
copy is made of it (im2col), as the bytes of a window row follow one another. Weights are those of
the dot products: 16 channels' words of four bytes, or of two bfloat16, one behind the other, are a
row. Two registers of each make four of sums, up to 32 pixels by 32 channels, so that every one that
is loaded is used twice. A small image is multiplied as a whole by 16 channels at a time: such a
layer waits for its weights, and these are read a single time, as they lie. Registers are shaped
once for all calls, by `shaping_text`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hw.core_costs import CoreCosts
from hw.isa import Isa, Vector, tile_registers
from stages.kernels.families import TileDots, TileElement
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import WORD_BYTES, WeightCode
from stages.kernels.signature import BLOCK, TILES_BEGIN, TILES_END, KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.vector_program import Program
from stages.synthesizing.weight_expansion import can_expand, row_for

PIXELS = (7, 8, 14, 16, 28, 32)
"""Pixels of a tile, in one register or two: whole ones, and what images are multiples of."""
WHOLE = (52, 55, 61)
"""Pixels of a tile of half a block's channels, in four registers: of images of 7 x 7 for windows
of 3 x 3, with what lies between rows; of the same where windows move by two pixels, half of these
or, in polyphase layout, all. Those of 1 x 1 took 1.1 to 1.2 of the time so: data, which such
layers have more of, are read twice as often."""
SUMS = 4
"""Registers of sums, at most."""
STEPS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
"""Words of a window's row that are taken at a time; a row must be a multiple."""
GROUPS: dict[TileElement, int] = {"int8": 4, "bfloat16": 2}
"""Channels that are multiplied into one lane."""
LOOP = 6
"""Scalar instructions of the loop over steps: addresses, a comparison and a branch."""
LEAST = 9
"""Rows whose product takes as long as that of fewer, as timed on a Xeon: 9.3 cycles for
4 to 8 rows, 13.9 for 14, 16 for 16."""
STREAM, STREAM_ONCE = 8.0, 6.2
"""Cycles for 64 bytes of weights from beyond the L2 cache, if they are fetched while the block
before is multiplied, and if they are read once: 20 and 26 GB/s at 2.5 GHz, as timed on a Xeon."""


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
        return min(self.count, tile_registers.REGISTERS - self.sums - self.columns)


def shape_of(signature: KernelSignature) -> Shape:
    """The registers of a kernel's tile."""
    count, columns = (
        -(-signature.rows // tile_registers.ROWS),
        signature.channels // tile_registers.COLUMNS,
    )
    if count * columns > SUMS or columns < 1 or signature.step > tile_registers.COLUMNS:
        raise ValueError(f"no tiles for {signature.name}")
    if count == 1:
        return Shape(1, signature.rows, signature.rows, columns)
    for rows in range(-(-signature.rows // count), tile_registers.ROWS + 1):
        distance, rest = divmod(signature.rows - rows, count - 1)
        if not rest:
            return Shape(count, rows, distance, columns)
    raise ValueError(f"no tiles for {signature.name}")


def tiles_body(signature: KernelSignature) -> Body:
    """The body of a kernel of tiles: a step of `signature.step` words, for every pair of them."""
    shape = shape_of(signature)
    make = tile_registers.bfloat16_dot if signature.is_float else tile_registers.tile_dot
    dot = make(shape.rows, signature.step)
    counter, data, weights = dot.operands
    program = Program(part=0)
    places = [(m, n) for m in range(shape.count) for n in range(shape.columns)]
    sums = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in places}
    for m, n in sums:
        a, w = program.input(f"a0.{m}", data), program.input(f"w0.{n}", weights)
        sums[m, n] = program.apply(dot, sums[m, n], a, w)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in sums.items()}
    flush = Program(part=0)
    flush.outputs = {"s0": flush.input("c0", Vector(counter.lanes, 32))}
    passes = (Pass(1, program, 0, True),)
    return Body(passes, flush, pixels=shape.rows, distance=shape.distance)


def tile_signatures(
    isa: Isa, of: TileElement = "int8", code: WeightCode | None = None
) -> list[KernelSignature]:
    """Every kernel of tiles for products, where the instruction set has them.

    Those that read weights once have another that makes bytes of them, if a `code` stores them all.
    """
    once = [None, code] if code is not None and can_expand(code, isa) else [None]
    shapes: list[tuple[int, int, WeightCode | None]] = [(rows, BLOCK, None) for rows in PIXELS]
    shapes += [(rows, tile_registers.COLUMNS, one) for rows in WHOLE for one in once]
    group = GROUPS[of]
    return [
        KernelSignature(isa.name, None, TileDots(group, step, of, one), rows, channels, "none", 0)
        for rows, channels, one in shapes
        for step in STEPS
        if isa.tiles
    ]


def tile_candidate(signature: KernelSignature, isa: Isa, costs: CoreCosts) -> KernelCandidate:
    """A kernel of tiles with its cost.

    A product keeps the multiplier busy for as many cycles as its data or its weights have rows, of
    which there are `ROWS` in a whole one, but for `LEAST` at least. Bytes of weights are made
    meanwhile.
    """
    shape = shape_of(signature)
    loads = (shape.count * shape.rows + shape.columns * signature.step) / tile_registers.ROWS
    made = {}
    if (code := signature.code) is not None:
        made = dict.fromkeys((row_for(code, isa).name, "broadcast_64"), signature.step)
    dot = tile_registers.BFLOAT16_DOT if signature.is_float else tile_registers.DOT
    part = max(shape.rows, signature.step, LEAST) / tile_registers.ROWS
    counts = {dot: shape.sums * part, tile_registers.LOAD: loads, **made}
    step = costs.block(counts, LOOP + (signature.step if made else 0))  # each is stored
    # Nothing can be stored before the last product is there.
    stores = costs.cycles({tile_registers.STORE: shape.sums * shape.rows / tile_registers.ROWS})
    flush = stores + costs.latency(dot)
    word = round(step / signature.step, 3)
    stream = STREAM_ONCE if signature.covers_layer else STREAM
    return KernelCandidate(signature, word, round(flush, 3), weight_stream_cycles=stream)


def shaping_text(signature: KernelSignature) -> tuple[str, list[str]]:
    """The functions TILES_BEGIN and TILES_END for a kernel, and the declarations they need.

    Each thread has registers, and shapes, of its own.
    """
    shape = shape_of(signature)
    shapes = [(shape.rows, tile_registers.ROW_BYTES)] * shape.sums
    shapes += [(shape.rows, signature.step * WORD_BYTES)] * shape.data
    shapes += [(signature.step, tile_registers.ROW_BYTES)] * shape.columns
    text = "\n".join(
        (
            tile_registers.configuration_text("bk_tiles", shapes),
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
