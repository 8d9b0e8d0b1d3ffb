"""Winograd's transforms in LLVM IR, some channels at a time, and the kernel of a whole picture's.

What is computed is read from the same lines as everywhere (`stages.qnn.winograd`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from hw.isa import Vector, isa_of
from hw.profile import Hardware
from stages.codegen import Text
from stages.packaging.addressing import widths
from stages.packaging.kernel import Kernel
from stages.packaging.lower import divided
from stages.packaging.rows import line_kernel
from stages.qnn.composites import calls_in
from stages.qnn.llvm import FunctionText
from stages.qnn.registry import attributes, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.winograd import Transform, transform_for

NAME = "bk_pixels"
"""What transforms pixels of some channels is called so, and then their number."""


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
        return self._written("mul", self.kind.splat(factor)) if factor != 1 else self


def pixels_text(
    transform: Transform, name: str, lanes: int, row: int, pixel: int, product: int
) -> Text:
    """`void name(data, tiles)`: so many channels of a tile, uint8 to int16.

    `row` and `pixel` are bytes from one of the picture to the next, `product` those from a product
    of tiles to the next one.
    """
    code, wide = FunctionText(), Vector(lanes, 16)
    square = []
    for number in range(transform.products):
        y, x = divmod(number, transform.pixels)
        byte = code.load(f"<{lanes} x i8>", "%data", 1, y * row + x * pixel)
        level = code.let(f"zext <{lanes} x i8> {byte} to {wide.llvm}")
        square.append(_Lanes(code, wide, level))
    for number, value in enumerate(transform.of_data(square)):
        code.store(wide.llvm, value.name, "%tiles", 2, number * product)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %data", "ptr noalias %tiles"]), []


def sums_text(transform: Transform, name: str, lanes: int, product: int) -> Text:
    """`void name(products, sums)`: so many channels of a tile, int32 to int32 [16 or 4][32].

    `product` is bytes from one of its products to the next one.
    """
    code, word = FunctionText(), Vector(lanes, 32)
    square = [
        _Lanes(code, word, code.load(word.llvm, "%products", 4, number * product))
        for number in range(transform.products)
    ]
    for number, multiple in enumerate(transform.of_products(square)):
        value = multiple * transform.inverse >> transform.shift_of(number)
        code.store(word.llvm, value.name, "%sums", 4, number * BLOCK * 4)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %products", "ptr noalias %sums"]), []


def lower_tiles(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite that transforms pictures; items of work are rows of
    tiles."""
    (parameter,), (call,) = function.params, calls_in(function)
    *pictures, height, width, channels = shape_of(parameter.ty)
    top, left = attributes(call)["origin"]
    transform = transform_for(attributes(call)["strides"])
    down, across = map(transform.tiles_of, attributes(call)["output"])
    step = transform.outputs * transform.stride
    _, product = shape_of(call.ty)
    parts = list(widths(channels, 2 * isa_of(hardware).lanes))
    text = "\n".join(
        pixels_text(transform, f"{NAME}{count}", count, width * channels, channels, 2 * product)[0]
        for count, _ in parts
    )

    def line(arguments: Mapping[Any, Any], tiles: Any, number: Any) -> None:
        data = arguments[parameter]
        picture, y = divided(number, down)
        row = picture * height + y * step + top
        first = T.bind((row * width + left) * channels)
        with T.serial(0, across) as x:
            pixel = T.bind(first + x * (step * channels))
            tile = T.bind((number * across + x) * channels)
            start = 0
            for count, times in parts:
                with T.serial(0, times) as part:
                    at = start + part * count
                    pointers = T.address_of(data[pixel + at]), T.address_of(tiles[tile + at])
                    T.evaluate(T.call_extern("void", f"{NAME}{count}", *pointers))
                start += count * times

    lines = down * (pictures[0] if pictures else 1)
    result = transform.products * product, "int16"
    return line_kernel(symbol, [parameter], result, lines, line, text=text)
