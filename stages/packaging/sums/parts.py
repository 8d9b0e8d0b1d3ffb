"""The parts that a kernel around sums is composed of, and what they ask of each other.

An `InputReader` says which micro-kernel takes the inputs, and where they lie; `Sums` has it compute
the sums of a tile; `Work` goes through the tiles of a task; a `Finisher` makes results of sums. A
part finds the others by its `kernel`. They are chosen in the order finisher, reads, sums, work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tvm.script.ir_builder import tirx as T

from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.nodes import Index, Scalar
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.sums.kernel_frame import KernelFrame
from stages.packaging.sums.task_grid import TaskGrid
from stages.packaging.sums.tile_function import MicroKernelCall

Pixel = Callable[[Index], tuple[Index, Index]]
"""Number of a pixel in a tile → its row, among those of all images, and its column."""


class Composition(KernelFrame):
    """A kernel's frame with the four parts that it is composed of."""

    finisher: Finisher
    reads: InputReader
    sums: Sums
    work: Work

    @property
    def widened_at(self) -> int:
        """Where in scratch inputs are widened: behind all else."""
        return self.sums.words + self.sums.unpacked_words

    @property
    def unpacked(self) -> Scalar:
        """A pointer to what the kernel makes of weights, behind the sums."""
        return T.address_of(self.scratch[self.sums.words])

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit a tile: what its sums need, the sums, and what follows."""
        self.reads.prepare(block, run, tile)
        self.sums.tile(block, run, tile)

    def each_pixel(self, finish: Callable[[Index], None]) -> None:
        """Emit what finishes each pixel of a tile."""
        with T.serial(0, self.sums.rows) as m:
            finish(m)

    def bias_pointer(self, channel: Index) -> tuple[Scalar, ...]:
        """A pointer to the bias from a channel on, if the micro-kernel preloads it."""
        if not self.reads.preloads_bias:
            return ()
        return (T.address_of(self.arguments[self.composite.main.args[2].name][channel]),)


class KernelPart:
    """A part of a kernel: reader, sums, work or finisher."""

    def __init__(self, kernel: Composition) -> None:
        self.kernel = kernel

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether this part serves the kernel, beside the parts that are chosen before it."""
        del kernel
        return True


class InputReader(KernelPart):
    """How sums get inputs: here the other parts read these, an element or a vector at a time."""

    rows, channels = 1, BLOCK
    """Neighbouring output pixels, and channels, of a call of the micro-kernel."""
    is_tiled = False
    """Whether the micro-kernel multiplies tiles, whose registers have a shape."""
    keeps_sums = False
    """Whether sums may stay in registers until they are results."""

    @property
    def preloads_bias(self) -> bool:
        """Whether the micro-kernel preloads the bias, so that the epilogue need not add it."""
        return False

    @property
    def widened_words(self) -> int:
        """Words of 32 bits of scratch for inputs, where they are widened before they are read."""
        return 0

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.kernel.blocks * BLOCK

    def include(self) -> None:
        """Include the text of what prepares inputs."""

    def micro_kernel(self, bodies: Table) -> MicroKernelCall:
        """How the micro-kernel is called."""
        raise NotImplementedError

    def declare(self) -> None:
        """Declare what the function of a tile takes beside tensors."""

    def passed(self) -> list[Scalar]:
        """Pointers that the function of a tile takes beside tensors."""
        return []

    def prepare(self, block: Index, run: Index, tile: Index) -> None:
        """Emit what must be done before the sums of a tile."""

    def operands(self, block: Index, part: Index, run: Index, tile: Index) -> tuple[Scalar, ...]:
        """A call's pointers but that to its sums, for a `part` of a block's channels; the first
        part also prefetches what the epilogue will read."""
        raise NotImplementedError

    def operands_of(
        self, block: Index, run: Index, tile: Index
    ) -> Callable[[Index], tuple[Scalar, ...]]:
        """The `operands` of each part of a block, where a loop that follows emits the parts."""
        return lambda part: self.operands(block, part, run, tile)


class Sums(KernelPart):
    """How the sums of a tile are computed, and where they stand."""

    uses_tiles = False
    """Whether they are computed in tiles, whose registers have a shape."""
    in_registers = False
    """Whether they stay in registers until they are results."""
    unpacked_words = 0
    """Words of 32 bits of scratch for what the kernel makes of weights stored in fewer bits."""

    @property
    def rows(self) -> int:
        """Neighbouring output pixels whose sums are computed together."""
        return self.kernel.reads.rows

    @property
    def strip(self) -> int:
        """Channels of a tile that are finished together."""
        return BLOCK

    @property
    def pixels_together(self) -> int:
        """Pixels that are finished together."""
        return self.rows

    @property
    def words(self) -> int:
        """Sums in scratch."""
        return self.rows * BLOCK

    def include(self, bodies: Table) -> None:
        """Include the text of what computes the sums."""

    def prepare(self) -> None:
        """Make what the kernel calls, once its finisher is known as a whole."""

    def emit_task(self, work: Callable[[], None]) -> None:
        """Emit all work of a task."""
        work()

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit a tile: its sums, then what follows."""
        self.start(block, run, tile)
        self.kernel.finisher.emit_epilogues(lambda: self._finish(block, run, tile))

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit what puts the sums of a tile, `rows` pixels of a block, into scratch."""
        raise NotImplementedError

    def _finish(self, block: Index, run: Index, tile: Index) -> None:
        self.kernel.each_pixel(self.kernel.work.pixels(block, run, tile, 0))


@dataclass(frozen=True)
class Window:
    """The windows of a tile: its first one's position, counted in the padded images."""

    first: Index
    before: Index
    """Tiles of the block that came before, each of which fetched as much of the next weights."""
    pixel: Pixel
    image: Index = 0
    """The image of a batch that the windows are in."""
    pixel_stride: Scalar | None = None
    """Bytes from a pixel to the next, if they are not always the same."""


class Work(KernelPart):
    """The tiles of a task: runs of them for each block of channels, one after the other."""

    item: Index | None = None
    """Work items of the task that are done, where the inner loop goes through blocks."""

    @property
    def distance(self) -> int | None:
        """Pixels of a row from one of a tile to the next; None where each tile says so."""
        raise NotImplementedError

    @property
    def runs(self) -> int:
        """Work items of a block."""
        raise NotImplementedError

    @property
    def runs_per_row_block(self) -> int:
        """Work items of a block in a row block, all if the schedule has none."""
        raise NotImplementedError

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        raise NotImplementedError

    @property
    def tiles_per_block(self) -> int:
        """Tiles of a block of channels."""
        return self.runs * self.tiles

    @property
    def tiles_per_row_block(self) -> int:
        """Tiles of a row block, before the next block's weights are read."""
        return self.runs_per_row_block * self.tiles

    @property
    def blocks_are_inner(self) -> bool:
        """Whether the inner loop goes through blocks, so that it is rows that stay in the cache."""
        raise NotImplementedError

    @cached_property
    def grid(self) -> TaskGrid:
        """All work items."""
        raise NotImplementedError

    def emit(self) -> None:
        """Emit a task's part of the work."""
        raise NotImplementedError

    def column_of(self, tile: Index) -> Index:
        """First pixel of a tile of a row."""
        raise NotImplementedError

    def pixels(
        self, block: Index, run: Index, tile: Index, place: Index
    ) -> Callable[[Index], None]:
        """What finishes the m-th pixel of a tile whose sums are at `place`."""
        raise NotImplementedError

    def window(self, run: Index, tile: Index) -> Window:
        """The windows of a tile of a convolution."""
        raise NotImplementedError


class Finisher(KernelPart):
    """What follows the sums, pixel by pixel."""

    least_strip = BLOCK
    """Channels that it can finish alone."""
    pixel_number: Index = 0
    """Number of the current pixel, among those that are finished together."""

    @property
    def sums_dtype(self) -> str:
        """Type of the sums in scratch."""
        return "int32"

    @property
    def outputs(self) -> int:
        """Channels that are finished; here with those that fill up the last block."""
        return self.kernel.blocks * BLOCK

    def include(self) -> None:
        """Include the text that the finisher calls."""

    def best_form(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel that `make` emits, in the form that suits the epilogue."""
        return make()

    def prefetch(self, block: Index, pixel: Pixel) -> None:
        """Prefetch what the finisher will read of a tile."""

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output; no other task touches that."""
        raise NotImplementedError

    def emit_epilogues(self, pixels: Callable[[], None]) -> None:
        """Emit the epilogues of a tile, which `pixels` emits."""
        pixels()

    def finish_pixel(self, strip: Index, y: Index, x: Index, sums: Index) -> None:
        """Finish the channels of a strip at a pixel; `sums` is where theirs are."""
        raise NotImplementedError
