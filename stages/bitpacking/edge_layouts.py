"""How an edge lies in memory: the form of its values, the halo around them, their order.

`store` and `load` are the only places that know how a layout is written and read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from tvm import relax

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.dtypes import parse
from stages.dialect.padding import NO_HALO, NO_SIDES, Halo, Sides
from stages.graph.builder import FunctionBuilder
from stages.kernels import packed_edges
from stages.kernels.byte_shift import SHIFT, less_shift
from stages.kernels.lut import ENTRIES, GROUP
from stages.kernels.operand_storage import WORD_BITS, WORD_BYTES, Stored
from stages.kernels.packing import round_up
from stages.kernels.signature import BLOCK
from stages.kernels.signature_traits import Form
from stages.nodes import Expr, TensorType, Var

FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class Layout:
    """How one edge is stored in one form."""

    form: Form
    height: int
    width: int
    channels: int
    bits: int
    """Width of a level, or of a float."""
    stored: Stored | None = None
    """What planes hold; None for other forms."""
    halo: Halo = NO_HALO
    channel_unit: int = BLOCK
    """Channels of bytes and floats are padded to a multiple of this many: that of
    `Geometry.channel_unit`."""
    images: int = 1
    """Images of a batch; more than one only as bytes or floats."""
    packed_rows: int = 1
    """Rows that lie one behind the other, as channels of one; more than one only as bytes."""
    phases: int = 1
    """Kinds of rows, by number modulo so many, those of each together; more only as bytes."""
    is_rebased: bool = False
    """Whether its bytes are signed ones, of levels less 128."""
    element: str = "float32"
    """Type of the values where the form is `floats`."""

    @property
    def is_image(self) -> bool:
        """Whether rows lie one below the other, so that anything can read what is inside."""
        return self.packed_rows == self.phases == 1

    @property
    def is_narrow(self) -> bool:
        """Whether it holds a word for every pixel, or less."""
        return self.form == "bytes" and self.padded_channels <= WORD_BYTES

    @property
    def padded_channels(self) -> int:
        """Channels with padding to whole words or blocks."""
        is_whole = self.form in ("bytes", "floats")
        return round_up(self.channels, self.channel_unit if is_whole else WORD_BITS)

    @property
    def bare(self) -> Layout:
        """The layout without what `joined` joins; two whose bare ones are equal can be one."""
        return replace(self, halo=replace(self.halo, sides=NO_SIDES), stored=None)

    def joined(self, other: Layout) -> Layout:
        """What serves the readers of both: the wider halo at each side, and the planes of both."""
        top, left, bottom, right = map(max, self.halo.sides, other.halo.sides)
        # The widest of all sides need not be a multiple of the phases that each reader sees to.
        bottom += -(self.height + top + bottom) % self.phases
        right += -(self.width + left + right) % self.phases
        halo = replace(self.halo, sides=Sides(top, left, bottom, right))
        stored = self.stored
        if stored is not None and other.stored is not None:
            stored = stored.joined(other.stored)
        return replace(self, stored=stored, halo=halo)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        size = self.halo.sides.around(self.height, self.width)
        if self.stored is not None:
            return packed_edges.stored_shape(self.stored, size, self.padded_channels // WORD_BITS)
        is_lut = self.form in ("tables", "balanced_tables")
        channels = self.padded_channels * (ENTRIES // GROUP if is_lut else self.packed_rows)
        size = (size[0] // self.packed_rows, size[1])
        return (self.images, *size, channels) if self.images > 1 else (*size, channels)

    @property
    def dtype(self) -> str:
        """Element type of the stored tensor."""
        if self.form == "floats":
            return self.element
        return "uint32" if self.form == "planes" else "uint8"


def nhwc(tensor_type: TensorType) -> tuple[int, int, int]:
    """(H, W, C) of an activation of rank 4, or of rank 2 as a row of pixels."""
    shape = shape_of(tensor_type)
    return (1, shape[0], shape[1]) if len(shape) == 2 else (shape[1], shape[2], shape[3])


def images(tensor_type: TensorType) -> int:
    """N of an activation of rank 4; rows of rank 2 are pixels of one image."""
    shape = shape_of(tensor_type)
    return shape[0] if len(shape) == 4 else 1


def layout_of(variable: Var, form: Form, stored: Stored | None = None, **more: Any) -> Layout:
    """A layout of the values of a variable."""
    dtype = dtype_of(variable.ty)
    is_float = form == "floats"
    bits = 8 * storage_dtype(dtype).itemsize if is_float else parse(dtype).bits
    element = dtype if is_float else "float32"
    size, count = nhwc(variable.ty), images(variable.ty)
    return Layout(form, *size, bits, stored, images=count, element=element, **more)


def store(builder: FunctionBuilder, value: Expr, layout: Layout) -> Any:
    """Emit what writes levels [N, H, W, C] as an edge is laid out.

    Floats lie as they are, but for channels that fill up words, and pixels that fill up tiles.
    """
    if layout.is_rebased:
        value = builder.emit(less_shift(value), "less")
    if len(shape_of(value.ty)) == 2 and layout.form != "floats":
        shape = (layout.images, layout.height, layout.width, layout.channels)
        value = builder.emit(relax.op.reshape(value, shape), "pixels")
    channels = layout.padded_channels
    if layout.form not in ("bytes", "floats") and channels > layout.channels:
        value = builder.emit(packed_edges.pad_channels(value, channels=channels), "filled")
    return builder.emit(_stored(value, layout), layout.form)


def load(builder: FunctionBuilder, stored: Var, layout: Layout) -> Any:
    """Emit what gives the levels inside an edge of bytes or planes."""
    place = {"origin": list(layout.halo.sides[:2]), "size": [layout.height, layout.width]}
    if layout.stored is not None:
        planes = list(layout.stored.planes)
        return builder.emit(
            packed_edges.from_planes(stored, **place, bits=layout.bits, planes=planes), "data"
        )
    value = builder.emit(
        packed_edges.from_bytes(stored, **place, dtype=f"uint{layout.bits}"), "data"
    )
    return builder.emit(less_shift(value), "levels") if layout.is_rebased else value


def _stored(value: Expr, layout: Layout) -> Any:
    """The call that writes what is stored of levels."""
    sides = layout.halo.sides
    if layout.form == "floats":
        more = layout.padded_channels - layout.channels
        if not any((*sides, more)):
            return relax.op.reshape(value, layout.shape)
        return relax.op.nn.pad(value, sides.pad_width(more))
    if (stored := layout.stored) is not None:
        inside = {"inner": stored.inner} if stored.inner else {}
        planes, sums = list(stored.planes), [list(values) for values in stored.sums]
        return packed_edges.bitpack(
            value, **inside, halo=sides, bits=stored.bits, planes=planes, sums=sums
        )
    if layout.form != "bytes":
        balanced = layout.form == "balanced_tables"
        return packed_edges.to_tables(value, halo=sides, bits=layout.bits, balanced=balanced)
    return packed_edges.to_bytes(
        value,
        halo=Halo(sides, layout.halo.level ^ (SHIFT * layout.is_rebased)),
        channels=layout.padded_channels,
        packed_rows=layout.packed_rows,
        phases=layout.phases,
    )
