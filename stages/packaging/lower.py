"""From a packed composite to one PrimFunc: loops over its slice of work around SIMD bodies.

A kernel's work items are (block of 32 channels, output row); task t of n takes items
`[items * t / n, items * (t + 1) / n)`. Nothing is allocated: sums of the current tile live in the
scratch that the caller passes. SIMD text comes in by `pragma_import_llvm` and is inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.profile import Hardware
from stages.kinds import Table
from stages.packaging.epilogue import Epilogue
from stages.packaging.pool import pool_text
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.packed import class_count, parse_signature
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.signature import BLOCK

POOLS = {"relax.qnn.max_pool2d": "max", "relax.qnn.sum_pool2d": "sum"}


@dataclass(frozen=True)
class Kernel:
    """A lowered composite: its PrimFunc, scratch per task, and how many tasks it can use."""

    function: Any
    scratch_bytes: int
    max_tasks: int


def lower(function: Any, symbol: str, schedule: Table, bodies: Table, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a packed composite."""
    return _Lowering(function, symbol, schedule, bodies, hardware).run()


class _Lowering:
    def __init__(
        self, function: Any, symbol: str, schedule: Table, bodies: Table, hardware: Hardware
    ) -> None:
        self.function, self.symbol, self.schedule = function, symbol, schedule
        self.bodies, self.hardware = bodies, hardware
        self.bindings = bindings_of(function)
        self.outputs = outputs_of(function)
        self.inner = {b.var: b.value for b in self.bindings if b.var in self.outputs}
        self.calls = {b.var: b.value for b in self.bindings if isinstance(b.value, Call)}
        self.main = next(
            (c for c in self.calls.values() if c.op.name in ("relax.qnn.packed_conv2d", *POOLS)),
            None,
        )
        self.float_input = self.main is None and dtype_of(function.params[0].ty) == "float32"
        self.texts: dict[str, None] = {}
        self.arguments: dict[str, Any] = {}
        self.height, self.width, self.channels = self._extent()

    def run(self) -> Kernel:
        self.rows = 1
        if self.main is not None and is_op(self.main, "relax.qnn.packed_conv2d"):
            self.signature = parse_signature(attributes(self.main)["signature"])
            self.rows = self.signature.rows
        blocks = -(-self.channels // BLOCK)
        items = blocks * self.height
        self._import_texts()
        scratch = self.rows * BLOCK
        with IRBuilder() as builder, T.prim_func():
            T.func_name(self.symbol)
            T.func_attr({"global_symbol": self.symbol})
            self._declare(scratch)
            with T.attr(0, "pragma_import_llvm", "\n".join(self.texts)):
                self._fill_halos()
                first = tirx.truncdiv(items * self.task, self.tasks)
                last = tirx.truncdiv(items * (self.task + 1), self.tasks)
                begin = T.bind(first)
                count = T.bind(last - begin)
                with T.serial(0, count) as item:
                    self._item(begin + item, blocks)
        return Kernel(builder.get(), scratch * 4, items)

    # -- what there is -----------------------------------------------------------------------

    def _extent(self) -> tuple[int, int, int]:
        """Height, width and padded channels of what the epilogue runs over."""
        if self.main is not None and is_op(self.main, "relax.qnn.packed_conv2d"):
            _, height, width, channels = shape_of(self.main.ty)
            return height, width, channels
        for variable, call in self.calls.items():
            name = str(call.op.name)
            if name in POOLS or (self.main is None and name == "relax.qnn.from_bytes"):
                _, height, width, channels = shape_of(variable.ty)
                return height, width, channels
        source = next(
            call.args[0] for call in self.calls.values() if call.op.name.startswith("relax.qnn.")
        )
        shape = shape_of(source.ty)
        return (1, 1, shape[1]) if len(shape) == 2 else (shape[1], shape[2], shape[3])

    def _import_texts(self) -> None:
        self.epilogue_name = f"{self.symbol}_epilogue"
        epilogue = Epilogue(self.function, self.hardware.architecture, self.float_input)
        self._import(*epilogue.text(self.epilogue_name))
        if self.main is None:
            return
        if is_op(self.main, "relax.qnn.packed_conv2d"):
            body = self.bodies[self.signature.name]
            self._import(body["text"], body["declarations"])
            return
        self.pool_name = f"{self.symbol}_pool"
        _, width, channels = self._stored_shape(self.main.args[0])
        zero_point = attributes(self.main).get("zero_point", 0)
        kind = POOLS[self.main.op.name]
        text = pool_text(self.pool_name, kind, zero_point, width * channels, channels)
        self._import(*text)

    def _import(self, text: str, declarations: Sequence[str]) -> None:
        for declaration in declarations:
            self.texts[str(declaration)] = None
        self.texts[str(text)] = None

    def _stored_shape(self, variable: Any) -> tuple[int, ...]:
        """Shape of the edge behind a `from_bytes`, or of the edge itself."""
        call = self.calls.get(variable)
        return shape_of(call.args[0].ty if call is not None else variable.ty)

    def _declare(self, scratch: int) -> None:
        for parameter in self.function.params:
            buffer = T.Buffer((prod(shape_of(parameter.ty)),), dtype_of(parameter.ty))
            self.arguments[parameter.name] = T.arg(str(parameter.name), buffer)
        self.results = []
        for number, output in enumerate(self.outputs):
            buffer = T.Buffer((prod(shape_of(output.ty)),), dtype_of(output.ty))
            self.results.append(T.arg(f"o{number}", buffer))
        self.scratch = T.arg("scratch", T.Buffer((scratch,), "int32"))
        self.task = T.arg("task", tirx.Var("task", "int32"))
        self.tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))

    # -- work --------------------------------------------------------------------------------

    def _item(self, item: Any, blocks: int) -> None:
        if self.schedule["order"] == "rows_inner":
            block, y = tirx.truncdiv(item, self.height), tirx.truncmod(item, self.height)
        else:
            block, y = tirx.truncmod(item, blocks), tirx.truncdiv(item, blocks)
        block, y = T.bind(block), T.bind(y)
        if self.rows > 1 or (self.main is not None and is_op(self.main, "relax.qnn.packed_conv2d")):
            with T.serial(0, -(-self.width // self.rows)) as tile:
                # The last tile overlaps its neighbour: the same pixels are written twice, alike.
                x = T.bind(tirx.min(tile * self.rows, self.width - self.rows))
                self._convolve(block, y, x)
                with T.serial(0, self.rows) as m:
                    self._pixel(block, y, x + m, m * BLOCK)
            return
        with T.serial(0, self.width) as x:
            if self.main is not None:
                self._pool(block, y, x)
            elif self.float_input:
                self._gather(block, y, x)
            self._pixel(block, y, x, 0)

    def _convolve(self, block: Any, y: Any, x: Any) -> None:
        """Sums of the tile's pixels and the block's channels into scratch."""
        attrs = attributes(self.main)
        data, weights, _ = self.main.args
        *_, height, width, words = shape_of(data.ty)
        word_bytes = 4 if dtype_of(data.ty) == "uint32" else 1
        origin, strides, window = attrs["origin"], attrs["strides"], attrs["window"]
        row = (origin[0] + y * strides[0]) * width
        start = (row + origin[1] + x * strides[1]) * words
        tiles = BLOCK // self.signature.channels
        block_words = prod(shape_of(weights.ty)[1:])
        for tile in range(tiles):
            T.evaluate(
                T.call_extern(
                    "void",
                    self.signature.name,
                    T.address_of(self.arguments[data.name][start]),
                    T.address_of(
                        self.arguments[weights.name][(block * tiles + tile) * block_words]
                    ),
                    T.address_of(self.scratch[tile * self.signature.channels]),
                    *(
                        T.int64(value)
                        for value in (
                            window[0],
                            window[1] * words * word_bytes // 4,
                            width * words * word_bytes,
                            strides[1] * words * word_bytes,
                            height * width * words * word_bytes,
                        )
                    ),
                )
            )

    def _pool(self, block: Any, y: Any, x: Any) -> None:
        """Maximum or sum over the valid part of a window into scratch."""
        attrs = attributes(self.main)
        source = self.calls[self.main.args[0]]
        origin, size = attributes(source)["origin"], attributes(source)["size"]
        _, width, channels = shape_of(source.args[0].ty)
        starts, extents = [], []
        for axis, position in enumerate((y, x)):
            start = position * attrs["strides"][axis] - attrs["padding"][axis]
            low = T.bind(tirx.max(start, 0))
            high = tirx.min(start + attrs["kernel"][axis], size[axis])
            starts.append(low)
            extents.append(T.Cast("int64", high - low))
        pixel = (origin[0] + starts[0]) * width + origin[1] + starts[1]
        data = self.arguments[source.args[0].name]
        T.evaluate(
            T.call_extern(
                "void",
                self.pool_name,
                T.address_of(data[pixel * channels + block * BLOCK]),
                T.address_of(self.scratch[0]),
                *extents,
            )
        )

    def _gather(self, block: Any, y: Any, x: Any) -> None:
        """A float input's channels of one pixel into scratch, zero behind the last."""
        parameter = self.function.params[0]
        data = self.arguments[parameter.name]
        shape = shape_of(parameter.ty)
        channel_first = any(is_op(c, "relax.permute_dims") for c in self.calls.values())
        channels = shape[1] if channel_first else prod(shape) // (self.height * self.width)
        with T.serial(0, BLOCK) as lane:
            c = block * BLOCK + lane
            if channel_first:
                index = (c * self.height + y) * self.width + x
            else:
                index = (y * self.width + x) * channels + c
            inside = c < channels
            value = T.if_then_else(inside, data[index], T.float32(0))
            T.buffer_store(self.scratch, T.reinterpret("int32", value), [lane])

    def _pixel(self, block: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and block, then what it left for a float output."""
        pointers = [
            T.address_of(self.arguments[p.name][self._offset(p, block, y, x)])
            for p in self.function.params
        ]
        targets = [
            T.address_of(result[self._target(output, block, y, x)])
            for result, output in zip(self.results, self.outputs, strict=True)
        ]
        T.evaluate(
            T.call_extern(
                "void", self.epilogue_name, T.address_of(self.scratch[sums]), *pointers, *targets
            )
        )
        for result, output in zip(self.results, self.outputs, strict=True):
            if dtype_of(output.ty) == "float32":
                shape = shape_of(output.ty)
                with T.serial(0, BLOCK) as lane:
                    c = block * BLOCK + lane
                    with T.If(c < shape[1]), T.Then():
                        value = T.reinterpret("float32", self.scratch[sums + lane])
                        index = (c * self.height + y) * self.width + x
                        T.buffer_store(result, value, [index])

    def _offset(self, parameter: Any, block: Any, y: Any, x: Any) -> Any:
        """Where a parameter's pointer stands for the epilogue of one pixel and block."""
        for call in self.calls.values():
            if not any(parameter.same_as(argument) for argument in call.args):
                continue
            name = str(call.op.name)
            if name == "relax.qnn.from_bytes":
                origin = attributes(call)["origin"]
                _, width, channels = shape_of(parameter.ty)
                pixel = (origin[0] + y) * width + origin[1] + x
                return (
                    0
                    if self.main is not None and name_of_pool(self.main)
                    else (pixel * channels + block * BLOCK)
                )
            if name == "relax.qnn.packed_conv2d":
                if parameter.same_as(call.args[2]):
                    border_class = self._border_class(y, x)
                    return border_class * shape_of(parameter.ty)[1] + block * BLOCK
                return 0
        shape = shape_of(parameter.ty)
        return block * BLOCK if shape[-1] % BLOCK == 0 and len(shape) <= 2 else 0

    def _border_class(self, y: Any, x: Any) -> Any:
        top, left, bottom, right = attributes(self.main)["border"]
        across = class_count(self.width, left, right)
        down = border_expression(y, self.height, top, bottom)
        return down * across + border_expression(x, self.width, left, right)

    def _target(self, output: Any, block: Any, y: Any, x: Any) -> Any:
        """Where an output's pointer stands for one pixel and block."""
        call = self.calls[self.inner[output]]
        if dtype_of(output.ty) == "float32":
            return 0
        top, left, _, _ = attributes(call)["halo"]
        *_, width, channels = shape_of(output.ty)
        pixel = (top + y) * width + left + x
        step = 1 if dtype_of(output.ty) == "uint32" else BLOCK
        return pixel * channels + block * step

    def _fill_halos(self) -> None:
        """Task 0 writes the rows and columns around every output; no other task touches them."""
        halos = [
            (result, output, attributes(self.calls[self.inner[output]]))
            for result, output in zip(self.results, self.outputs, strict=True)
            if dtype_of(output.ty) != "float32"
        ]
        if not any(any(attrs["halo"]) for _, _, attrs in halos):
            return
        with T.If(self.task == 0), T.Then():
            for result, output, attrs in halos:
                self._fill_halo(result, output, attrs)

    def _fill_halo(self, result: Any, output: Any, attrs: dict[str, Any]) -> None:
        planes, height, width, channels = (1, *shape_of(output.ty))[-4:]
        top, left, bottom, right = attrs["halo"]
        dtype = dtype_of(output.ty)
        fill = tirx.const(attrs.get("fill", 0), dtype)
        inside = height - top - bottom

        def run(start: Any, count: int) -> None:
            if count:
                with T.serial(0, count) as index:
                    T.buffer_store(result, fill, [start + index])

        with T.serial(0, planes) as plane:
            base = plane * height * width * channels
            run(base, top * width * channels)
            run(base + (height - bottom) * width * channels, bottom * width * channels)
            if left or right:
                with T.serial(0, inside) as row:
                    start = base + (top + row) * width * channels
                    run(start, left * channels)
                    run(start + (width - right) * channels, right * channels)


def name_of_pool(call: Any) -> str | None:
    """`max` or `sum` for a pool, None for anything else."""
    return POOLS.get(str(call.op.name))


def border_expression(position: Any, size: int, before: int, after: int) -> Any:
    """`stages.qnn.packed.border_classes` for one position, as an expression."""
    if not before and not after:
        return 0
    if size < before + after + 1:
        return position
    return tirx.min(position, before) + tirx.max(0, position - (size - 1 - after))
