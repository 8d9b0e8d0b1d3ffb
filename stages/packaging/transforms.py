"""Winograd's transforms in LLVM IR, some channels at a time, and the kernel of a whole picture's.

What is computed is read from the same lines as everywhere (`stages.kernels.winograd_transforms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import Text
from stages.dialect.calls import attributes, dtype_of, shape_of
from stages.graph.composites import calls_in
from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK
from stages.kernels.winograd_transforms import Transform, transform_for
from stages.packaging.addressing import divided, widths
from stages.packaging.kernel import Kernel
from stages.packaging.rows import line_kernel

NAME = "bk_pixels"
"""What transforms pixels of some channels is called so, and then their number."""


@dataclass(frozen=True)
class _Lanes:
    """A register whose operations are written down: of integers, or of floats, whose products and
    sums may be one operation."""

    code: FunctionText
    kind: str
    name: str
    lanes: int

    @property
    def _is_float(self) -> bool:
        return self.kind.endswith("float>")

    def _written(self, op: str, other: str) -> _Lanes:
        op = f"f{op} contract" if self._is_float else op
        name = self.code.let(f"{op} {self.kind} {self.name}, {other}")
        return _Lanes(self.code, self.kind, name, self.lanes)

    def _splat(self, number: float) -> str:
        element = self.kind.strip("<>").split(" x ")[1]
        value = float(number) if self._is_float else int(number)
        return "<" + ", ".join([f"{element} {value}"] * self.lanes) + ">"

    def __add__(self, other: _Lanes) -> _Lanes:
        return self._written("add", other.name)

    def __sub__(self, other: _Lanes) -> _Lanes:
        return self._written("sub", other.name)

    def __mul__(self, factor: float) -> _Lanes:
        return self._written("mul", self._splat(factor)) if factor != 1 else self

    def __rshift__(self, count: int) -> _Lanes:
        return self._written("ashr", self._splat(count)) if count else self


def pixels_text(
    transform: Transform, name: str, lanes: int, row: int, pixel: int, product: int, is_float: bool
) -> Text:
    """`void name(data, tiles)`: so many channels of a tile, uint8 to int16 or float32 to float32.

    `row` and `pixel` are bytes from one of the picture to the next, `product` those from a product
    of tiles to the next one.
    """
    code = FunctionText()
    kind = f"<{lanes} x {'float' if is_float else 'i16'}>"
    square = []
    for number in range(transform.products):
        y, x = divmod(number, transform.pixels)
        place = y * row + x * pixel
        if is_float:
            level = code.load(kind, "%data", 4, place)
        else:
            byte = code.load(f"<{lanes} x i8>", "%data", 1, place)
            level = code.let(f"zext <{lanes} x i8> {byte} to {kind}")
        square.append(_Lanes(code, kind, level, lanes))
    for number, value in enumerate(transform.of_data(square)):
        code.store(kind, value.name, "%tiles", 4 if is_float else 2, number * product)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %data", "ptr noalias %tiles"]), []


def sums_text(transform: Transform, name: str, lanes: int, product: int, is_float: bool) -> Text:
    """`void name(products, sums)`: so many channels of a tile, int32 to int32 [16 or 4][32], or
    float32 to float32.

    `product` is bytes from one of its products to the next one.
    """
    code, kind = FunctionText(), f"<{lanes} x {'float' if is_float else 'i32'}>"
    square = [
        _Lanes(code, kind, code.load(kind, "%products", 4, number * product), lanes)
        for number in range(transform.products)
    ]
    for number, multiple in enumerate(transform.of_products(square)):
        shift = transform.shift_of(number)
        value = multiple * 0.5**shift if is_float else multiple * transform.inverse >> shift
        code.store(kind, value.name, "%sums", 4, number * BLOCK * 4)
    code.do("ret void")
    return code.function(name, ["ptr noalias readonly %products", "ptr noalias %sums"]), []


def lower_tiles(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite that transforms pictures; items of work are rows of
    tiles."""
    (parameter,), (call,) = function.params, calls_in(function)
    *pictures, height, width, channels = shape_of(parameter.ty)
    attrs = attributes(call)
    top, left = attrs["origin"]
    transform = transform_for(attrs["strides"], attrs["tile"])
    down, across = map(transform.tiles_of, attrs["output"])
    step = transform.outputs * transform.stride
    _, product = shape_of(call.ty)
    dtype = dtype_of(call.ty)
    is_float, size = dtype == "float32", np.dtype(dtype).itemsize
    pixel = channels * (size if is_float else 1)
    parts = list(widths(channels, isa_of(hardware).bytes // size))
    text = "\n".join(
        pixels_text(
            transform, f"{NAME}{count}", count, width * pixel, pixel, size * product, is_float
        )[0]
        for count, _ in parts
    )

    def line(arguments: Mapping[Any, Any], tiles: Any, number: Any) -> None:
        data = arguments[parameter]
        picture, y = divided(number, down)
        row = picture * height + y * step + top
        first = T.bind((row * width + left) * channels)
        with T.serial(0, across) as x:
            window = T.bind(first + x * (step * channels))
            tile = T.bind((number * across + x) * channels)
            start = 0
            for count, times in parts:
                with T.serial(0, times) as part:
                    at = start + part * count
                    pointers = T.address_of(data[window + at]), T.address_of(tiles[tile + at])
                    T.evaluate(T.call_extern("void", f"{NAME}{count}", *pointers))
                start += count * times

    lines = down * (pictures[0] if pictures else 1)
    result = transform.products * product, dtype
    return line_kernel(symbol, [parameter], result, lines, line, text=text)
