"""From a packed composite to one PrimFunc: loops over its slice of work around SIMD bodies.

A kernel's work items are (block of 32 channels, output row). Where the inner loop goes through
rows, of all or of a row block, tasks have parts of a `Grid`; else task t of n takes items
`[items * t / n, items * (t + 1) / n)`, numbered row by row. Nothing is allocated: sums of the
current tile live in the scratch that the caller passes. SIMD text comes in by `pragma_import_llvm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.kinds import Table
from stages.packaging.addressing import output_offset, parameter_offset, slice_of
from stages.packaging.composite import POOLS, Composite
from stages.packaging.epilogue import Epilogue
from stages.packaging.grid import Grid, Part
from stages.packaging.halo import fill_halo, fills_of
from stages.packaging.kernel import TASKS, TASKS_OF_TILES, Helper, Kernel
from stages.packaging.pool import pool_text
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype
from stages.qnn.signature import BLOCK


class Lowering:
    """A composite without a main operator; subclasses put sums into scratch first."""

    rows = 1
    """Neighbouring output pixels whose sums are computed together."""
    uses_tiles = False
    """Whether the sums are computed in tiles, whose registers have a shape."""
    sums_dtype = "int32"
    """Type of the sums in scratch."""

    scratch: Any = None
    """Where sums are."""
    item: Any
    """Work items of the task that are done."""

    def __init__(
        self, composite: Composite, symbol: str, schedule: Table, bodies: Table, hardware: Hardware
    ) -> None:
        self.composite, self.symbol, self.schedule = composite, symbol, schedule
        self.hardware, self.isa = hardware, isa_of(hardware)
        self.height, self.width, self.channels = composite.extent
        self.lines = composite.pictures * self.height
        """Rows of all pictures of a batch."""
        self.blocks = -(-self.channels // BLOCK)
        self.epilogue = f"{symbol}_epilogue"
        self.pixels = composite.pixels_per_block
        self.texts: dict[str, None] = {}
        self.helpers: list[Helper] = []
        self.include_bodies(bodies)
        self.include_epilogue()

    def include_epilogue(self) -> None:
        """Include the text of what follows the sums."""
        text = Epilogue(
            self.composite.function,
            self.hardware.architecture,
            self.composite.reads_floats,
            self.pixels,
            self.isa.lanes,
            self.begins,
        )
        self.include(*text.text(self.epilogue))

    def include_bodies(self, bodies: Table) -> None:
        """Include the text of what computes the sums."""

    @property
    def begins(self) -> bool:
        """Whether the bias is in the sums already, so that nobody has to add it."""
        return False

    @property
    def runs(self) -> int:
        """Work items of a block."""
        return self.lines

    @property
    def runs_together(self) -> int:
        """Work items of a block in a row block, all if the schedule has none."""
        rows = self.schedule.get("rows", self.lines)
        return max(1, min(self.runs, rows * self.runs // self.lines))

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return -(-self.width // (self.rows * self.pixels))

    def line_of(self, y: Any) -> tuple[Any, Any]:
        """Picture of a batch, and row in it, of a row among all of them."""
        if self.lines == self.height:
            return 0, y
        return divided(y, self.height)

    def start(self, block: Any, run: Any, tile: Any) -> None:
        """Emit what puts the sums of a tile, `rows` pixels of a block, into scratch."""

    def include(self, text: str, declarations: Sequence[str]) -> None:
        """Import LLVM IR text once, its declarations in front."""
        for line in (*declarations, text):
            self.texts[str(line)] = None

    def kernel(self) -> Kernel:
        """Emit the whole kernel."""
        with IRBuilder() as builder, T.prim_func():
            T.func_name(self.symbol)
            T.func_attr({"global_symbol": self.symbol})
            self._declare()
            with T.attr(0, "pragma_import_llvm", "\n".join(self.texts)):
                self._fill_halos()
                self._work()
        scratch, helpers = self._scratch_words * 4, tuple(self.helpers)
        few = None if self.goes_through_blocks else self.grid.few
        tasks = self.grid.items
        return Kernel(
            builder.get(), scratch, tasks, helpers=helpers, uses_tiles=self.uses_tiles, few=few
        )

    def _work(self) -> None:
        """A task's part of the work."""
        if self.goes_through_blocks:
            begin, end = slice_of(self.grid.items, self.task, self.tasks)
            self.items(T.bind(begin), end)
        else:
            with self.grid.part(self.task, self.tasks) as part:
                self.part(part)

    @cached_property
    def grid(self) -> Grid:
        """All work items."""
        each = TASKS_OF_TILES if self.uses_tiles else TASKS
        return Grid(self.blocks, self.runs, self.schedule["spread"], each)

    @property
    def goes_through_blocks(self) -> bool:
        """Whether the inner loop does, so that it is rows that stay in the cache."""
        return bool(self.schedule["order"] == "blocks_inner")

    @property
    def _scratch_words(self) -> int:
        """Sums, then one pixel's block of every float output."""
        return self.sums_words + len(self._floats) * BLOCK

    @property
    def sums_words(self) -> int:
        """Sums of a tile."""
        return self.rows * BLOCK

    @cached_property
    def _floats(self) -> dict[Any, int]:
        """Float output → where its block stands in scratch."""
        return {o: self.sums_words + n * BLOCK for n, o in enumerate(self.float_outputs)}

    @property
    def float_outputs(self) -> list[Any]:
        """Outputs that an epilogue leaves in scratch, from where the kernel copies them."""
        return [o for o in self.composite.outputs if dtype_of(o.ty) == "float32"]

    def _declare(self) -> None:
        self.declare_tensors()
        words = max(1, self._scratch_words)  # no buffer is empty
        self.scratch = T.arg("scratch", T.Buffer((words,), self.sums_dtype))
        self.task = T.arg("task", tirx.Var("task", "int32"))
        self.tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))

    def declare_tensors(self) -> None:
        """Declare what is read and written, in the order in which callers pass it."""

        def buffer(variable: Any) -> Any:
            dtype = str(storage_dtype(dtype_of(variable.ty)))
            return T.Buffer((prod(shape_of(variable.ty)),), dtype)

        self.arguments = {p.name: T.arg(str(p.name), buffer(p)) for p in self.composite.parameters}
        outputs = enumerate(self.composite.outputs)
        self.results = [T.arg(f"o{number}", buffer(output)) for number, output in outputs]

    def _fill_halos(self) -> None:
        """Task 0 writes the rows and columns around every output; no other task touches them."""
        stores = [
            (result, output, attributes(self.composite.store_of(output)))
            for result, output in zip(self.results, self.composite.outputs, strict=True)
            if dtype_of(output.ty) != "float32"
        ]
        if any(any(attrs["halo"]) for _, _, attrs in stores):
            with T.If(self.task == 0), T.Then():
                for result, output, attrs in stores:
                    shape, dtype = shape_of(output.ty), dtype_of(output.ty)
                    phases = attrs.get("phases", 1)
                    fill_halo(result, shape, dtype, attrs["halo"], fills_of(attrs), phases)

    def part(self, part: Part) -> None:
        """Emit the work items of a task, block after block of a row block."""

        def tiles(block: Any, run: Any) -> None:
            with T.serial(0, self.tiles) as tile:
                self.tile(block, run, tile)

        part.each(self.runs_together, tiles)

    def items(self, begin: Any, end: Any) -> None:
        """Emit a task's work items, run after run."""
        with T.serial(0, T.bind(end - begin)) as item:
            self.item = item
            run, block = map(T.bind, divided(begin + item, self.blocks))
            with T.serial(0, self.tiles) as tile:
                self.tile(block, run, tile)

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """Emit a tile: its sums, then its epilogue."""
        self.start(block, run, tile)
        self.finish_tile(block, run, tile)

    def finish_tile(self, block: Any, run: Any, tile: Any) -> None:
        """Emit the epilogue of a tile whose sums are in scratch."""
        finish = self.finisher(block, run, tile, 0)
        with T.serial(0, self.rows) as m:
            finish(m)

    def column_of(self, tile: Any) -> Any:
        """First pixel of a tile of a row."""
        step = self.rows * self.pixels
        # The last tile overlaps its neighbour: the same pixels are written twice, alike.
        return T.bind(tirx.min(tile * step, self.width - step))

    def finisher(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """What emits the epilogue of the m-th pixel of a tile whose sums are at `place`."""
        x = self.column_of(tile)
        return lambda m: self._pixel(block, run, x + m * self.pixels, place + m * BLOCK)

    def _pixel(self, block: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and block, then what it left for a float output."""
        calls = list(self.composite.calls.values())
        pointers = [
            T.address_of(self.arguments[p.name][parameter_offset(p, calls, block, y, x)])
            for p in self.composite.parameters
        ]
        for result, output in zip(self.results, self.composite.outputs, strict=True):
            if output in self._floats:
                pointers.append(T.address_of(self.scratch[self._floats[output]]))
            else:
                offset = output_offset(output, self.composite.store_of(output), block, y, x)
                pointers.append(T.address_of(result[offset]))
        start = T.address_of(self.scratch[sums])
        T.evaluate(T.call_extern("void", self.epilogue, start, *pointers))
        for result, output in zip(self.results, self.composite.outputs, strict=True):
            if output in self._floats:
                self._copy_floats(result, output, block, y, x)

    def _copy_floats(self, result: Any, output: Any, block: Any, y: Any, x: Any) -> None:
        """Floats are written without padding, NCHW where they are turned, or NHWC."""
        pixels = self.height * self.width
        channels, pixel = prod(shape_of(output.ty)) // pixels, y * self.width + x
        turn = self.composite.turn_before(self.composite.results[output])
        with T.serial(0, BLOCK) as lane:
            c = block * BLOCK + lane
            with T.If(c < channels), T.Then():
                value = T.reinterpret("float32", self.scratch[self._floats[output] + lane])
                index = pixel * channels + c if turn is None else c * pixels + pixel
                T.buffer_store(result, value, [index])


class Pool(Lowering):
    """Maximum or sum over the valid part of a window of bytes."""

    def include_bodies(self, bodies: Table) -> None:
        """A pool over this edge's strides."""
        del bodies
        self.pool = f"{self.symbol}_pool"
        self.source = self.composite.calls[self.composite.main.args[0]]
        _, width, channels = shape_of(self.source.args[0].ty)
        kind = POOLS[self.composite.main.op.name]
        zero_point = attributes(self.composite.main).get("zero_point", 0)
        self.include(*pool_text(self.pool, kind, zero_point, width * channels, channels))

    def start(self, block: Any, run: Any, tile: Any) -> None:
        """The pooled levels of one pixel."""
        attrs, source = attributes(self.composite.main), attributes(self.source)
        _, width, channels = shape_of(self.source.args[0].ty)
        starts, extents = [], []
        for axis, position in enumerate((run, self.column_of(tile))):
            start = position * attrs["strides"][axis] - attrs["padding"][axis]
            first = T.bind(tirx.max(start, 0))
            last = tirx.min(start + attrs["kernel"][axis], source["size"][axis])
            starts.append(source["origin"][axis] + first)
            extents.append(last - first)
        data = self.arguments[self.source.args[0].name]
        pixel = data[(starts[0] * width + starts[1]) * channels + block * BLOCK]
        pointers = T.address_of(pixel), T.address_of(self.scratch[0])
        T.evaluate(T.call_extern("void", self.pool, *pointers, *extents))


class FloatInput(Lowering):
    """Channels of a float tensor, gathered as they lie there: NCHW, NHWC or flat."""

    def start(self, block: Any, run: Any, tile: Any) -> None:
        """The floats of a block's pixels, zeros behind the last channel."""
        parameter = self.composite.parameters[0]
        data, turn = self.arguments[parameter.name], self.composite.turn_of_input
        channels = prod(shape_of(parameter.ty)) // (self.height * self.width)
        lanes, x = BLOCK // self.pixels, self.column_of(tile)
        with T.serial(0, lanes) as lane, T.serial(0, self.pixels) as neighbour:
            c = block * BLOCK + lane
            pixel = run * self.width + x + neighbour
            is_nchw = turn is not None
            index = c * self.height * self.width + pixel if is_nchw else pixel * channels + c
            value = T.if_then_else(c < channels, data[index], T.float32(0))
            place = neighbour * lanes + lane
            T.buffer_store(self.scratch, T.reinterpret("int32", value), [place])


def divided(value: Any, by: int) -> tuple[Any, Any]:
    """Quotient and remainder of a number that is not negative."""
    return tirx.truncdiv(value, by), tirx.truncmod(value, by)
