"""From a composite that writes pictures of few channels as words to one PrimFunc.

Lanes are pixels: their first channels, computed from the planes or pixels that the user hands in,
then the others, are put together as the bytes of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.packaging.addressing import slice_of
from stages.packaging.composite import PLAIN_INPUT, Composite
from stages.packaging.halo import fill_halo
from stages.packaging.kernel import Kernel
from stages.packaging.plain import vectorizes
from stages.qnn.elementwise import WHOLE
from stages.qnn.expressions import scalar
from stages.qnn.legalize import quantized
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.qnn.sharing import shared
from stages.qnn.signature import WORD_BYTES

BYTE = 8
REPEATED = 0x01010101
"""A word of four equal bytes, by the byte."""


def is_picture(composite: Composite) -> bool:
    """Whether a composite of a float input writes nothing but a word for every pixel."""
    names = {str(call.op.name).removeprefix("relax.") for call in composite.calls.values()}
    is_alike = composite.reads_floats and names <= PLAIN_INPUT - {"reshape"}
    if not is_alike or len(composite.outputs) != 1:
        return False
    is_input_picture = len(shape_of(composite.parameters[0].ty)) == 4
    return is_input_picture and shape_of(composite.outputs[0].ty)[-1] == WORD_BYTES


def lower_pictures(composite: Composite, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel; what TIR cannot vectorize is left to LLVM."""
    for loop in (T.vectorized, T.serial):
        made = _Pictures(composite, loop, isa_of(hardware).lanes).kernel(symbol)
        if vectorizes(made.function, hardware):
            return made
    return made


class _Pictures:
    def __init__(self, composite: Composite, loop: Any, lanes: int) -> None:
        self.composite, self.loop = composite, loop
        (self.output,) = composite.outputs
        self.store = composite.store_of(self.output)
        self.pictures, self.height, self.width, self.channels = shape_of(self.store.args[0].ty)
        self.lanes = min(lanes, self.width)
        top, left, bottom, right = self.halo = tuple(attributes(self.store)["halo"])
        self.size = self.height + top + bottom, self.width + left + right

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are lines of all pictures."""
        lines = self.pictures * self.height
        with IRBuilder() as builder, T.prim_func():
            T.func_name(symbol)
            T.func_attr({"global_symbol": symbol})
            self.arguments = {p: T.arg(str(p.name), _buffer(p)) for p in self.composite.parameters}
            result = T.arg("o0", T.Buffer((self.pictures * prod(self.size),), "uint32"))
            T.arg("scratch", T.Buffer((1,), "int32"))
            task = T.arg("task", tirx.Var("task", "int32"))
            tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))
            self._surround(result, task)
            first, end = slice_of(lines, task, tasks)
            begin = T.bind(first)
            with T.serial(0, T.bind(end - begin)) as index:
                line = T.bind(begin + index)
                self._line(result, tirx.truncdiv(line, self.height), line % self.height)
        return Kernel(builder.get(), 0, lines)

    def _surround(self, result: Any, task: Any) -> None:
        """Task 0 writes the halos."""
        if any(self.halo):
            fills = [attributes(self.store)["fill"] * REPEATED] * self.pictures
            with T.If(task == 0), T.Then():
                shape = (self.pictures, *self.size, 1)
                fill_halo(result, shape, "uint32", self.halo, fills)

    def _line(self, result: Any, picture: Any, y: Any) -> None:
        """One line; its last pixels overlap their neighbours, written twice alike."""
        top, left, _, _ = self.halo
        height, width = self.size
        start = T.bind((picture * height + top + y) * width + left)
        with T.serial(0, -(-self.width // self.lanes)) as tile:
            first = T.bind(tirx.min(tile * self.lanes, self.width - self.lanes))
            with self.loop(0, self.lanes) as lane:
                x = first + lane
                T.buffer_store(result, shared(self._word(picture, y, x)), [start + x])

    def _word(self, picture: Any, y: Any, x: Any) -> Any:
        """The bytes of one pixel."""
        total: Any = None
        for channel in range(min(WORD_BYTES, self.channels)):
            byte = self._value(self.store.args[0], (picture, y, x, channel))
            word = byte.astype("uint8").astype("uint32") << tirx.const(BYTE * channel, "uint32")
            total = word if total is None else total | word
        return total

    def _value(self, variable: Any, at: Sequence[Any]) -> Any:
        """A tensor at a position."""
        if variable not in self.composite.calls:
            return self._element(variable, at)
        call = self.composite.calls[variable]
        if is_op(call, "relax.permute_dims"):
            axes = [int(axis) for axis in call.attrs.axes]
            return self._value(call.args[0], [at[axes.index(axis)] for axis in range(len(axes))])
        if is_op(call, "relax.qnn.pad_channels"):
            if at[-1] < shape_of(call.args[0].ty)[-1]:
                return self._value(call.args[0], at)
            return tirx.const(0, dtype_of(call.ty))
        whole = WHOLE.get(str(call.op.name), ())
        operands = [
            self.arguments[operand] if i in whole else self._value(operand, at)
            for i, operand in enumerate(call.args)
        ]
        if is_op(call, "relax.qnn.quantize"):
            attrs = attributes(call)
            return quantized(*operands, **{**attrs, "dtype": str(storage_dtype(attrs["dtype"]))})
        return scalar(call, operands)

    def _element(self, parameter: Any, at: Sequence[Any]) -> Any:
        """An element of what the kernel is given: a scalar, or of the extents of the position."""
        place: Any = 0
        shape = shape_of(parameter.ty)
        for extent, index in zip(shape, at[len(at) - len(shape) :], strict=True):
            place = place * extent + index
        return self.arguments[parameter][place]


def _buffer(parameter: Any) -> Any:
    dtype = str(storage_dtype(dtype_of(parameter.ty)))
    return T.Buffer((prod(shape_of(parameter.ty)),), dtype)
