"""How an epilogue goes through channels: vectors of them, as many as there are."""

from __future__ import annotations

from collections.abc import Callable

from tvm.script.ir_builder import tirx as T

from stages.kernels.signature import BLOCK
from stages.nodes import Index
from stages.packaging.emitting.addressing import FEW_REGISTERS, MIN_LANES
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, with_vectors
from stages.packaging.epilogues.outputs import Position
from stages.packaging.sums.parts import Finisher


class VectorFinisher(Finisher):
    """A finisher that computes a vector of channels at a time."""

    loop: Loop = staticmethod(T.vectorized)
    """How the channels of a vector are gone through."""

    def best_form(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel, its epilogue as vectors if there is a way."""

        def by(loop: Loop) -> Kernel:
            self.loop = loop
            return make()

        return with_vectors(by, self.kernel.hardware)

    @property
    def lanes(self) -> int:
        """Channels at a time, at most: the steps of one value wait for each other, so that with
        registers to spare two take turns.

        Levels are soon as short as bytes, which fill a register of 128 bits.
        """
        least = BLOCK // 2 if self.kernel.composite.is_of_levels else MIN_LANES
        together = 2 if self.kernel.isa.registers > FEW_REGISTERS else 1
        return max(least, self.kernel.isa.lanes * together)

    @property
    def parts(self) -> Loop:
        """How vectors of a strip, or channels that are too few for one, are gone through."""
        return T.unroll if self.kernel.sums.in_registers else T.serial

    def position(
        self, strip: Index, y: Index, x: Index, channel: Index, size: int | None = None
    ) -> Position:
        """A channel of a strip, which has `size` of them, or as many as are finished together."""
        first = strip * (self.kernel.sums.strip if size is None else size)
        extent = self.kernel.height, self.kernel.width
        return Position(*self.kernel.image_row(y), x, first + channel, extent)
