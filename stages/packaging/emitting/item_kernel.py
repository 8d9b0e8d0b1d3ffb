"""Kernels that compute item by item; task t of n takes the items `[items * t / n, …)`.

An item is as much as is emitted at once: a row of an image, a block of channels, a few rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import prod

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.nodes import Buffer, Index, Var
from stages.packaging.emitting.addressing import slice_of
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.emitting.kernel import Kernel

Arguments = Mapping[Var | str, Buffer]
"""The buffers of a kernel, by parameter of its composite, or as SCRATCH."""
RowEmitter = Callable[[Arguments, Buffer, Index, Index], None]
"""Emits a row of the result, from buffers by parameter: its own buffer, which of N, which row."""
SCRATCH = "scratch"
"""Where items find their own memory among the buffers by parameter."""


def row_kernel(
    symbol: str,
    parameters: Sequence[Var],
    shape: Sequence[int],
    halo: StoredHalo,
    row: RowEmitter,
    dtype: str = "uint32",
) -> Kernel:
    """The kernel `symbol` of a result of words, `shape` [N, Hp, Wp, words].

    Task 0 writes its halo. Where that is polyphase, `row` says so too.
    """
    top, _, bottom, _ = halo.sides
    height = shape[1] - top - bottom

    def fill(result: Buffer) -> None:
        halo.fill(result, shape, dtype)

    def item(arguments: Arguments, result: Buffer, number: Index) -> None:
        row(arguments, result, tirx.truncdiv(number, height), number % height)

    first = fill if any(halo.sides) else None
    items = shape[0] * height
    return item_kernel(symbol, parameters, (prod(shape), dtype), items, item, first)


def item_kernel(
    symbol: str,
    parameters: Sequence[Var],
    result: tuple[int, str],
    items: int,
    item: Callable[[Arguments, Buffer, Index], None],
    first: Callable[[Buffer], None] | None = None,
    text: str = "",
    scratch: tuple[int, str] = (0, "int32"),
) -> Kernel:
    """The kernel `symbol` of a result of so many elements of a type.

    `item` emits one of `items`, from buffers by parameter, the result's buffer and its number; it
    may call what is in the LLVM IR `text`, and use the elements of `scratch`, which are not kept
    from one item to the next. Task 0 does what is to come `first`.
    """
    size, dtype = result
    room, room_dtype = scratch
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        arguments: dict[Var | str, Buffer] = {p: T.arg(str(p.name), _buffer(p)) for p in parameters}
        written = T.arg("o0", T.Buffer((size,), dtype))
        own = T.arg("scratch", T.Buffer((max(1, room),), room_dtype))  # no buffer is empty
        if room:
            arguments[SCRATCH] = own
        task = T.arg("task", tirx.Var("task", "int32"))
        tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))
        with T.attr(0, "pragma_import_llvm", text) if text else nullcontext():
            if first is not None:
                with T.If(task == 0), T.Then():
                    first(written)
            start, end = slice_of(items, task, tasks)
            begin = T.bind(start)
            with T.serial(0, T.bind(end - begin)) as index:
                item(arguments, written, T.bind(begin + index))
    return Kernel(builder.get(), room * np.dtype(room_dtype).itemsize, items)


def _buffer(parameter: Var) -> Buffer:
    dtype = str(storage_dtype(dtype_of(parameter.ty)))
    return T.Buffer((prod(shape_of(parameter.ty)),), dtype)
