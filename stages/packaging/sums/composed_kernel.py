"""Kernels around sums: composed of parts, one PrimFunc and what it calls.

Nothing is allocated: sums of the current tile live in the scratch that the caller passes. SIMD text
comes in by `pragma_import_llvm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from stages.kinds import Table
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.sums.parts import Composition, Finisher, InputReader, KernelPart, Sums, Work

OnePart = TypeVar("OnePart", bound=KernelPart)


@dataclass(frozen=True)
class PartChoices:
    """What a kernel may be composed of: of each kind of part, the first that fits is taken."""

    reads: Sequence[type[InputReader]]
    sums: Sequence[type[Sums]]
    work: Sequence[type[Work]]
    finisher: type[Finisher]


class ComposedKernel(Composition):
    """A kernel whose parts are chosen, ready to be emitted."""

    def __init__(self, layer: LoweringInput, symbol: str, parts: PartChoices) -> None:
        super().__init__(layer, symbol)
        self.finisher = parts.finisher(self)
        self.reads = self._chosen(parts.reads)
        self.sums = self._chosen(parts.sums)
        self.work = self._chosen(parts.work)

    def _chosen(self, parts: Sequence[type[OnePart]]) -> OnePart:
        """The first part that fits."""
        return next(part for part in parts if part.fits(self))(self)

    def kernel(self, bodies: Table) -> Kernel:
        """Emit the whole kernel; `bodies` are the micro-kernels."""
        self.reads.include()
        self.sums.include(bodies)
        self.finisher.include()
        return self.finisher.best_form(self._kernel)

    def _kernel(self) -> Kernel:
        self.sums.prepare()
        words = self.widened_at + self.reads.widened_words
        with IRBuilder() as builder, T.prim_func():
            T.func_name(self.symbol)
            T.func_attr({"global_symbol": self.symbol})
            self.declare(words, self.finisher.sums_dtype)
            with T.attr(0, "pragma_import_llvm", "\n".join(self.texts)):
                self.finisher.fill_halos()
                self.sums.emit_task(self.work.emit)
        grid = self.work.grid
        return Kernel(
            builder.get(),
            words * 4,
            grid.items,
            helpers=tuple(self.helpers),
            uses_tiles=self.sums.uses_tiles,
            few=None if self.work.blocks_are_inner else grid.few,
        )
