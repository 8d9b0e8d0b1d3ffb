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
        self.inner = helped(self.kernel, self.kernel.reads.micro_kernel(bodies))

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit the calls of the micro-kernel for a tile."""
        kernel, channels = self.kernel, self.kernel.reads.channels
        operands = kernel.reads.operands_of(block, run, tile)
        with T.serial(0, BLOCK // channels) as part:
            sums = T.address_of(kernel.scratch[part * channels])
            reads = operands(part)
            begin = kernel.bias_pointer(block * BLOCK + part * channels)
            T.evaluate(
                T.call_extern("void", self.inner, *reads[:SUMS_AT], sums, *reads[SUMS_AT:], *begin)
            )


class InMatrixTiles(InScratch):
    """Sums by matrix tiles, whose registers are shaped for all work of a task."""

    uses_tiles = True

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        signature = kernel.composite.signature
        self.unpacked_words = RING_BYTES // WORD_BYTES if signature.expands_weights else 0

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether the micro-kernel multiplies tiles."""
        return kernel.reads.is_tiled

    def include(self, bodies: Table) -> None:
        """Include the text that shapes registers, beside that of the sums."""
        self.kernel.include(*bodies[self.kernel.composite.signature.name]["shaping"])
        super().include(bodies)

    def emit_task(self, work: Callable[[], None]) -> None:
        """Emit all work of a task, its thread's registers shaped for it."""
        T.evaluate(T.call_extern("void", TILES_BEGIN))
        work()
        T.evaluate(T.call_extern("void", TILES_END))


class InTileFunction(Sums):
    """Sums in registers until they are results, by a function that computes a tile."""

    in_registers = True

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether the micro-kernel keeps sums in registers, of as many channels as can be finished
        alone."""
        is_whole = kernel.reads.channels >= kernel.finisher.least_strip
        return kernel.reads.keeps_sums and is_whole

    @property
    def strip(self) -> int:
        """Channels that one call of the micro-kernel sums up."""
        return self.kernel.reads.channels

    @property
    def words(self) -> int:
        """Sums in scratch: none."""
        return 0

    def include(self, bodies: Table) -> None:
        """Keep the micro-kernel, whose text becomes a part of the function of a tile."""
        self.micro_kernel = self.kernel.reads.micro_kernel(bodies)

    def prepare(self) -> None:
        """Make the function of a tile, as a helper of the kernel."""
        kernel, symbol = self.kernel, f"tile_{self.kernel.symbol}"
        size = self.rows, self.strip
        function = tile_function(
            symbol, self.micro_kernel, kernel.texts, size, self._declare, self._body
        )
        kernel.helpers = [Helper(symbol, function, {"tile": kernel.symbol})]

    def _declare(self) -> None:
        self.kernel.declare_tensors()
        self.kernel.reads.declare()

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Call the function that computes a tile."""
        kernel = self.kernel
        tensors = [
            T.address_of(tensor[0]) for tensor in (*kernel.arguments.values(), *kernel.results)
        ]
        pointers = *tensors, *kernel.reads.passed()
        T.evaluate(T.call_extern("void", f"tile_{kernel.symbol}", *pointers, block, run, tile))

    def _body(self, block: Index, run: Index, tile: Index) -> None:
        """A tile, strip by strip; its sums are on the stack until LLVM takes them to registers."""
        dtype = self.kernel.finisher.sums_dtype
        with on_stack():
            sums = [T.alloc_buffer((BLOCK,), dtype) for _ in range(self.rows)]
            parts = BLOCK // self.strip
            with T.serial(0, parts) as part:
                strip = T.bind(block * parts + part)
                with T.If(strip * self.strip < self.kernel.finisher.outputs), T.Then():
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
        operands = self.kernel.reads.operands(block, part, run, tile)
        begin = self.kernel.bias_pointer(strip * self.strip)
        places = [T.address_of(pixel[0]) for pixel in sums]
        T.evaluate(T.call_extern("void", CALL_MICRO_KERNEL, *operands, *begin, *places))
        self.kernel.finisher.emit_epilogues(lambda: self._finish_strip(strip, run, tile, sums))

    def _finish_strip(self, strip: Index, run: Index, tile: Index, sums: Sequence[Buffer]) -> None:
        """What follows the sums of a tile's channels in a strip, pixel by pixel."""
        for m, pixel in enumerate(sums):
            T.evaluate(T.call_extern("void", PAUSE))
            with self.kernel.sums_in(pixel):  # its own, so that its sums are at 0
                self.kernel.work.pixels(strip, run, tile, -m * BLOCK)(m)


class InRegisters(InTileFunction):
    """Sums in registers until they are results, within the loop over tiles: so few of them that
    what LLVM takes out of such a loop has registers, too."""

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether sums take half of the registers at most."""
        few = (
            2 * kernel.reads.rows * kernel.reads.channels <= kernel.isa.registers * kernel.isa.lanes
        )
        return super().fits(kernel) and few

    def prepare(self) -> None:
        """Include the text of the micro-kernel."""
        text, declarations = micro_kernel_text(self.micro_kernel, self.rows, self.strip)
        self.kernel.include(f"{text}\n{pause()}", declarations)

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit a tile within the loop, without a call."""
        self._body(block, run, tile)


class NoSums(Sums):
    """No sums: the finisher begins with what is stored."""

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit nothing."""


class GatheredFloats(Sums):
    """No sums, but channels of a float tensor, as they lie there: NCHW, NHWC or flat."""

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit what copies the floats of a block's pixels into scratch."""
        kernel = self.kernel
        pixels = kernel.height * kernel.width
        channels = prod(shape_of(kernel.composite.parameters[0].ty)) // pixels
        first = run * kernel.width + kernel.work.column_of(tile)
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
        kernel = self.kernel
        data, lanes = kernel.arguments[kernel.composite.parameters[0].name], BLOCK // kernel.pixels
        is_transposed = kernel.composite.transpose_of_input is not None
        with T.serial(0, kernel.pixels) as neighbour, T.serial(0, count) as lane:
            channel, place = block * BLOCK + lane, pixel + neighbour
            straight = place * channels + channel
            transposed = channel * kernel.height * kernel.width + place
            value = data[transposed if is_transposed else straight]
            T.buffer_store(kernel.scratch, value, [neighbour * lanes + lane])


def helped(kernel: Composition, called: MicroKernelCall) -> str:
    """The name of a function, made beside the kernel, that calls a micro-kernel with constants
    behind its pointers."""
    problem = {"name": called.name, "text": called.text, "strides": list(called.constants)}
    inner = f"sums_{digest_of(problem)}"
    numbers = [number for number in called.constants if number is not None]
    taken = called.text, called.pointers, numbers, int(called.preloads_bias)
    kernel.helpers.append(Helper(inner, caller(inner, called.name, *taken), problem))
    return inner
