"""What kernels of packed composites are put together from, and what the parts ask of each other.

`Reads` says which micro-kernel takes the inputs, and where they lie. `Sums` has it compute the sums
of a tile, and says where they stand until they are results. `Work` goes through the tiles of a
task. A `Finisher` makes results of sums. `stages.packaging.lowering` has the table of which are
taken together; a part finds the others by way of its `Lowering`, in which they are chosen in the
order finisher, reads, sums, work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.packaging.direct import Called
from stages.packaging.kernel import Kernel

if TYPE_CHECKING:
    from stages.packaging.lowering import Lowering
    from stages.packaging.tiling import Rows

Pixel = Callable[[Any], tuple[Any, Any]]
"""Number of a pixel in a tile → its row, among those of all pictures, and its column."""


class Part:
    """A part of a lowering."""

    def __init__(self, of: Lowering) -> None:
        self.of = of

    @classmethod
    def fits(cls, of: Lowering) -> bool:
        """Whether it serves, beside the parts that are chosen before it."""
        del of
        return True


class Reads(Part):
    """Inputs that the other parts read on their own, an element or a vector at a time."""

    rows, channels = 1, BLOCK
    """Neighbouring output pixels, and channels, of a call of the micro-kernel."""
    is_tiled = False
    """Whether the micro-kernel multiplies tiles, whose registers have a shape."""
    keeps_sums = False
    """Whether sums may stay in registers until they are results."""

    @property
    def begins(self) -> bool:
        """Whether the bias is in the sums already, so that nobody has to add it."""
        return False

    @property
    def wide_words(self) -> int:
        """Of 32 bits, in scratch: what is read, where it is widened first."""
        return 0

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.of.blocks * BLOCK

    def include(self) -> None:
        """Include the text of what prepares inputs."""

    def called(self, bodies: Table) -> Called:
        """The micro-kernel, as it is called."""
        raise NotImplementedError

    def declare(self) -> None:
        """Declare what the function of a tile takes beside tensors."""

    def passed(self) -> list[Any]:
        """Pointers to that."""
        return []

    def prepare(self, block: Any, run: Any, tile: Any) -> None:
        """Emit what must be done before the sums of a tile."""

    def operands(self, block: Any, part: Any, run: Any, tile: Any) -> tuple[Any, ...]:
        """A call's pointers without that to its sums, for a `part` of a block's channels.

        With the first part of it, what the epilogue will read is fetched.
        """
        raise NotImplementedError

    def operands_of(self, block: Any, run: Any, tile: Any) -> Callable[[Any], tuple[Any, ...]]:
        """The same for each part of a block, which are emitted in a loop that follows."""
        return lambda part: self.operands(block, part, run, tile)


class Sums(Part):
    """No sums: the finisher begins with what is stored."""

    uses_tiles = False
    """Whether they are computed in tiles, whose registers have a shape."""
    is_direct = False
    """Whether they stay in registers until they are results."""
    made_words = 0
    """Of 32 bits, in scratch: what the kernel makes of weights that are stored in fewer bits."""

    @property
    def rows(self) -> int:
        """Neighbouring output pixels whose sums are computed together."""
        return self.of.reads.rows

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

    def around(self, work: Callable[[], None]) -> None:
        """Emit all work of a task."""
        work()

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """Emit a tile: its sums, then what follows."""
        self.start(block, run, tile)
        self.of.finisher.together(lambda: self._finish(block, run, tile))

    def start(self, block: Any, run: Any, tile: Any) -> None:
        """Emit what puts the sums of a tile, `rows` pixels of a block, into scratch."""

    def _finish(self, block: Any, run: Any, tile: Any) -> None:
        self.of.each_pixel(self.of.work.pixels(block, run, tile, 0))


class Finisher(Part):
    """What follows the sums, pixel by pixel."""

    least_strip = BLOCK
    """Channels that it can finish alone."""
    number: Any = 0
    """Of the current pixel, among those that are finished together."""

    @property
    def sums_dtype(self) -> str:
        """Type of the sums in scratch."""
        return "int32"

    @property
    def outputs(self) -> int:
        """Channels of the result, or with those that fill up the last block."""
        return self.of.blocks * BLOCK

    def include(self) -> None:
        """Include the text that it calls."""

    def made(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel, in the form that suits."""
        return make()

    def fetch(self, block: Any, pixel: Pixel) -> None:
        """Bring closer what it will read of a tile."""

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output; no other task touches that."""
        raise NotImplementedError

    def together(self, pixels: Callable[[], None]) -> None:
        """What `pixels` emits, the epilogues of a tile."""
        pixels()

    def pixel(self, strip: Any, y: Any, x: Any, sums: Any) -> None:
        """Finish the channels of a strip at a pixel; `sums` is where theirs are."""
        raise NotImplementedError


@dataclass(frozen=True)
class Parts:
    """What a kernel is put together from; of several the first that fits."""

    reads: Sequence[type[Reads]]
    sums: Sequence[type[Sums]]
    work: Sequence[type[Rows]]
    finisher: type[Finisher]
