"""From a maximum pool of single bits to one PrimFunc: OR of the packed words of a window.

A plane whose bits are set for level 0 takes AND instead. Windows may reach into the halo, where
level 0 never wins.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from stages.packaging.addressing import slice_of
from stages.packaging.composite import Composite
from stages.packaging.halo import fill_halo, fills_of
from stages.packaging.kernel import Kernel
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, is_op, shape_of


def is_bit_pool(composite: Composite) -> bool:
    """Whether a composite pools packed words."""
    return any(is_op(call, "relax.qnn.from_planes") for call in composite.calls.values())


def lower_bit_pool(composite: Composite, symbol: str) -> Kernel:
    """The kernel; items of work are output rows of all planes."""
    return _BitPool(composite).kernel(symbol)


class _BitPool:
    def __init__(self, composite: Composite) -> None:
        (self.parameter,), (self.output,) = composite.parameters, composite.outputs
        self.store = composite.store_of(self.output)
        self.pool = attributes(composite.main)
        self.origin = attributes(composite.calls[composite.main.args[0]])["origin"]
        _, self.height, self.width, _ = shape_of(composite.main.ty)
        self.planes, self.input_height, self.input_width, self.words = shape_of(self.parameter.ty)

    def kernel(self, symbol: str) -> Kernel:
        """Task t of n takes rows `[rows * t / n, rows * (t + 1) / n)`."""
        rows, shape = self.planes * self.height, shape_of(self.output.ty)
        with IRBuilder() as builder, T.prim_func():
            T.func_name(symbol)
            T.func_attr({"global_symbol": symbol})
            size = prod(shape_of(self.parameter.ty))
            self.data = T.arg(str(self.parameter.name), T.Buffer((size,), "uint32"))
            result = T.arg("o0", T.Buffer((prod(shape),), "uint32"))
            T.arg("scratch", T.Buffer((1,), "int32"))
            task = T.arg("task", tirx.Var("task", "int32"))
            tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))
            with T.If(task == 0), T.Then():
                attrs = attributes(self.store)
                fill_halo(result, shape, "uint32", attrs["halo"], fills_of(attrs))
            first, end = slice_of(rows, task, tasks)
            begin = T.bind(first)
            with T.serial(0, T.bind(end - begin)) as index:
                row = T.bind(begin + index)
                self._row(result, tirx.truncdiv(row, self.height), row % self.height)
        return Kernel(builder.get(), 0, rows)

    def _row(self, result: Any, plane: Any, y: Any) -> None:
        """One row of a plane."""
        top, left, _, _ = attributes(self.store)["halo"]
        _, height, width, words = shape_of(self.output.ty)
        line = T.bind((plane * height + top + y) * width + left)
        source = T.bind(self._first(plane, y))
        with T.serial(0, self.width) as x, T.serial(0, words) as word:
            T.buffer_store(result, self._word(plane, source, x, word), [(line + x) * words + word])

    def _first(self, plane: Any, y: Any) -> Any:
        """The pixel at the top left of a row's first window."""
        top, left = (
            origin - before
            for origin, before in zip(self.origin, self.pool["padding"][:2], strict=True)
        )
        row = plane * self.input_height + y * self.pool["strides"][0] + top
        return row * self.input_width + left

    def _word(self, plane: Any, source: Any, x: Any, word: Any) -> Any:
        """The words of a window, combined."""
        rows, columns = self.pool["kernel"]
        first = source + x * self.pool["strides"][1]
        taps = [
            self.data[(first + dy * self.input_width + dx) * self.words + word]
            for dy in range(rows)
            for dx in range(columns)
        ]
        ones = [bool(table & 1) for table in stored_of(attributes(self.store)).planes]
        either, both = reduce(lambda a, b: a | b, taps), reduce(lambda a, b: a & b, taps)
        if len(set(ones)) == 1:
            return both if ones[0] else either
        return tirx.if_then_else(plane == ones.index(True), both, either)
