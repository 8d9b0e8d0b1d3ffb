"""Where pointers stand for one pixel and one block of channels: index arithmetic of composites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from stages.qnn.packed import (
    DEPTHWISE_CONVOLUTION,
    class_count,
    is_convolution,
    stored_of,
    stored_row,
)
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.tables import ENTRIES, GROUP

MIN_LANES = 8
"""Channels that an epilogue computes at once, at least: bytes are stored by eight."""


def slice_of(items: Any, task: Any, tasks: Any) -> tuple[Any, Any]:
    """First work item of a task, and the one behind its last."""
    return tirx.truncdiv(items * task, tasks), tirx.truncdiv(items * (task + 1), tasks)


def parameter_offset(parameter: Any, calls: list[Any], block: Any, y: Any, x: Any) -> Any:
    """Element of a parameter that an epilogue's pointer stands at.

    `calls` are the composite's operator calls. Operands of the main operator that the epilogue
    does not read stay at 0; tensors per channel move by blocks. An edge may be both, the data of
    the main operator and an addend of the epilogue. A picture of floats is one behind a product.
    """
    readers = [c for c in calls if any(parameter.same_as(argument) for argument in c.args)]
    for call in readers:
        if is_op(call, "relax.qnn.from_bytes"):
            top, left = attributes(call)["origin"]
            _, width, channels = shape_of(parameter.ty)
            return ((top + y) * width + left + x) * channels + block * BLOCK
    if any(is_op(call, DEPTHWISE_CONVOLUTION) for call in readers):
        return 0  # no epilogue reads what is in the sums already
    for call in readers:
        if is_convolution(call):
            if not parameter.same_as(call.args[2]):
                return 0
            return border_class(call, y, x) * shape_of(parameter.ty)[1] + block * BLOCK
    shape = shape_of(parameter.ty)
    if len(shape) == 4 and any(gives_sums(call) for call in calls):
        return (y * shape[2] + x) * shape[3] + block * BLOCK
    is_per_channel = 0 < len(shape) <= 2 and shape[-1] % BLOCK == 0
    return block * BLOCK if is_per_channel else 0


def gives_sums(call: Any) -> bool:
    """Whether an operator gives the sums that an epilogue begins with."""
    return is_convolution(call) or is_op(call, DEPTHWISE_CONVOLUTION)


def output_offset(output: Any, call: Any, block: Any, y: Any, x: Any) -> Any:
    """Element of a packed output that an epilogue's pointer stands at."""
    attrs = attributes(call)
    top, left, _, _ = attrs["halo"]
    *_, height, width, channels = shape_of(output.ty)
    row = stored_row(top + y, height, attrs.get("phases", 1))
    if is_op(call, "relax.qnn.to_tables"):
        step = BLOCK // GROUP * ENTRIES
    else:
        step = 1 if dtype_of(output.ty) == "uint32" else BLOCK
    if inner := attrs.get("inner", 0):
        own = stored_of(attrs).words * inner
        place = tirx.truncdiv(block, inner) * own + tirx.truncmod(block, inner)
    else:
        place = block * step
    return (row * width + left + x) * channels + place


def border_class(convolution: Any, y: Any, x: Any) -> Any:
    """Row of the bias table for an output pixel."""
    top, left, bottom, right = attributes(convolution)["border"]
    _, height, width, _ = shape_of(convolution.ty)
    across = class_count(width, left, right)
    down = border_expression(y, height, top, bottom)
    return down * across + border_expression(x, width, left, right)


def border_expression(position: Any, size: int, before: int, after: int) -> Any:
    """`stages.qnn.packed.border_classes` for one position, as an expression."""
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


def divided(value: Any, by: int) -> tuple[Any, Any]:
    """Quotient and remainder of a number that is not negative."""
    return tirx.truncdiv(value, by), tirx.truncmod(value, by)
