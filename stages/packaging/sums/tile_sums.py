"""Where sums of a micro-kernel stand until they are results: in scratch, or in registers.

A call computes those of a tile of pixels and channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm.script.ir_builder import tirx as T

from stages.codegen import caller
from stages.dialect.calls import shape_of
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.signature import BLOCK, RING_BYTES, TILES_BEGIN, TILES_END
from stages.kinds import Table
from stages.nodes import Buffer, Index
from stages.packaging.emitting.kernel import Helper, digest_of
from stages.packaging.emitting.vector_loops import on_stack
from stages.packaging.sums.parts import Composition, Sums
from stages.packaging.sums.tile_function import NAME as CALL_MICRO_KERNEL
from stages.packaging.sums.tile_function import (
    PAUSE,
    SUMS_AT,
    MicroKernelCall,
    micro_kernel_text,
    pause,
    tile_function,
)


class InScratch(Sums):
    """Sums in scratch, int32 or float32 [rows][32].

    The micro-kernel stays out of the loops over tiles: among constants that LLVM takes out of such
    a loop it would spill its counters.
    """

    inner: str
    """The function that calls the micro-kernel, with constants behind its pointers."""

    def include(self, bodies: Table) -> None:
        """Have a function beside the kernel compute sums."""
        self.inner = helped(self.of, self.of.reads.micro_kernel(bodies))

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit the calls of the micro-kernel for a tile."""
        of, channels = self.of, self.of.reads.channels
        operands = of.reads.operands_of(block, run, tile)
        with T.serial(0, BLOCK // channels) as part:
            sums = T.address_of(of.scratch[part * channels])
            reads = operands(part)
            begin = of.bias_pointer(block * BLOCK + part * channels)
            T.evaluate(
                T.call_extern("void", self.inner, *reads[:SUMS_AT], sums, *reads[SUMS_AT:], *begin)
            )


class InMatrixTiles(InScratch):
    """Sums by matrix tiles, whose registers are shaped for all work of a task."""

    uses_tiles = True

    def __init__(self, of: Composition) -> None:
        super().__init__(of)
        signature = of.composite.signature
        self.unpacked_words = RING_BYTES // WORD_BYTES if signature.expands_weights else 0

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether the micro-kernel multiplies tiles."""
        return of.reads.is_tiled

    def include(self, bodies: Table) -> None:
        """Include the text that shapes registers, beside that of the sums."""
        self.of.include(*bodies[self.of.composite.signature.name]["shaping"])
        super().include(bodies)

    def around(self, work: Callable[[], None]) -> None:
        """Emit all work of a task, its thread's registers shaped for it."""
        T.evaluate(T.call_extern("void", TILES_BEGIN))
        work()
        T.evaluate(T.call_extern("void", TILES_END))


class InTileFunction(Sums):
    """Sums in registers until they are results, by a function that computes a tile."""

    in_registers = True

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether the micro-kernel keeps sums in registers, of as many channels as can be finished
        alone."""
        is_whole = of.reads.channels >= of.finisher.least_strip
        return of.reads.keeps_sums and is_whole

    @property
    def strip(self) -> int:
        """Channels that one call of the micro-kernel sums up."""
        return self.of.reads.channels

    @property
    def words(self) -> int:
        """Sums in scratch: none."""
        return 0

    def include(self, bodies: Table) -> None:
        """Keep the micro-kernel, whose text becomes a part of the function of a tile."""
        self.micro_kernel = self.of.reads.micro_kernel(bodies)

    def prepare(self) -> None:
        """Make the function of a tile, as a helper of the kernel."""
        of, symbol = self.of, f"tile_{self.of.symbol}"
        size = self.rows, self.strip
        function = tile_function(
            symbol, self.micro_kernel, of.texts, size, self._declare, self._body
        )
        of.helpers = [Helper(symbol, function, {"tile": of.symbol})]

    def _declare(self) -> None:
        self.of.declare_tensors()
        self.of.reads.declare()

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Call the function that computes a tile."""
        of = self.of
        tensors = [T.address_of(tensor[0]) for tensor in (*of.arguments.values(), *of.results)]
        pointers = *tensors, *of.reads.passed()
        T.evaluate(T.call_extern("void", f"tile_{of.symbol}", *pointers, block, run, tile))

    def _body(self, block: Index, run: Index, tile: Index) -> None:
        """A tile, strip by strip; its sums are on the stack until LLVM takes them to registers."""
        dtype = self.of.finisher.sums_dtype
        with on_stack():
            sums = [T.alloc_buffer((BLOCK,), dtype) for _ in range(self.rows)]
            parts = BLOCK // self.strip
            with T.serial(0, parts) as part:
                strip = T.bind(block * parts + part)
                with T.If(strip * self.strip < self.of.finisher.outputs), T.Then():
                    self._strip(block, part, strip, run, tile, sums)

    def _strip(
        self,
        block: Index,
        part: Index,
        strip: Index,
        run: Index,
        tile: Index,
        sums: Sequence[Buffer],
    ) -> None:
        """The sums of a tile's channels in a strip, and what follows."""
        operands = self.of.reads.operands(block, part, run, tile)
        begin = self.of.bias_pointer(strip * self.strip)
        places = [T.address_of(pixel[0]) for pixel in sums]
        T.evaluate(T.call_extern("void", CALL_MICRO_KERNEL, *operands, *begin, *places))
        self.of.finisher.together(lambda: self._finish_strip(strip, run, tile, sums))

    def _finish_strip(self, strip: Index, run: Index, tile: Index, sums: Sequence[Buffer]) -> None:
        """What follows the sums of a tile's channels in a strip, pixel by pixel."""
        for m, pixel in enumerate(sums):
            T.evaluate(T.call_extern("void", PAUSE))
            with self.of.sums_in(pixel):  # its own, so that its sums are at 0
                self.of.work.pixels(strip, run, tile, -m * BLOCK)(m)


class InRegisters(InTileFunction):
    """Sums in registers until they are results, within the loop over tiles: so few of them that
    what LLVM takes out of such a loop has registers, too."""

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether sums take half of the registers at most."""
        few = 2 * of.reads.rows * of.reads.channels <= of.isa.registers * of.isa.lanes
        return super().fits(of) and few

    def prepare(self) -> None:
        """Include the text of the micro-kernel."""
        text, declarations = micro_kernel_text(self.micro_kernel, self.rows, self.strip)
        self.of.include(f"{text}\n{pause()}", declarations)

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit a tile within the loop, without a call."""
        self._body(block, run, tile)


class GatheredFloats(Sums):
    """No sums, but channels of a float tensor, as they lie there: NCHW, NHWC or flat."""

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit what copies the floats of a block's pixels into scratch."""
        of = self.of
        pixels = of.height * of.width
        channels = prod(shape_of(of.composite.parameters[0].ty)) // pixels
        first = run * of.width + of.work.column_of(tile)
        full, rest = divmod(channels, BLOCK)
        if not rest or not full:
            self._copy(block, first, rest or BLOCK, channels)
        else:
            with T.If(block < full):
                with T.Then():
                    self._copy(block, first, BLOCK, channels)
                with T.Else():
                    self._copy(block, first, rest, channels)

    def _copy(self, block: Index, pixel: Index, count: int, channels: int) -> None:
        """So many channels of neighbouring pixels."""
        of = self.of
        data, lanes = of.arguments[of.composite.parameters[0].name], BLOCK // of.pixels
        is_transposed = of.composite.transpose_of_input is not None
        with T.serial(0, of.pixels) as neighbour, T.serial(0, count) as lane:
            channel, place = block * BLOCK + lane, pixel + neighbour
            straight = place * channels + channel
            transposed = channel * of.height * of.width + place
            value = data[transposed if is_transposed else straight]
            T.buffer_store(of.scratch, value, [neighbour * lanes + lane])


def helped(of: Composition, called: MicroKernelCall) -> str:
    """The name of a function, made beside the kernel, that calls a micro-kernel with constants
    behind its pointers."""
    problem = {"name": called.name, "text": called.text, "strides": list(called.constants)}
    inner = f"sums_{digest_of(problem)}"
    numbers = [number for number in called.constants if number is not None]
    taken = called.text, called.pointers, numbers, int(called.preloads_bias)
    of.helpers.append(Helper(inner, caller(inner, called.name, *taken), problem))
    return inner
