"""Every kind of composite to its kernel: one PrimFunc, and what it calls.

`TABLE` says how: the first row whose condition holds. Some composites have a kernel of their own;
those around sums are composed of parts (`stages.packaging.sums.parts`): how inputs are read, how
sums are made, how work is split, how results are finished. Where a row names several, the first
one that fits is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hw.profile import Hardware
from stages.codegen import target_of
from stages.graph.composites import IMAGES, MATRICES, TILES, max_pool_of, pad_of
from stages.kinds import Table
from stages.nodes import Function
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.epilogues.channel_blocks import ChannelBlocks
from stages.packaging.epilogues.channel_vectors import ChannelVectors
from stages.packaging.standalone.bit_pool import is_bit_pool, lower_bit_pool
from stages.packaging.standalone.byte_function import is_byte_function, lower_byte_function
from stages.packaging.standalone.image_packing import lower_image_packing
from stages.packaging.standalone.max_pool import lower_max_pool
from stages.packaging.standalone.near_tie_sums import is_near_tie_sum, lower_near_tie_sums
from stages.packaging.standalone.pad import lower_pad
from stages.packaging.standalone.resummation_kernel import is_resummation, lower_resummation
from stages.packaging.standalone.row_sums import is_row_sum, lower_row_sum
from stages.packaging.standalone.softmax_rows import is_softmax, lower_softmax
from stages.packaging.standalone.te_kernel import lower_te_kernel
from stages.packaging.standalone.weight_packing import lower_computed_weights
from stages.packaging.standalone.winograd_inputs import lower_winograd_inputs
from stages.packaging.sums.composed_kernel import ComposedKernel, PartChoices
from stages.packaging.sums.depthwise_taps import DepthwiseTaps
from stages.packaging.sums.interleaved_tiles import InterleavedTiles
from stages.packaging.sums.parts import InputReader
from stages.packaging.sums.pooled import Pooled
from stages.packaging.sums.tile_order import JoinedRows, OutputRows, RowHalves, WrappedRows
from stages.packaging.sums.tile_sums import (
    GatheredFloats,
    InMatrixTiles,
    InRegisters,
    InScratch,
    InTileFunction,
    NoSums,
)
from stages.packaging.sums.widened_reads import WidenedWindows
from stages.packaging.sums.window_reads import Windows
from stages.packaging.sums.winograd_sums import WinogradRuns, WinogradSums, WinogradTiles

LoweringFunction = Callable[[LoweringInput, str], Kernel]
"""What makes a kernel that is not composed of parts, given its symbol."""


@dataclass(frozen=True)
class Row:
    """How composites of a kind are lowered."""

    title: str
    """What the composites are; `doit show` prints it."""
    is_match: Callable[[LoweringInput], bool]
    lowering: PartChoices | LoweringFunction


IN_REGISTERS = InRegisters, InTileFunction, InScratch
"""Where sums stand of micro-kernels that may keep them."""
IN_TILES = InterleavedTiles, InMatrixTiles
ANYWHERE = WrappedRows, JoinedRows, RowHalves, OutputRows
IN_ROWS = JoinedRows, OutputRows
WINOGRAD = (WinogradTiles,), (WinogradSums,), (WinogradRuns,)
TILED = (Windows,), IN_TILES, IN_ROWS
"""Matrix tiles (AMX)."""
BYTES = (WidenedWindows, Windows), IN_REGISTERS, ANYWHERE


def _alone(lower: Callable[[Function, str, Hardware], Kernel]) -> LoweringFunction:
    return lambda layer, symbol: lower(layer.function, symbol, layer.hardware)


TABLE = (
    # Kernels of their own.
    Row(
        "maximum of bytes", lambda it: max_pool_of(it.function) is not None, _alone(lower_max_pool)
    ),
    Row("padding", lambda it: pad_of(it.function) is not None, _alone(lower_pad)),
    Row(
        "sums near rounding ties",
        lambda it: is_near_tie_sum(it.function),
        _alone(lower_near_tie_sums),
    ),
    Row("exact re-summation", lambda it: is_resummation(it.function), _alone(lower_resummation)),
    Row(
        "function of a byte (LUT)",
        lambda it: it.is_te(is_byte_function, it.isa),
        _alone(lower_byte_function),
    ),
    Row("softmax", lambda it: it.is_te(is_softmax), _alone(lower_softmax)),
    Row(
        "sums of rows",
        lambda it: it.is_te(is_row_sum),
        lambda it, symbol: lower_row_sum(it.function, symbol),
    ),
    Row("tensor expressions", lambda it: it.is_te(), _alone(lower_te_kernel)),
    Row("Winograd's transform", lambda it: it.kind == TILES, _alone(lower_winograd_inputs)),
    Row(
        "computed weights",
        lambda it: it.kind == MATRICES,
        lambda it, symbol: lower_computed_weights(it.function, symbol),
    ),
    Row(
        "images of few channels",
        lambda it: it.kind == IMAGES or it.composite.is_image,
        lambda it, symbol: lower_image_packing(it.composite, symbol, it.hardware),
    ),
    Row(
        "maximum of bits",
        lambda it: is_bit_pool(it.composite),
        lambda it, symbol: lower_bit_pool(it.composite, symbol),
    ),
    # Sums, and what follows them: tensors as the user sees them, or levels in planes, LUTs or
    # bytes, which networks have that simulated quantizers describe.
    Row("Winograd", lambda it: it.is_winograd, PartChoices(*WINOGRAD, ChannelVectors)),
    Row(
        "levels by matrix tiles",
        lambda it: it.is_tiled and it.gives_blocks_of_levels,
        PartChoices(*TILED, ChannelBlocks),
    ),
    Row(
        "linear layer by matrix tiles", lambda it: it.is_tiled, PartChoices(*TILED, ChannelVectors)
    ),
    Row(
        "batched linear layer",
        lambda it: it.is_linear and it.has_computed_weights,
        PartChoices((WidenedWindows, Windows), IN_REGISTERS, (OutputRows,), ChannelVectors),
    ),
    Row(
        "linear layer of bytes",
        lambda it: it.has_form("bytes"),
        PartChoices(*BYTES, ChannelVectors),
    ),
    Row(
        "linear layer of floats, of bits, or by LUT",
        lambda it: it.composite.is_convolution,
        PartChoices((Windows,), IN_REGISTERS, IN_ROWS, ChannelVectors),
    ),
    Row(
        "depthwise",
        lambda it: it.is_depthwise,
        PartChoices((DepthwiseTaps,), (InTileFunction, InScratch), (OutputRows,), ChannelVectors),
    ),
    Row(
        "pool of levels",
        lambda it: it.has_pool,
        PartChoices((InputReader,), (Pooled,), (OutputRows,), ChannelVectors),
    ),
    Row(
        "levels of floats",
        lambda it: it.composite.reads_floats,
        PartChoices((InputReader,), (GatheredFloats,), (OutputRows,), ChannelVectors),
    ),
    Row(
        "levels of levels",
        lambda it: True,
        PartChoices((InputReader,), (NoSums,), (OutputRows,), ChannelVectors),
    ),
)
"""How each kind of composite is lowered: the first row that it is one of."""


def row_of(layer: LoweringInput) -> Row:
    """The row of the table that a layer takes."""
    return next(row for row in TABLE if row.is_match(layer))


def described(layer: LoweringInput) -> dict[str, str]:
    """The row that a layer takes, and of each kind of part the one that it gets."""
    row = row_of(layer)
    if not isinstance(row.lowering, PartChoices):
        return {"row": row.title}
    made = ComposedKernel(layer, "", row.lowering)
    parts = {"reads": made.reads, "sums": made.sums, "work": made.work, "finisher": made.finisher}
    return {"row": row.title, **{name: type(part).__name__ for name, part in parts.items()}}


def lower(
    function: Function,
    symbol: str,
    schedule: Table,
    bodies: Table,
    hardware: Hardware,
    with_tiles: bool = True,
) -> Kernel:
    """The kernel `symbol` of a composite, in operations that the processor has, of as many tasks as
    its schedule allows."""
    layer = LoweringInput(function, schedule, hardware, with_tiles)
    how = row_of(layer).lowering
    with target_of(hardware):
        if isinstance(how, PartChoices):
            kernel = ComposedKernel(layer, symbol, how).kernel(bodies)
        else:
            kernel = how(layer, symbol)
    return kernel.capped(schedule.get("threads"))
