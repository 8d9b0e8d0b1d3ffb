"""What becomes of a result once it is computed: where it lies, and how vectors of it are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from hw.isa import Isa
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.dtypes import limits
from stages.dialect.elementwise import ELEMENTWISE
from stages.dialect.relax_te import saturates
from stages.kernels.packed_conv2d import stored_row
from stages.packaging.emitting.byte_lut import gives_bytes, looks_up
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.halo import fill_halo, fills_of
from stages.packaging.epilogues.saturation import packs
from stages.packaging.sums.parts import Composition

SAME = (
    "relax.qnn.take_channels",
    "relax.qnn.pad_channels",
    "relax.reshape",
    "relax.permute_dims",
)
"""Operators that hand on the value at a position as it is."""
PACKED = ("relax.qnn.bitpack", "relax.qnn.to_tables")
"""Operators that store levels a word at a time."""


@dataclass(frozen=True)
class Position:
    """An element of the result, whose height and width are `extent`."""

    picture: Any
    y: Any
    x: Any
    channel: Any
    extent: tuple[int, int]

    def place(self, halo: Sequence[int], channels: int, phases: int = 1) -> Any:
        """Where it lies in pictures of so many channels with a halo (top, left, bottom, right)
        around each, and rows in phases."""
        top, left, bottom, right = halo
        height, width = self.extent
        rows = height + top + bottom
        line = self.picture * rows + stored_row(self.y + top, rows, phases)
        return (line * (width + left + right) + self.x + left) * channels + self.channel

    def turned(self, channels: int) -> Any:
        """Where it lies in pictures of so many channels that are one behind the other (NCHW)."""
        height, width = self.extent
        line = (self.picture * channels + self.channel) * height + self.y
        return line * width + self.x


@dataclass(frozen=True)
class Surroundings:
    """The halo (top, left, bottom, right) around an output, and what it holds."""

    halo: tuple[int, int, int, int]
    fill: Any
    phases: int = 1


def halo_of(call: Any) -> list[int]:
    """The halo (top, left, bottom, right) that a call takes a picture out of."""
    (top, left), (height, width) = attributes(call)["origin"], attributes(call)["size"]
    stored_height, stored_width, _ = shape_of(call.args[0].ty)
    return [top, left, stored_height - height - top, stored_width - width - left]


def surroundings(call: Any) -> Surroundings | None:
    """What a call writes around a picture, for one that only puts a halo around it."""
    if is_op(call, "relax.qnn.to_bytes"):
        attrs = attributes(call)
        return Surroundings(tuple(attrs["halo"]), attrs["fill"], attrs["phases"])
    if is_op(call, "relax.nn.pad"):
        _, _, top, bottom, left, right, _, _ = (int(count) for count in call.attrs.pad_width)
        return Surroundings((top, left, bottom, right), int(call.attrs.pad_value))
    return None


def fill_halos(of: Composition) -> None:
    """Emit that task 0 writes what surrounds every output; no other task touches that."""
    stores = [
        (result, output, of.composite.store_of(output))
        for result, output in zip(of.results, of.composite.outputs, strict=True)
    ]
    around = [store for store in stores if surroundings(store[2]) or any(_packed_halo(store[2]))]
    if not around:
        return
    with T.If(of.task == 0), T.Then():
        for result, output, call in around:
            shape, dtype = shape_of(output.ty), str(storage_dtype(dtype_of(output.ty)))
            found = surroundings(call)
            if found is None:
                fill_halo(result, shape, dtype, _packed_halo(call), fills_of(attributes(call)))
            else:
                fills = [found.fill] * of.composite.pictures
                fill_halo(result, shape, dtype, found.halo, fills, found.phases)


def _packed_halo(call: Any) -> Sequence[int]:
    """The halo around planes or tables; nothing around what is stored otherwise."""
    halo: Sequence[int] = attributes(call)["halo"] if is_packed(call) else ()
    return halo


def is_packed(call: Any) -> bool:
    """Whether a call stores levels as planes or tables."""
    return str(call.op.name) in PACKED


def is_handed_on(call: Any) -> bool:
    """Whether what a call gives is what it is given, as far as that goes, in another place."""
    return str(call.op.name) in SAME or is_packed(call) or surroundings(call) is not None


@dataclass(frozen=True)
class Finish:
    """How vectors of an output are stored: by way of which bytes."""

    bytes: Any
    """The variable of a composite that is computed lane by lane."""
    packs: bool
    """Whether these are int32 that instructions saturate."""
    table: Any
    """The parameter of a composite with a value for each byte; None if nothing is looked up."""
    bounds: tuple[int, int] = (0, 0)
    """The smallest and the largest byte that is looked up, if something is."""

    @property
    def dtype(self) -> str:
        """The type of the bytes."""
        return dtype_of(self.bytes.ty)


def finish_of(composite: Composite, output: Any, isa: Isa) -> Finish:
    """How a composite's output is finished."""
    variable, table, bounds = _moved(composite, composite.results[output]), None, (0, 0)
    call: Any = composite.calls.get(variable)
    if gives_bytes(call) and looks_up(isa):
        variable, table = _moved(composite, call.args[0]), call.args[1]
        call = composite.calls.get(variable)
        bounds = _bounds(call, dtype_of(variable.ty))
    return Finish(variable, packs(isa) and call is not None and saturates(call), table, bounds)


def _bounds(call: Any, dtype: str) -> tuple[int, int]:
    """The smallest and the largest byte that an operator gives, None for no operator."""
    smallest, largest = limits(dtype)
    attrs = {} if call is None or str(call.op.name) not in ELEMENTWISE else attributes(call)
    return max(smallest, attrs.get("low", smallest)), min(largest, attrs.get("high", largest))


def _moved(composite: Composite, variable: Any) -> Any:
    """The variable with the same values at the same positions, before they are stored."""
    while (call := composite.calls.get(variable)) is not None:
        if not is_handed_on(call):
            break
        variable = call.args[0]
    return variable
