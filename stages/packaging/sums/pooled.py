"""Pooling over bytes in LLVM IR: the window of one pixel and 32 channels into int32 sums."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, shape_of
from stages.dialect.zero_point import AT_ZERO, ZeroPoint
from stages.graph.composites import POOL_KINDS
from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.nodes import Index
from stages.packaging.sums.parts import Composition, Sums

INTS, BYTES = f"<{BLOCK} x i32>", f"<{BLOCK} x i8>"
LARGEST = f"@llvm.umax.v{BLOCK}i8"


def pool_text(
    name: str, kind: str, zero_point: ZeroPoint, row_bytes: int, pixel_bytes: int
) -> tuple[str, list[str]]:
    """`void name(data, sums, i32 h, i32 w)` over the h x w valid positions from `data`.

    `kind` is `max` (of unsigned levels) or `sum` (of levels minus the zero point). Indices have 32
    bits: out of wider ones LLVM makes 64-bit divisions, which 32-bit ARM leaves to a library.
    """
    code = FunctionText()
    splat = "<" + ", ".join([f"i32 {zero_point.whole}"] * BLOCK) + ">"
    carried = BYTES if kind == "max" else INTS
    if kind == "max":
        code.declarations[f"declare {BYTES} {LARGEST}({BYTES}, {BYTES})"] = None

    def tap(pointer: str, value: str) -> str:
        loaded = code.load(BYTES, pointer, 1)
        if kind == "max":
            return code.let(f"call {BYTES} {LARGEST}({BYTES} {value}, {BYTES} {loaded})")
        level = code.let(f"zext {BYTES} {loaded} to {INTS}")
        if zero_point:
            level = code.let(f"sub {INTS} {level}, {splat}")
        return code.let(f"add {INTS} {value}, {level}")

    def row(y: str, values: list[str]) -> list[str]:
        start = code.pointer("%data", code.let(f"mul nuw nsw i32 {y}, {row_bytes}"), "i32")

        def pixel(x: str, values: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i32 {x}, {pixel_bytes}")
            return [tap(code.pointer(start, offset, "i32"), values[0])]

        return code.loop("%w", [(carried, values[0])], pixel, "i32")

    (result,) = code.loop("%h", [(carried, "zeroinitializer")], row, "i32")
    if kind == "max":
        result = code.let(f"zext {BYTES} {result} to {INTS}")
    code.store(INTS, result, "%sums", 4)
    code.do("ret void")
    parameters = ["ptr noalias readonly %data", "ptr noalias %sums", "i32 %h", "i32 %w"]
    return code.function(name, parameters), list(code.declarations)


class Pooled(Sums):
    """Maximum or sum over the valid part of a window of bytes."""

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        self.name = f"{kernel.symbol}_pool"
        self.source = kernel.composite.calls[kernel.composite.main.args[0]]

    def include(self, bodies: Table) -> None:
        """Include a pool over this edge's strides."""
        del bodies
        _, width, channels = shape_of(self.source.args[0].ty)
        main = self.kernel.composite.main
        kind, zero_point = POOL_KINDS[main.op.name], attributes(main).get("zero_point", AT_ZERO)
        self.kernel.include(*pool_text(self.name, kind, zero_point, width * channels, channels))

    def start(self, block: Index, run: Index, tile: Index) -> None:
        """Emit what pools the levels of one pixel into scratch."""
        kernel = self.kernel
        attrs, source = attributes(kernel.composite.main), attributes(self.source)
        _, width, channels = shape_of(self.source.args[0].ty)
        starts, extents = [], []
        for axis, position in enumerate((run, kernel.work.column_of(tile))):
            start = position * attrs["strides"][axis] - attrs["padding"][axis]
            first = T.bind(tirx.max(start, 0))
            last = tirx.min(start + attrs["kernel"][axis], source["size"][axis])
            starts.append(source["origin"][axis] + first)
            extents.append(last - first)
        data = kernel.arguments[self.source.args[0].name]
        pixel = data[(starts[0] * width + starts[1]) * channels + block * BLOCK]
        pointers = T.address_of(pixel), T.address_of(kernel.scratch[0])
        T.evaluate(T.call_extern("void", self.name, *pointers, *extents))
