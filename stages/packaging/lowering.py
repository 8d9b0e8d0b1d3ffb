"""Every kind of composite to its kernel: one PrimFunc, and what it calls.

`TABLE` says how: the first row whose condition holds. Some composites have a kernel of their own;
those around sums are put together from parts (`stages.packaging.kernel_parts`): how inputs are
read, how sums are made, how work is split, how results are finished. Where a row names several, the
first one that fits is taken. Nothing is allocated: sums of the current tile live in the scratch
that the caller passes. SIMD text comes in by `pragma_import_llvm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.profile import Hardware
from stages.codegen import target_of
from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.graph.composites import MATRICES, PICTURES, TILES, max_pool_of, pad_of
from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.packaging.addressing import divided
from stages.packaging.bit_pool import is_bit_pool, lower_bit_pool
from stages.packaging.blocks import Blocks
from stages.packaging.byte_tables import is_table, lower_table
from stages.packaging.composite import Layer
from stages.packaging.depthwise import Taps
from stages.packaging.interleaving import Interleaved
from stages.packaging.kernel import Helper, Kernel
from stages.packaging.kernel_parts import Part, Parts, Reads, Sums
from stages.packaging.lanes import Lanes
from stages.packaging.matrices import lower_matrices
from stages.packaging.max_pool import lower_max_pool
from stages.packaging.near_ties import is_of_near_ties, lower_near_ties
from stages.packaging.padding import lower_padding
from stages.packaging.pictures import lower_pictures
from stages.packaging.plain import lower_plain
from stages.packaging.pool import Pooled
from stages.packaging.row_sums import is_row_sum, lower_row_sum
from stages.packaging.settling import is_settling, lower_settling
from stages.packaging.softmax import is_softmax, lower_softmax
from stages.packaging.summing import ATile, Gathered, InLoop, InScratch, InTiles
from stages.packaging.tiling import Halves, Joined, Rows, Turning
from stages.packaging.transforms import lower_tiles
from stages.packaging.widening import Widened
from stages.packaging.windows import Windows
from stages.packaging.winograd import OfSquares, Squares, Transformed

OnePart = TypeVar("OnePart", bound=Part)
Whole = Callable[[Layer, str], Kernel]
"""What gives the kernel of a name on its own."""


@dataclass(frozen=True)
class Row:
    """How composites of a kind are lowered."""

    layer: str
    """What they are."""
    is_one: Callable[[Layer], bool]
    by: Parts | Whole


IN_REGISTERS = InLoop, ATile, InScratch
"""Where sums stand of micro-kernels that may keep them."""
IN_TILES = Interleaved, InTiles
ANYWHERE = Turning, Joined, Halves, Rows
ON_LINES = Joined, Rows
WINOGRAD = (Squares,), (Transformed,), (OfSquares,)
TILED = (Windows,), IN_TILES, ON_LINES
"""Matrix tiles (AMX)."""
BYTES = (Widened, Windows), IN_REGISTERS, ANYWHERE


def _alone(lower: Callable[[Any, str, Hardware], Kernel]) -> Whole:
    return lambda layer, symbol: lower(layer.function, symbol, layer.hardware)


TABLE = (
    # Kernels of their own.
    Row(
        "maximum of bytes", lambda it: max_pool_of(it.function) is not None, _alone(lower_max_pool)
    ),
    Row("padding", lambda it: pad_of(it.function) is not None, _alone(lower_padding)),
    Row("sums near ties", lambda it: is_of_near_ties(it.function), _alone(lower_near_ties)),
    Row("sums taken again", lambda it: is_settling(it.function), _alone(lower_settling)),
    Row("function of a byte", lambda it: it.is_plain(is_table, it.isa), _alone(lower_table)),
    Row("softmax", lambda it: it.is_plain(is_softmax), _alone(lower_softmax)),
    Row(
        "sums of rows",
        lambda it: it.is_plain(is_row_sum),
        lambda it, symbol: lower_row_sum(it.function, symbol),
    ),
    Row("tensor expressions", lambda it: it.is_plain(), _alone(lower_plain)),
    Row("Winograd's transform", lambda it: it.kind == TILES, _alone(lower_tiles)),
    Row(
        "computed weights",
        lambda it: it.kind == MATRICES,
        lambda it, symbol: lower_matrices(it.function, symbol),
    ),
    Row(
        "pictures of few channels",
        lambda it: it.kind == PICTURES or it.composite.is_picture,
        lambda it, symbol: lower_pictures(it.composite, symbol, it.hardware),
    ),
    Row(
        "maximum of bits",
        lambda it: is_bit_pool(it.composite),
        lambda it, symbol: lower_bit_pool(it.composite, symbol),
    ),
    # Sums, and what follows them: tensors as the user sees them, or levels in planes, tables or
    # bytes, which networks have that simulated quantizers describe.
    Row("Winograd", lambda it: it.is_winograd, Parts(*WINOGRAD, Lanes)),
    Row(
        "levels by matrix tiles",
        lambda it: it.is_tiled and it.gives_blocks_of_levels,
        Parts(*TILED, Blocks),
    ),
    Row("product by matrix tiles", lambda it: it.is_tiled, Parts(*TILED, Lanes)),
    Row(
        "batched product",
        lambda it: it.is_product and it.has_matrices,
        Parts((Widened, Windows), IN_REGISTERS, (Rows,), Lanes),
    ),
    Row("product of bytes", lambda it: it.has_form("bytes"), Parts(*BYTES, Lanes)),
    Row(
        "product of floats, of bits, or looked up",
        lambda it: it.composite.is_convolution,
        Parts((Windows,), IN_REGISTERS, ON_LINES, Lanes),
    ),
    Row(
        "depthwise",
        lambda it: it.is_depthwise,
        Parts((Taps,), (ATile, InScratch), (Rows,), Lanes),
    ),
    Row("pool of levels", lambda it: it.has_pool, Parts((Reads,), (Pooled,), (Rows,), Lanes)),
    Row(
        "levels of floats",
        lambda it: it.composite.reads_floats,
        Parts((Reads,), (Gathered,), (Rows,), Lanes),
    ),
    Row("levels of levels", lambda it: True, Parts((Reads,), (Sums,), (Rows,), Lanes)),
)
"""How each kind of composite is lowered: the first row that it is one of."""


def row_of(layer: Layer) -> Row:
    """The row of the table that a layer takes."""
    return next(row for row in TABLE if row.is_one(layer))


def described(layer: Layer) -> dict[str, str]:
    """The row that a layer takes, and of each kind of part the one that it gets."""
    row = row_of(layer)
    if not isinstance(row.by, Parts):
        return {"row": row.layer}
    made = Lowering(layer, "", row.by)
    parts = {"reads": made.reads, "sums": made.sums, "work": made.work, "finisher": made.finisher}
    return {"row": row.layer, **{name: type(part).__name__ for name, part in parts.items()}}


def lower(
    function: Any,
    symbol: str,
    schedule: Table,
    bodies: Table,
    hardware: Hardware,
    with_tiles: bool = True,
) -> Kernel:
    """The kernel `symbol` of a composite, in operations that the processor has, of as many tasks as
    its schedule allows."""
    layer = Layer(function, schedule, hardware, with_tiles)
    by = row_of(layer).by
    with target_of(hardware):
        if isinstance(by, Parts):
            kernel = Lowering(layer, symbol, by).kernel(bodies)
        else:
            kernel = by(layer, symbol)
    return kernel.capped(schedule.get("threads"))


class Lowering:
    """A kernel that is put together from parts, and what these share."""

    scratch: Any = None
    """Where sums are."""

    def __init__(self, layer: Layer, symbol: str, parts: Parts) -> None:
        self.composite, self.symbol, self.schedule = layer.composite, symbol, layer.schedule
        self.hardware, self.isa = layer.hardware, layer.isa
        self.height, self.width, self.channels = self.composite.extent
        self.lines = self.composite.pictures * self.height
        """Rows of all pictures of a batch."""
        self.blocks = -(-self.channels // BLOCK)
        self.pixels = self.composite.pixels_per_block
        self.texts: dict[str, None] = {}
        self.helpers: list[Helper] = []
        self.finisher = parts.finisher(self)
        self.reads = self._chosen(parts.reads)
        self.sums = self._chosen(parts.sums)
        self.work = self._chosen(parts.work)

    def _chosen(self, parts: Sequence[type[OnePart]]) -> OnePart:
        """The first part that fits."""
        return next(part for part in parts if part.fits(self))(self)

    def include(self, text: str, declarations: Sequence[str]) -> None:
        """Import LLVM IR text once, its declarations in front."""
        for line in (*declarations, text):
            self.texts[str(line)] = None

    def kernel(self, bodies: Table) -> Kernel:
        """Emit the whole kernel; `bodies` are the micro-kernels."""
        self.reads.include()
        self.sums.include(bodies)
        self.finisher.include()
        return self.finisher.made(self._kernel)

    def _kernel(self) -> Kernel:
        self.sums.prepare()
        with IRBuilder() as builder, T.prim_func():
            T.func_name(self.symbol)
            T.func_attr({"global_symbol": self.symbol})
            self._declare()
            with T.attr(0, "pragma_import_llvm", "\n".join(self.texts)):
                self.finisher.fill_halos()
                self.sums.around(self.work.emit)
        scratch, helpers = self._scratch_words * 4, tuple(self.helpers)
        grid, uses_tiles = self.work.grid, self.sums.uses_tiles
        few = None if self.work.goes_through_blocks else grid.few
        return Kernel(
            builder.get(), scratch, grid.items, helpers=helpers, uses_tiles=uses_tiles, few=few
        )

    @property
    def wide_at(self) -> int:
        """Where in scratch inputs are widened: behind all else."""
        return self.sums.words + self.sums.made_words

    @property
    def _scratch_words(self) -> int:
        return self.wide_at + self.reads.wide_words

    @property
    def made(self) -> Any:
        """A pointer to what the kernel makes of weights, behind the sums."""
        return T.address_of(self.scratch[self.sums.words])

    def _declare(self) -> None:
        self.declare_tensors()
        words = max(1, self._scratch_words)  # no buffer is empty
        self.scratch = T.arg("scratch", T.Buffer((words,), self.finisher.sums_dtype))
        self.task = T.arg("task", tirx.Var("task", "int32"))
        self.tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))

    def declare_tensors(self) -> None:
        """Declare what is read and written, in the order in which callers pass it."""

        def buffer(variable: Any) -> Any:
            dtype = str(storage_dtype(dtype_of(variable.ty)))
            return T.Buffer((prod(shape_of(variable.ty)),), dtype)

        self.arguments = {p.name: T.arg(str(p.name), buffer(p)) for p in self.composite.parameters}
        outputs = enumerate(self.composite.outputs)
        self.results = [T.arg(f"o{number}", buffer(output)) for number, output in outputs]

    def line_of(self, y: Any) -> tuple[Any, Any]:
        """Picture of a batch, and row in it, of a row among all of them."""
        if self.lines == self.height:
            return 0, y
        return divided(y, self.height)

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """Emit a tile: what its sums need, these, and what follows."""
        self.reads.prepare(block, run, tile)
        self.sums.tile(block, run, tile)

    def each_pixel(self, finish: Callable[[Any], None]) -> None:
        """Emit what finishes each pixel of a tile."""
        with T.serial(0, self.sums.rows) as m:
            finish(m)

    def beginning(self, channel: Any) -> tuple[Any, ...]:
        """A pointer to the bias from a channel on, if sums begin with it."""
        if not self.reads.begins:
            return ()
        bias = self.arguments[self.composite.main.args[2].name]
        return (T.address_of(bias[channel]),)
