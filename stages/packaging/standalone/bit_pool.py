"""From a maximum pool of single bits to one PrimFunc.

Levels of one bit are stored as a bit plane, 32 channels a word. Their maximum is a bitwise OR, so
that a word of the result is the OR of a window's words. Windows may reach into the halo, whose
level is 0 and never wins.
"""

from __future__ import annotations

from functools import reduce

from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, is_op, shape_of
from stages.kernels import operator_names
from stages.nodes import Buffer, Index, Scalar
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.emitting.item_kernel import Arguments, row_kernel
from stages.packaging.emitting.kernel import Kernel


def is_bit_pool(composite: Composite) -> bool:
    """Whether a composite is a maximum pool that reads a bit plane."""
    return any(is_op(call, operator_names.QNN_FROM_PLANES) for call in composite.calls.values())


def lower_bit_pool(composite: Composite, symbol: str) -> Kernel:
    """The kernel `symbol` of a pool."""
    return _BitPool(composite).kernel(symbol)


class _BitPool:
    """A pool, and where its windows lie in what it reads."""

    def __init__(self, composite: Composite) -> None:
        (self.parameter,), (self.output,) = composite.parameters, composite.outputs
        self.halo = StoredHalo.of(attributes(composite.store_of(self.output)))
        self.pool = attributes(composite.main)
        # The row and column, in the stored input, of the first pixel inside its halo.
        self.origin = attributes(composite.calls[composite.main.args[0]])["origin"]
        self.width = shape_of(composite.main.ty)[2]
        *_, self.input_width, self.words = shape_of(self.parameter.ty)

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are output rows."""
        return row_kernel(symbol, [self.parameter], shape_of(self.output.ty), self.halo, self._row)

    def _row(self, arguments: Arguments, result: Buffer, plane: Index, y: Index) -> None:
        """One row of the plane, which is the only one."""
        del plane
        data = arguments[self.parameter]
        top, left, *_ = self.halo.sides
        width = shape_of(self.output.ty)[2]
        line = T.bind((top + y) * width + left)
        source = T.bind(self._first(y))
        with T.serial(0, self.width) as x, T.serial(0, self.words) as word:
            value = self._word(data, source + x * self.pool["strides"][1], word)
            T.buffer_store(result, value, [(line + x) * self.words + word])

    def _first(self, y: Index) -> Index:
        """The pixel at the top left of a row's first window."""
        top, left = (
            origin - before
            for origin, before in zip(self.origin, self.pool["padding"][:2], strict=True)
        )
        return (y * self.pool["strides"][0] + top) * self.input_width + left

    def _word(self, data: Buffer, first: Index, word: Index) -> Scalar:
        """The OR of a window's words; `first` is the window's first pixel."""
        rows, columns = self.pool["kernel"]
        taps = [
            data[(first + dy * self.input_width + dx) * self.words + word]
            for dy in range(rows)
            for dx in range(columns)
        ]
        return reduce(lambda one, other: one | other, taps)
