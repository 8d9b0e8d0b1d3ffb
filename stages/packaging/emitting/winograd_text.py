"""Winograd's transforms in LLVM IR, some channels at a time.

What is computed is read from the formulas in `stages.kernels.winograd_transforms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.codegen import Text
from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK
from stages.kernels.winograd_transforms import Transform


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

    `row` and `pixel` are bytes from one of the image to the next, `product` those from a product
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
