"""From a padded tensor to one PrimFunc: row by row, what was there and what is put around it.

A row is what lies together behind the last axis that is padded, so that an image of few channels
is moved in whole vectors too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.movement_te import ints_of
from stages.graph.composites import calls_in, pad_of
from stages.kernels.operand_storage import WORD_BYTES
from stages.nodes import Buffer, Function, Index, Scalar
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, with_vectors


def lower_pad(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    register = isa_of(hardware).lanes * WORD_BYTES
    return with_vectors(lambda loop: _Pad(function, loop, register).kernel(symbol), hardware)


class _Pad:
    """The composite, read once, and how a row is gone through."""

    def __init__(self, function: Function, loop: Loop, register: int) -> None:
        self.function, self.loop = function, loop
        pad = pad_of(function)
        numbers = ints_of(pad.attrs.pad_width)
        self.width = list(zip(numbers[::2], numbers[1::2], strict=True))
        self.source, self.result = shape_of(pad.args[0].ty), shape_of(pad.ty)
        self.axis = max((a for a, width in enumerate(self.width) if any(width)), default=0)
        self.inner = prod(self.result[self.axis + 1 :])
        dtype = storage_dtype(dtype_of(calls_in(function)[-1].ty))
        self.dtype, self.lanes = str(dtype), register // dtype.itemsize
        self.pad_value = tirx.const(pad.attrs.pad_value, str(storage_dtype(dtype_of(pad.ty))))

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are rows."""
        result = prod(self.result), self.dtype
        lines = prod(self.result[: self.axis])
        return item_kernel(symbol, self.function.params, result, lines, self._row)

    def _row(self, arguments: Arguments, result: Buffer, number: Index) -> None:
        (data,) = arguments.values()
        before, after = (count * self.inner for count in self.width[self.axis])
        count = self.source[self.axis] * self.inner
        start = T.bind(number * (before + count + after))

        def fill(first: Index, size: int) -> None:
            value = self._kept(self.pad_value)
            self._each(size, lambda i: T.buffer_store(result, value, [first + i]))

        def copy(first: Index, source: Index) -> None:
            self._each(
                count, lambda i: T.buffer_store(result, self._kept(data[source + i]), [first + i])
            )

        def inside(source: Index) -> None:
            fill(start, before)
            copy(start + before, source)
            fill(start + before + count, after)

        is_inside, line = self._line(number)
        if is_inside is None:
            inside(line * count)
            return
        with T.If(is_inside):
            with T.Then():
                inside(T.bind(line * count))
            with T.Else():
                fill(start, before + count + after)

    def _line(self, number: Index) -> tuple[Scalar | None, Index]:
        """Whether a row has data in it (None if all have), and the number of theirs."""
        tests, line, step = [], tirx.const(0, "int32"), 1
        for axis in reversed(range(self.axis)):
            place = number % self.result[axis]
            number = tirx.truncdiv(number, self.result[axis])
            before, after = self.width[axis]
            if before or after:
                place = place - before
                tests.append(tirx.all(place >= 0, place < self.source[axis]))
            line = line + place * step
            step *= self.source[axis]
        return tirx.all(*tests) if tests else None, line

    def _kept(self, value: Scalar) -> Scalar:
        """A value as it is stored."""
        return value.astype(self.dtype)

    def _each(self, count: int, store: Callable[[Index], None]) -> None:
        """Store so many elements, as many at once as a register has."""
        whole = count // self.lanes * self.lanes
        if whole:
            with T.serial(0, whole // self.lanes) as part, self.loop(0, self.lanes) as lane:
                store(part * self.lanes + lane)
        if count > whole:
            with T.serial(0, count - whole) as rest:
                store(whole + rest)
