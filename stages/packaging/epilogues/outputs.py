"""The outputs of an epilogue: where each element lies, and how vectors of them are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from hw.isa.instruction_set import Isa
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.dtypes import limits
from stages.dialect.elementwise import ELEMENTWISE
from stages.dialect.padding import NO_SIDES, Sides
from stages.dialect.relax_te import saturates
from stages.kernels import operator_names
from stages.kernels.packed_conv2d import stored_row
from stages.nodes import Call, Index, Var
from stages.packaging.emitting.byte_lut import has_byte_lut, is_byte_valued
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.epilogues.saturation import has_saturating_pack
from stages.packaging.sums.parts import Composition

SAME = (
    operator_names.QNN_TAKE_CHANNELS,
    operator_names.QNN_PAD_CHANNELS,
    names.RESHAPE,
    names.PERMUTE_DIMS,
)
"""Operators that hand on the value at a position as it is."""
PACKED = (operator_names.QNN_BITPACK, operator_names.QNN_TO_TABLES)
"""Operators that store levels a word at a time."""


@dataclass(frozen=True)
class Position:
    """An element of the result, whose height and width are `extent`."""

    image: Index
    y: Index
    x: Index
    channel: Index
    extent: tuple[int, int]

    def place(self, channels: int, halo: Sides = NO_SIDES, phases: int = 1) -> Index:
        """Where the element lies in images of so many channels with a halo around each; polyphase
        where there are several phases."""
        rows, columns = halo.around(*self.extent)
        row = self.image * rows + stored_row(self.y + halo.top, rows, phases)
        return (row * columns + self.x + halo.left) * channels + self.channel

    def nchw_place(self, channels: int) -> Index:
        """Where the element lies in images whose channels are one behind the other (NCHW)."""
        height, width = self.extent
        row = (self.image * channels + self.channel) * height + self.y
        return row * width + self.x


def halo_of(call: Call) -> Sides:
    """The halo that a call takes an image out of."""
    (top, left), (height, width) = attributes(call)["origin"], attributes(call)["size"]
    stored_height, stored_width, _ = shape_of(call.args[0].ty)
    return Sides(top, left, stored_height - height - top, stored_width - width - left)


def halo_around(call: Call) -> StoredHalo | None:
    """What a call writes around an image, for one that only puts a halo around it."""
    if is_op(call, operator_names.QNN_TO_BYTES):
        return StoredHalo.of(attributes(call))
    if is_op(call, names.PAD):
        return StoredHalo(Sides.of_pad(call.attrs.pad_width), (int(call.attrs.pad_value),))
    return None


def fill_halos(kernel: Composition) -> None:
    """Emit that task 0 writes what surrounds every output; no other task touches that."""
    around = [
        (result, output, halo)
        for result, output in zip(kernel.results, kernel.composite.outputs, strict=True)
        if (halo := _filled(kernel.composite.store_of(output))) is not None
    ]
    if not around:
        return
    with T.If(kernel.task == 0), T.Then():
        for result, output, halo in around:
            halo.fill(result, shape_of(output.ty), str(storage_dtype(dtype_of(output.ty))))


def _filled(call: Call) -> StoredHalo | None:
    """The halo that is to be written with what a call stores, if there is any."""
    if not is_packed(call):
        return halo_around(call)
    halo = StoredHalo.of(attributes(call))
    return halo if any(halo.sides) else None


def is_packed(call: Call) -> bool:
    """Whether a call stores levels as planes or LUTs."""
    return str(call.op.name) in PACKED


def is_moved_only(call: Call) -> bool:
    """Whether what a call gives is what it is given, as far as that goes, in another place."""
    return str(call.op.name) in SAME or is_packed(call) or halo_around(call) is not None


@dataclass(frozen=True)
class Finish:
    """How vectors of an output are stored: by way of which bytes."""

    bytes: Var
    """The variable of a composite that is computed lane by lane."""
    has_saturating_pack: bool
    """Whether the bytes are int32 that instructions saturate."""
    values: Var | None
    """The parameter of a composite with a value for each byte; None if nothing is looked up."""
    bounds: tuple[int, int] = (0, 0)
    """The smallest and the largest byte that is looked up, if something is."""

    @property
    def values_name(self) -> str:
        """The name of the parameter with a value for each byte."""
        assert self.values is not None, "nothing is looked up"
        return self.values.name

    @property
    def dtype(self) -> str:
        """The type of the bytes."""
        return dtype_of(self.bytes.ty)


def finish_of(composite: Composite, output: Var, isa: Isa) -> Finish:
    """How a composite's output is finished."""
    variable, table, bounds = _moved(composite, composite.results[output]), None, (0, 0)
    call: Any = composite.calls.get(variable)
    if is_byte_valued(call) and has_byte_lut(isa):
        variable, table = _moved(composite, call.args[0]), call.args[1]
        call = composite.calls.get(variable)
        bounds = _bounds(call, dtype_of(variable.ty))
    return Finish(
        variable, has_saturating_pack(isa) and call is not None and saturates(call), table, bounds
    )


def _bounds(call: Call, dtype: str) -> tuple[int, int]:
    """The smallest and the largest byte that an operator gives, None for no operator."""
    smallest, largest = limits(dtype)
    attrs = {} if call is None or str(call.op.name) not in ELEMENTWISE else attributes(call)
    return max(smallest, attrs.get("low", smallest)), min(largest, attrs.get("high", largest))


def _moved(composite: Composite, variable: Var) -> Var:
    """The variable with the same values at the same positions, before they are stored."""
    while (call := composite.calls.get(variable)) is not None:
        if not is_moved_only(call):
            break
        variable = call.args[0]
    return variable
