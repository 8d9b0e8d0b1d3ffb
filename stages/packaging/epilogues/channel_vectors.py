"""Results of sums, by TIR: a vector of channels at a time, pixel by pixel.

What it computes is read from the same arithmetic as everywhere (`epilogues/elements.py`). Results
are NHWC, with the halo that their readers want, or packed a block of channels at a time
(`epilogues/results.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.padding import NO_SIDES
from stages.kernels import operator_names
from stages.kernels.llvm import L1_CACHE, FunctionText
from stages.kernels.signature import BLOCK
from stages.nodes import Index, Scalar
from stages.packaging.emitting.addressing import MIN_LANES, call_on, widths
from stages.packaging.emitting.vector_loops import on_stack
from stages.packaging.epilogues.elements import Elements
from stages.packaging.epilogues.outputs import Position, fill_halos, halo_of
from stages.packaging.epilogues.precomputed import has_saturated_words, precompute
from stages.packaging.epilogues.results import Results
from stages.packaging.epilogues.saturation import words_text
from stages.packaging.epilogues.vector_finisher import VectorFinisher
from stages.packaging.sums.parts import Pixel

FETCH = "bk_fetch"
"""A function of one pointer: it brings what is there into the L1 cache."""


class ChannelVectors(VectorFinisher):
    """An epilogue of vectors of channels, as many as there are, in TIR."""

    @cached_property
    def elements(self) -> Elements:
        """The values that the epilogue computes."""
        return Elements(self.kernel)

    @cached_property
    def results(self) -> Results:
        """How computed values are narrowed and stored."""
        return Results(self)

    @property
    def least_strip(self) -> int:  # type: ignore[override]
        """Channels that are finished alone: a block, where anything is stored by whole blocks."""
        return BLOCK if self.results.block_stores else 1

    @property
    def sums_dtype(self) -> str:
        """Type of the sums in scratch, that of the main operator; pools give integers."""
        composite = self.kernel.composite
        if composite.reads_floats:
            return "float32"
        return dtype_of(composite.main.ty) if composite.has_micro_kernel else "int32"

    @property
    def outputs(self) -> int:
        """Channels of the results."""
        return self.results.places.channels

    def include(self) -> None:
        """Include what fetches, saturates and stores; the rest is TIR."""
        code = FunctionText()
        code.prefetch("%place", L1_CACHE)
        code.do("ret void")
        self.kernel.include(code.function(FETCH, ["ptr %place"]), list(code.declarations))
        if has_saturated_words(self.elements, BLOCK):
            self.kernel.include(*words_text())
        self.results.include()

    def prefetch(self, block: Index, pixel: Pixel) -> None:
        """Fetch a tile of the images that the epilogue reads, a cache line a pixel."""
        composite, arguments = self.kernel.composite, self.kernel.arguments
        shape = (composite.images, self.kernel.height, self.kernel.width, self.outputs)
        others = composite.parameters[len(composite.main.args) :]
        read = {p: (shape[-1], NO_SIDES) for p in others if shape_of(p.ty) == shape}
        for each in composite.calls.values():
            if is_op(each, operator_names.QNN_FROM_BYTES):
                read[each.args[0]] = shape_of(each.args[0].ty)[-1], halo_of(each)
        if not read:
            return
        with T.serial(0, self.kernel.sums.rows) as m:
            y, x = pixel(m)
            at = self.position(block, y, x, 0, BLOCK)
            for parameter, (channels, halo) in read.items():
                call_on(FETCH, arguments[parameter.name][at.place(channels, halo)])

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output."""
        fill_halos(self.kernel)

    def emit_epilogues(self, pixels: Callable[[], None]) -> None:
        """Emit the epilogues of a tile, with its bytes looked up together where LUTs are large."""
        self.results.luts.emit_epilogues(pixels)

    def finish_pixel(self, strip: Index, y: Index, x: Index, sums: Index) -> None:
        """The epilogue of one pixel and strip: whole strips as vectors, the last as it is."""
        size = self.kernel.sums.strip
        full, rest = divmod(self.outputs * self.kernel.pixels, size)
        if not rest:
            self._channels(strip, y, x, sums, size)
        elif not full:
            self._channels(strip, y, x, sums, rest)
        else:
            with T.If(strip < full):
                with T.Then():
                    self._channels(strip, y, x, sums, size)
                with T.Else():
                    self._channels(strip, y, x, sums, rest)
        self.results.fill_up(strip, y, x)

    def _channels(self, strip: Index, y: Index, x: Index, sums: Index, count: int) -> None:
        """So many channels of a strip, by vectors as long as there are channels for one."""
        if self.results.luts.is_looked_up:
            self.results.luts.store_kept(self.position(strip, y, x, 0), count)
            return
        with self.results.of_pixel(strip, y, x, count):
            first = 0
            for width, times in widths(count, self.lanes):
                with on_stack(), self.parts(0, times) as part:
                    self._vector(strip, y, x, sums, first + part * width, width)
                first += width * times

    def _vector(
        self, strip: Index, y: Index, x: Index, sums: Index, first: Index, width: int
    ) -> None:
        """A vector `width` channels wide, from the `first` of a strip on."""
        loop = self.loop if width >= MIN_LANES else self.parts

        def each(emit: Callable[[Index, Position, Scalar], None]) -> None:
            with loop(0, width) as lane:
                at = self.position(strip, y, x, first + lane)
                emit(lane, at, self.kernel.scratch[sums + first + lane])

        precomputed = precompute(self.elements, each, width)
        packed = self.results.packed_buffers(width)

        def channel(lane: Index, at: Position, raw: Scalar) -> None:
            values = self.elements.at(at, raw, precomputed, lane)
            self.results.put(at, values, packed, lane, first + lane, width)

        each(channel)
        self.results.end(packed, self.position(strip, y, x, first), width)
