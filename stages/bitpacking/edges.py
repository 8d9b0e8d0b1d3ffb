"""Layout of every edge between composites, solved once for the whole graph.

An edge exists as bit planes where a bit-serial layer reads it, as tables where a layer looks its
products up and as bytes where anything else does; its producer writes every form that has a reader,
so no repacking kernel is ever needed. Its halo is the largest padding of its readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from tvm import relax
from tvm.ir import Call

from stages.bitpacking.window import Chosen
from stages.qnn import packed
from stages.qnn.builder import FunctionBuilder, bindings_of, composite_of
from stages.qnn.methods import WORD_BITS, WORD_BYTES, Stored
from stages.qnn.packing import round_up
from stages.qnn.rebase import SHIFT, less_shift
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.signature import BLOCK, Form
from stages.qnn.tables import ENTRIES, GROUP

LINEAR = tuple(
    f"{algorithm}{name}"
    for algorithm in ("", "bitserial_", "lookup_")
    for name in ("conv2d", "dense")
)
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass
class Layout:
    """How one edge is stored in one form; `halo` is (top, left, bottom, right)."""

    form: Form
    height: int
    width: int
    channels: int
    bits: int
    """Width of a level, or of a float."""
    stored: Stored | None = None
    """What planes hold; None for other forms."""
    halo: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    fill: int = 0
    block: int = BLOCK
    pictures: int = 1
    """Pictures of a batch; more than one only as bytes or floats."""
    stacked: int = 1
    """Rows that lie one behind the other, as channels of one; more than one only as bytes."""
    phases: int = 1
    """Kinds of rows, by number modulo so many, those of each together; more only as bytes."""
    rebased: bool = False
    """Whether its bytes are signed ones, of levels less 128."""
    element: str = "float32"
    """What floats are."""

    @property
    def is_picture(self) -> bool:
        """Whether rows lie one below the other, so that anything can read what is inside."""
        return self.stacked == self.phases == 1

    @property
    def padded_channels(self) -> int:
        """Channels with padding to whole words or blocks."""
        is_whole = self.form in ("bytes", "floats")
        return round_up(self.channels, self.block if is_whole else WORD_BITS)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        top, left, bottom, right = self.halo
        size = (self.height + top + bottom, self.width + left + right)
        if self.stored is not None:
            return packed.stored_shape(self.stored, size, self.padded_channels // WORD_BITS)
        is_table = self.form in ("tables", "balanced_tables")
        channels = self.padded_channels * (ENTRIES // GROUP if is_table else self.stacked)
        size = (size[0] // self.stacked, size[1])
        return (self.pictures, *size, channels) if self.pictures > 1 else (*size, channels)

    @property
    def dtype(self) -> str:
        """Element type of the stored tensor."""
        if self.form == "floats":
            return self.element
        return "uint32" if self.form == "planes" else "uint8"


Edges = dict[tuple[Any, Form], Layout]


def nhwc(tensor_type: Any) -> tuple[int, int, int]:
    """(H, W, C) of an activation of rank 4, or of rank 2 as a row of pixels."""
    shape = shape_of(tensor_type)
    return (1, shape[0], shape[1]) if len(shape) == 2 else (shape[1], shape[2], shape[3])


def pictures(tensor_type: Any) -> int:
    """N of an activation of rank 4; rows of rank 2 are pixels of one picture."""
    shape = shape_of(tensor_type)
    return shape[0] if len(shape) == 4 else 1


def emit_store(builder: FunctionBuilder, value: Any, layout: Layout, name: str = "bytes") -> Any:
    """Write levels [1, H, W, C] as an edge is laid out."""
    if layout.rebased:
        value = builder.emit(less_shift(value), "less")
    return builder.emit(store(value, layout), name)


def emit_load(builder: FunctionBuilder, stored: Any, layout: Layout) -> Any:
    """The levels inside an edge of bytes or planes."""
    value = builder.emit(load(stored, layout), "data")
    return builder.emit(less_shift(value), "levels") if layout.rebased else value


def store(value: Any, layout: Layout) -> Any:
    """The call that writes levels [1, H, W, C], or what is stored of them, as an edge is laid out.

    Floats lie so, but for channels that fill up words, and pixels that fill up tiles.
    """
    if layout.form == "floats":
        top, left, bottom, right = layout.halo
        more = layout.padded_channels - layout.channels
        if not any((*layout.halo, more)):
            return relax.op.reshape(value, layout.shape)
        return relax.op.nn.pad(value, [0, 0, top, bottom, left, right, 0, more])
    if (stored := layout.stored) is not None:
        inside = {"inner": stored.inner} if stored.inner else {}
        return packed.bitpack(
            value,
            **inside,
            halo=layout.halo,
            bits=stored.bits,
            planes=list(stored.planes),
            sums=[list(values) for values in stored.sums],
        )
    if layout.form != "bytes":
        balanced = layout.form == "balanced_tables"
        return packed.to_tables(value, halo=layout.halo, bits=layout.bits, balanced=balanced)
    return packed.to_bytes(
        value,
        halo=layout.halo,
        channels=layout.padded_channels,
        fill=layout.fill ^ (SHIFT * layout.rebased),
        stacked=layout.stacked,
        phases=layout.phases,
    )


def load(stored: Any, layout: Layout) -> Any:
    """The call that gives what is stored inside an edge of bytes or planes."""
    place = {"origin": layout.halo[:2], "size": [layout.height, layout.width]}
    if layout.stored is not None:
        planes = list(layout.stored.planes)
        return packed.from_planes(stored, **place, bits=layout.bits, planes=planes)
    return packed.from_bytes(stored, **place, dtype=f"uint{layout.bits}")


def solve(module: Any, chosen: Mapping[Any, Chosen]) -> Edges:
    """The layouts of all edges of a canonicalized module.

    `chosen` has the kernels of the calls in `main`; planes hold what all their readers want.
    """
    edges: Edges = {}
    for binding in bindings_of(module["main"]):
        function = composite_of(module, binding.value)
        if function is None:
            continue
        for parameter, argument in zip(function.params, binding.value.args, strict=True):
            product = chosen.get(binding.var)
            product_form = product.signature.form if product else "bytes"
            for form, padding, zero_point_x2 in readings(function, parameter, product_form):
                layout = edges.get((argument, form))
                if layout is None:
                    bits = int(dtype_of(argument.ty).lstrip("uint"))
                    layout = Layout(form, *nhwc(argument.ty), bits)
                    edges[argument, form] = layout
                if form == "planes":
                    assert product is not None and product.signature.stored is not None
                    wanted = product.signature.stored
                    layout.stored = layout.stored.joined(wanted) if layout.stored else wanted
                if zero_point_x2 is not None and product is not None:
                    layout.stacked, layout.phases = product.stacked, product.phases
                    if product.is_unpadded:
                        layout.block = 1
                    padding = product.halo
                layout.halo = [max(a, b) for a, b in zip(layout.halo, padding, strict=True)]
                if zero_point_x2 is not None and zero_point_x2 % 2 == 0 and form == "bytes":
                    # What a byte cannot hold, the bias corrects per border class.
                    layout.fill = min(max(0, zero_point_x2 // 2), 255)
    for layout in edges.values():
        # The widest of all sides need not be a multiple of the phases that each reader sees to.
        top, left, bottom, right = layout.halo
        rows, columns = layout.height + top + bottom, layout.width + left + right
        layout.halo = [top, left, bottom + -rows % layout.phases, right + -columns % layout.phases]
    narrow = narrow_inputs(module)
    for (variable, form), layout in edges.items():
        if form == "bytes" and variable in narrow and layout.block == BLOCK:
            layout.block = WORD_BYTES
    return edges


def narrow_inputs(module: Any) -> set[Any]:
    """What is computed of a float input and read by products alone, of less than a block of
    channels: as bytes they are padded to words."""
    found: set[Any] = set()
    for binding in bindings_of(module["main"]):
        if isinstance(binding.value, relax.TupleGetItem):
            if binding.value.tuple_value in found:
                found.add(binding.var)
            continue
        function = composite_of(module, binding.value)
        if function is None:
            continue
        if str(function.attrs["composite"]) == "elementwise":
            found.add(binding.var)
        for parameter, argument in zip(function.params, binding.value.args, strict=True):
            if any(p is None for _, _, p in readings(function, parameter)):
                found.discard(argument)
    levels = (v for v in found if isinstance(v.ty, relax.TensorType) and not is_float(v))
    return {v for v in levels if nhwc(v.ty)[2] < BLOCK}


def is_float(variable: Any) -> bool:
    """Whether a tensor holds floats."""
    return "float" in dtype_of(variable.ty)


def readings(
    function: Any, parameter: Any, product_form: Form = "bytes"
) -> list[tuple[Form, list[int], int | None]]:
    """How a composite reads a parameter: form, padding, and a product's zero point (doubled).

    `product_form` is the form that the kernel of its product, if any, reads.
    Empty for tensors (weights, thresholds …) and for float graph inputs.
    """
    result: list[tuple[Form, list[int], int | None]] = []
    for binding in bindings_of(function):
        call = binding.value
        if not isinstance(call, Call) or not dtype_of(parameter.ty).startswith("uint"):
            continue
        positions = [i for i, a in enumerate(call.args) if parameter.same_as(a)]
        name = str(call.op.name).removeprefix("relax.qnn.")
        if not positions or (positions[0] > 0 and name != "add"):
            continue
        if name in LINEAR:
            attrs = attributes(call)
            padding = attrs.get("padding", [0, 0, 0, 0])
            result.append((product_form, padding, attrs["data_zero_point_x2"]))
        elif is_op(call, f"relax.qnn.{name}"):
            result.append(("bytes", [0, 0, 0, 0], None))
    return result
