"""Every kind of composite to its kernel."""

from __future__ import annotations

from typing import Any

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import target_of
from stages.kinds import Table
from stages.packaging.bit_pool import is_bit_pool, lower_bit_pool
from stages.packaging.byte_tables import is_table, lower_table
from stages.packaging.composite import Composite
from stages.packaging.convolution import Convolution
from stages.packaging.depthwise import Depthwise, DepthwiseLevels
from stages.packaging.kernel import Kernel
from stages.packaging.lower import FloatInput, Lowering, Pool
from stages.packaging.matrices import lower_matrices
from stages.packaging.max_pool import lower_max_pool
from stages.packaging.near_ties import is_of_near_ties, lower_near_ties
from stages.packaging.padding import lower_padding
from stages.packaging.pictures import is_picture, lower_pictures
from stages.packaging.plain import lower_plain
from stages.packaging.products import Products
from stages.packaging.row_sums import is_row_sum, lower_row_sum
from stages.packaging.settling import is_settling, lower_settling
from stages.packaging.softmax import is_softmax, lower_softmax
from stages.packaging.transforms import lower_tiles
from stages.packaging.winograd import Winograd, WinogradProducts
from stages.qnn.composites import (
    DEPTHWISE,
    MATRICES,
    PICTURES,
    PLAIN,
    PRODUCTS,
    TILES,
    max_pool_of,
    pad_of,
)
from stages.qnn.packed import DEPTHWISE_CONVOLUTION, WINOGRAD
from stages.qnn.registry import is_op


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
    with target_of(hardware):
        kernel = _any_kind(function, symbol, schedule, bodies, hardware, with_tiles)
    return kernel.capped(schedule.get("threads"))


def _any_kind(
    function: Any,
    symbol: str,
    schedule: Table,
    bodies: Table,
    hardware: Hardware,
    with_tiles: bool,
) -> Kernel:
    if max_pool_of(function) is not None:
        return lower_max_pool(function, symbol, hardware)
    if pad_of(function) is not None:
        return lower_padding(function, symbol, hardware)
    if is_of_near_ties(function):
        return lower_near_ties(function, symbol, hardware)
    if is_settling(function):
        return lower_settling(function, symbol, hardware)
    if str(function.attrs["composite"]) == PLAIN:
        return _lowered_plain(function, symbol, hardware)
    if str(function.attrs["composite"]) == TILES:
        return lower_tiles(function, symbol, hardware)
    if str(function.attrs["composite"]) == MATRICES:
        return lower_matrices(function, symbol)
    composite = Composite(function, with_tiles)
    return _lowered(composite, symbol, schedule, bodies, hardware)


def _lowered_plain(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    if is_table(function, isa_of(hardware)):
        return lower_table(function, symbol, hardware)
    if is_softmax(function):
        return lower_softmax(function, symbol, hardware)
    if is_row_sum(function):
        return lower_row_sum(function, symbol)
    return lower_plain(function, symbol, hardware)


def _lowered(
    composite: Composite, symbol: str, schedule: Table, bodies: Table, hardware: Hardware
) -> Kernel:
    kind = str(composite.function.attrs["composite"])
    if kind == PICTURES or is_picture(composite):
        return lower_pictures(composite, symbol, hardware)
    if is_bit_pool(composite):
        return lower_bit_pool(composite, symbol)
    lowering: type[Lowering] = Lowering
    if is_op(composite.main, WINOGRAD):
        lowering = WinogradProducts if kind == PRODUCTS else Winograd
    elif kind == PRODUCTS:
        lowering = Products
    elif kind == DEPTHWISE:
        lowering = Depthwise
    elif is_op(composite.main, DEPTHWISE_CONVOLUTION):
        lowering = DepthwiseLevels
    elif composite.is_convolution:
        lowering = Convolution
    elif composite.main is not None:
        lowering = Pool
    elif composite.reads_floats:
        lowering = FloatInput
    return lowering(composite, symbol, schedule, bodies, hardware).kernel()
