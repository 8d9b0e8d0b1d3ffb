"""From a composite of 8-bit products to one PrimFunc: sums by a micro-kernel, the rest in TIR.

What follows the sums is read from the same arithmetic as everywhere (`stages.qnn.expressions`), one
vector of channels at a time; the result is NHWC without padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any

from tvm import relax
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.packaging.addressing import border_class
from stages.packaging.kernel import Kernel
from stages.packaging.lower import Convolution
from stages.packaging.plain import vectorizes
from stages.qnn.elementwise import WHOLE
from stages.qnn.expressions import scalar
from stages.qnn.registry import attributes, shape_of
from stages.qnn.sharing import shared
from stages.qnn.signature import BLOCK

MIN_LANES = 8
"""Channels that an epilogue computes at once, at least: bytes are stored by eight."""
SAME = ("relax.qnn.take_channels", "relax.reshape")
"""Operators that hand on the value at a position as it is."""


@dataclass(frozen=True)
class Position:
    """An element of the result; `pixel` is the place of its pixel's first channel."""

    y: Any
    x: Any
    channel: Any
    pixel: Any

    @property
    def place(self) -> Any:
        """Where it lies."""
        return self.pixel + self.channel


class Products(Convolution):
    """A convolution whose epilogue is TIR and whose output has no padding."""

    loop = staticmethod(T.vectorized)
    """How the channels of an epilogue are gone through."""

    def kernel(self) -> Kernel:
        """The kernel; what TIR cannot vectorize is left to LLVM."""
        made = super().kernel()
        if vectorizes(made.function, self.hardware):
            return made
        self.loop = T.serial
        return super().kernel()

    def include_epilogue(self, hardware: Hardware) -> None:
        """There is no text to include."""
        self.hardware = hardware
        self.lanes = max(MIN_LANES, isa_of(hardware).lanes)

    @cached_property
    def _floats(self) -> dict[Any, int]:
        return {}

    def _fill_halos(self) -> None:
        """Outputs have none."""

    @cached_property
    def outputs(self) -> int:
        """Channels of the result."""
        return int(attributes(self.composite.main)["channels"][1])

    def _pixel(self, block: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and block: whole blocks as vectors, the last as it is."""
        full, rest = divmod(self.outputs, BLOCK)
        if not rest:
            self._channels(block, y, x, sums, BLOCK)
        elif not full:
            self._channels(block, y, x, sums, rest)
        else:
            with T.If(block < full):
                with T.Then():
                    self._channels(block, y, x, sums, BLOCK)
                with T.Else():
                    self._channels(block, y, x, sums, rest)

    def _channels(self, block: Any, y: Any, x: Any, sums: Any, count: int) -> None:
        width = gcd(count, self.lanes)
        loop = self.loop if width >= MIN_LANES else T.serial
        with T.serial(0, count // width) as part, loop(0, width) as inner:
            lane = part * width + inner
            at = Position(y, x, block * BLOCK + lane, (y * self.width + x) * self.outputs)
            values: dict[Any, Any] = {}
            for variable, call in self.composite.calls.items():
                values[variable] = self._value(call, values, at, self.scratch[sums + lane])
            for result, output in zip(self.results, self.composite.outputs, strict=True):
                value = shared(values[self.composite.results[output]])
                T.buffer_store(result, value, [at.place])

    def _value(self, call: Any, values: dict[Any, Any], at: Position, raw: Any) -> Any:
        """What an operator gives at one position."""
        if call.same_as(self.composite.main):
            bias = call.args[2]
            row = border_class(call, at.y, at.x) * shape_of(bias.ty)[1]
            scale = int(attributes(call)["scale"])
            scaled = raw * scale if scale != 1 else raw
            return scaled + self.arguments[bias.name][row + at.channel]
        name = str(call.op.name)
        if name in SAME:
            return values[call.args[0]]
        operands = []
        for position, argument in enumerate(call.args):
            if not isinstance(argument, relax.Var):
                continue
            if argument in values:
                operands.append(values[argument])
            elif position in WHOLE.get(name, ()):
                operands.append(self.arguments[argument.name])
            else:
                operands.append(self._operand(argument, at))
        return scalar(call, operands)

    def _operand(self, parameter: Any, at: Position) -> Any:
        """A tensor parameter at a position: one value, one a channel, or as large as the result."""
        shape = shape_of(parameter.ty)
        data = self.arguments[parameter.name]
        size = prod(shape)
        if size == 1:
            return data[0]
        return data[at.channel if size == self.outputs and shape[-1] == size else at.place]
