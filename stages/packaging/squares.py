"""Winograd's transforms in LLVM IR, some channels at a time, and the kernel of a whole picture's.

What is computed is read from the same lines as everywhere (`stages.qnn.winograd`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import Vector, isa_of
from hw.profile import Hardware
from stages.codegen import Text
from stages.packaging.addressing import slice_of
from stages.packaging.kernel import Kernel
from stages.packaging.lower import divided
from stages.packaging.products import widths
from stages.qnn.composites import calls_in
from stages.qnn.llvm import FunctionText
from stages.qnn.registry import attributes, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.winograd import (
    NINTH,
    OUTPUTS,
    PIXELS,
    PRODUCTS,
    both_ways,
    data_column,
    shift_of,
    sums_column,
    tiles_of,
)


@dataclass(frozen=True)
class _Lanes:
    """A register whose operations are written down."""

    code: FunctionText
    kind: Vector
    name: str

    def _written(self, op: str, other: str) -> _Lanes:
        return _Lanes(
            self.code, self.kind, self.code.let(f"{op} {self.kind.llvm} {self.name}, {other}")
        )

    def __add__(self, other: _Lanes) -> _Lanes:
        return self._written("add", other.name)

    def __sub__(self, other: _Lanes) -> _Lanes:
        return self._written("sub", other.name)

    def __lshift__(self, count: int) -> _Lanes:
        return self._written("shl", self.kind.splat(count))

    def __rshift__(self, count: int) -> _Lanes:
        return self._written("ashr", self.kind.splat(count)) if count else self

    def __mul__(self, factor: int) -> _Lanes:
        return self._written("mul", self.kind.splat(factor))


def pixels_text(name: str, lanes: int, row: int, pixel: int, product: int) -> Text:
    """`void name(data, tiles)`: so many channels of a tile, uint8 to int16.

    `row` and `pixel` are bytes from one of the picture to the next, `product` those from a product
    of tiles to the next one.
    """
    code, wide = FunctionText(), Vector(lanes, 16)
    square = []
    for number in range(PRODUCTS):
        y, x = divmod(number, PIXELS)
        byte = code.load(f"<{lanes} x i8>", "%data", 1, y * row + x * pixel)
        level = code.let(f"zext <{lanes} x i8> {byte} to {wide.llvm}")
        square.append(_Lanes(code, wide, level))
    for number, value in enumerate(both_ways(data_column, square, PIXELS)):
        code.store(wide.llvm, value.name, "%tiles", 2, number * product)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %data", "ptr noalias %tiles"]), []


def sums_text(name: str, lanes: int, product: int) -> Text:
    """`void name(products, sums)`: so many channels of a tile, int32 to int32 [16][32].

    `product` is bytes from one of its products to the next one.
    """
    code, word = FunctionText(), Vector(lanes, 32)
    square = [
        _Lanes(code, word, code.load(word.llvm, "%products", 4, number * product))
        for number in range(PRODUCTS)
    ]
    for number, multiple in enumerate(both_ways(sums_column, square, OUTPUTS)):
        value = multiple * NINTH >> shift_of(number)
        code.store(word.llvm, value.name, "%sums", 4, number * BLOCK * 4)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %products", "ptr noalias %sums"]), []


def lower_tiles(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite that transforms pictures; items of work are rows of
    tiles."""
    (parameter,) = function.params
    *pictures, height, width, channels = shape_of(parameter.ty)
    (call,) = calls_in(function)
    top, left = attributes(call)["origin"]
    down, across = map(tiles_of, attributes(call)["output"])
    rows = down * (pictures[0] if pictures else 1)
    _, product = shape_of(function.ret_ty)
    lanes = 2 * isa_of(hardware).lanes
    parts = list(widths(channels, lanes))
    texts = [
        pixels_text(f"bk_pixels{count}", count, width * channels, channels, 2 * product)[0]
        for count, _ in parts
    ]

    def line(data: Any, tiles: Any, number: Any) -> None:
        picture, y = divided(number, down)
        row = picture * height + y * OUTPUTS + top
        first = T.bind((row * width + left) * channels)
        with T.serial(0, across) as x:
            pixel = T.bind(first + x * (OUTPUTS * channels))
            tile = T.bind((number * across + x) * channels)
            start = 0
            for count, times in parts:
                with T.serial(0, times) as part:
                    at = start + part * count
                    pointers = T.address_of(data[pixel + at]), T.address_of(tiles[tile + at])
                    T.evaluate(T.call_extern("void", f"bk_pixels{count}", *pointers))
                start += count * times

    sizes = (rows // down * height * width * channels, PRODUCTS * product)
    return Kernel(_by_lines(symbol, sizes, rows, "\n".join(texts), line), 0, rows)


def _by_lines(
    symbol: str, sizes: Sequence[int], lines: int, text: str, line: Callable[..., None]
) -> Any:
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        data = T.arg("p0", T.Buffer((sizes[0],), "uint8"))
        tiles = T.arg("o0", T.Buffer((sizes[1],), "int16"))
        T.arg("scratch", T.Buffer((1,), "int32"))
        task = T.arg("task", tirx.Var("task", "int32"))
        tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))
        with T.attr(0, "pragma_import_llvm", text):
            first, end = slice_of(lines, task, tasks)
            begin = T.bind(first)
            with T.serial(0, T.bind(end - begin)) as index:
                line(data, tiles, T.bind(begin + index))
    return builder.get()
