"""Where the results of a composite lie: buffers, channels as they are stored, and positions."""

from __future__ import annotations

from functools import cached_property
from math import prod

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.kernels import operator_names
from stages.kernels.signature import BLOCK
from stages.nodes import Buffer, Index, Var
from stages.packaging.epilogues.outputs import Position, halo_around, is_moved_only, is_packed
from stages.packaging.sums.kernel_frame import KernelFrame


class ResultPlaces:
    """Where the outputs of the composite lie that a kernel ends with."""

    def __init__(self, kernel: KernelFrame) -> None:
        self.kernel, self.composite = kernel, kernel.composite

    @cached_property
    def channels(self) -> int:
        """Channels that are computed."""
        return max(map(self._computed, self.composite.outputs))

    def _computed(self, output: Var) -> int:
        """Channels of an output, without zeros behind them."""
        variable, channels = self.composite.results[output], self.stored(output)
        calls = self.composite.calls
        while (call := calls.get(variable)) is not None and is_moved_only(call):
            variable = call.args[0]
            if str(call.op.name) not in names.REARRANGEMENTS:
                channels = min(channels, shape_of(variable.ty)[-1])
        return channels

    def stored(self, output: Var) -> int:
        """Channels of an output as it is stored."""
        kernel, call = self.kernel, self.composite.store_of(output)
        if is_op(call, operator_names.QNN_TO_BYTES):
            return int(attributes(call)["channels"])
        if is_packed(call):
            return kernel.blocks * BLOCK
        if halo_around(call) is not None:
            return shape_of(output.ty)[-1]
        return prod(shape_of(output.ty)) // (self.composite.images * kernel.height * kernel.width)

    def place(self, output: Var, at: Position) -> Index:
        """Where an output has what is at a position."""
        call, channels = self.composite.store_of(output), self.stored(output)
        if (around := halo_around(call)) is not None:
            return at.place(channels, around.sides, around.phases)
        if self.composite.transpose_before(self.composite.results[output]) is not None:
            return at.nchw_place(channels)
        return at.place(channels)

    def buffer_of(self, output: Var) -> Buffer:
        """The buffer that an output is written to."""
        return self.kernel.results[self.composite.outputs.index(output)]
