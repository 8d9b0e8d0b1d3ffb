"""Index arithmetic of composites: where a pixel, a block of channels, a task's share begins."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.padding import Halo
from stages.kernels import operator_names
from stages.kernels.lut import ENTRIES, GROUP
from stages.kernels.packed_conv2d import class_count, stored_row
from stages.kernels.packed_edges import stored_of
from stages.kernels.signature import BLOCK
from stages.nodes import Call, Index, Scalar, Var

MIN_LANES = 8
"""Channels that an epilogue computes at once, at least: bytes are stored by eight."""
FEW_REGISTERS = 16
"""With no more an epilogue computes one register at a time: two were slower as often as faster."""


def call_on(name: str, *places: Scalar) -> None:
    """Emit a call of a function of pointers, to elements of buffers."""
    T.evaluate(T.call_extern("void", name, *map(T.address_of, places)))


def slice_of(items: Index, task: Index, tasks: Index) -> tuple[Scalar, Scalar]:
    """First work item of a task, and the one behind its last."""
    return tirx.truncdiv(items * task, tasks), tirx.truncdiv(items * (task + 1), tasks)


def output_offset(output: Var, call: Call, block: Index, y: Index, x: Index) -> Index:
    """Element of a packed output that an epilogue's pointer stands at."""
    attrs = attributes(call)
    top, left, *_ = Halo.of(attrs).sides
    *_, height, width, channels = shape_of(output.ty)
    row = stored_row(top + y, height, attrs.get("phases", 1))
    if is_op(call, operator_names.QNN_TO_TABLES):
        step = BLOCK // GROUP * ENTRIES
    else:
        step = 1 if dtype_of(output.ty) == "uint32" else BLOCK
    if inner := attrs.get("inner", 0):
        own = stored_of(attrs).words * inner
        place = tirx.truncdiv(block, inner) * own + tirx.truncmod(block, inner)
    else:
        place = block * step
    return (row * width + left + x) * channels + place


def border_class(convolution: Call, y: Index, x: Index) -> Index:
    """Row of the bias table for an output pixel."""
    top, left, bottom, right = attributes(convolution)["border"]
    _, height, width, _ = shape_of(convolution.ty)
    across = class_count(width, left, right)
    down = border_expression(y, height, top, bottom)
    return down * across + border_expression(x, width, left, right)


def border_expression(position: Index, size: int, before: int, after: int) -> Index:
    """`stages.kernels.packed_conv2d.border_classes` for one position, as an expression."""
    if not before and not after:
        return 0
    if size < before + after + 1:
        return position
    return tirx.min(position, before) + tirx.max(0, position - (size - 1 - after))


def widths(count: int, most: int) -> Iterator[tuple[int, int]]:
    """How `count` lanes are taken: (lanes at once, times), from `most`, a power of two, on.

    Fewer than MIN_LANES are taken as they are.
    """
    while most >= MIN_LANES:
        times, count = divmod(count, most)
        if times:
            yield most, times
        most //= 2
    if count:
        yield count, 1


def divided(value: Index, by: int) -> tuple[Scalar, Scalar]:
    """Quotient and remainder of a number that is not negative."""
    return tirx.truncdiv(value, by), tirx.truncmod(value, by)
