"""What every scheduling primitive adds to a convolution of few bits, one after the other.

Cowan et al. (CGO 2020, section 3.2 and Figure 4) show it for layer C6 of ResNet-18: bit-serial
loops as they are written, then tiled, vectorized, unrolled and on all threads, and at last with a
synthesized micro-kernel. The loops compute raw sums of popcounts of packed planes; the package's
kernel also does what follows them, packing included.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hw.isa import isa_of
from hw.profile import Hardware
from pipelines.benchmarks.loaded_program import LoadedProgram
from pipelines.benchmarks.peaks import linked
from pipelines.errors import UserError
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels import operator_names
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model

if TYPE_CHECKING:
    from stages.nodes import Expr, Function, Scalar

Array = np.ndarray[Any, Any]
PRIMITIVES = ("loops", "+ tiling", "+ vectorization", "+ unrolling")
"""Loops as they are written, then one primitive more at a time; threads come behind them."""
MAX_PIXELS = 8
RUNS, REPEATED = 7, 10
"""Tries of which the best counts, and how often every thread runs its part in each: the same for
loops and the package's kernel."""


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution of levels of `bits` (activations, weights) without padding."""

    window: tuple[int, int]
    strides: tuple[int, int]
    channels: tuple[int, int]
    output: tuple[int, int]
    bits: tuple[int, int]

    @property
    def words(self) -> int:
        """Words of packed channels a pixel."""
        return -(-self.channels[0] // WORD_BITS)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image, borders included."""
        height, width = (
            (extent - 1) * stride + kernel
            for extent, stride, kernel in zip(self.output, self.strides, self.window, strict=True)
        )
        return height, width

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole layer."""
        return math.prod((*self.output, *self.window, *self.channels))


def layer_of(packed: Model, name: str) -> ConvolutionShape:
    """Return what a layer of a bit-packed model computes; UserError if it is not of few bits."""
    for binding, function in calls_of(packed):
        if str(binding.var.name) != name:
            continue
        call = next((b.value for b in bindings_of(function) if _is_packed(b.value)), None)
        signature = parse_signature(attributes(call)["signature"]) if call is not None else None
        way = (signature.plan or signature.lut) if signature is not None else None
        if call is None or way is None:
            raise UserError(f"primitives={name}: the layer has no kernel of 1 to 3 bits")
        attrs = attributes(call)
        return ConvolutionShape(
            window=tuple(attrs["window"]),
            strides=tuple(attrs["strides"]),
            channels=tuple(attrs["channels"]),
            output=tuple(attrs["output"]),
            bits=(way.activation_bits, way.weight_bits),
        )
    names = ", ".join(str(b.var.name) for b, f in calls_of(packed) if _has_bits(f))
    raise UserError(f"primitives={name}: there is no such layer; those of few bits: {names}")


def _is_packed(call: Expr) -> bool:
    return is_op(call, operator_names.QNN_PACKED_CONV2D)


def _has_bits(function: Function) -> bool:
    calls = [b.value for b in bindings_of(function) if _is_packed(b.value)]
    return any(not parse_signature(attributes(c)["signature"]).products for c in calls)


def times(
    layer: ConvolutionShape, hardware: Hardware, program: LoadedProgram, name: str, threads: int
) -> dict[str, float]:
    """Return the seconds of the layer with one primitive more at a time, and by its own kernel."""
    rng = np.random.default_rng(0)
    data = _words(rng, (layer.bits[0], *layer.size, layer.words))
    weights = _words(rng, (layer.bits[1], *layer.window, layer.words, layer.channels[1]))
    rows = -(-layer.output[0] // threads)
    count = len(PRIMITIVES)
    functions = {f"steps{n}": loops(f"steps{n}", layer, hardware, n) for n in range(count)}
    functions["part"] = loops("part", layer, hardware, count - 1, rows)
    from stages.codegen import compile_object

    library = linked({"loops.o": compile_object(functions, hardware)})
    found: dict[str, float] = {}
    results: dict[str, Array] = {}
    sums = np.zeros((*layer.output, layer.channels[1]), np.int32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (data, weights, sums)]
    for number, primitive in enumerate(PRIMITIVES):
        found[primitive] = _together([_call(library[f"steps{number}"], pointers)])
        results[primitive] = sums.copy()
        sums[:] = 0
    parts = [_part(library["part"], layer, data, weights, sums, rows, n) for n in range(threads)]
    together = _together(parts)
    if threads > 1:
        found[f"+ {threads} threads"] = together
    for primitive, result in results.items():
        assert np.array_equal(result, sums), primitive
    found["the package's kernel"] = _together(_tasks(program, name, threads))
    return found


def _words(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    return rng.integers(0, 1 << WORD_BITS, shape, np.uint32)


def _part(
    entry: Callable[..., None],
    layer: ConvolutionShape,
    data: Array,
    weights: Array,
    sums: Array,
    rows: int,
    number: int,
) -> Callable[[], None]:
    """The convolution of some rows; the last part overlaps its neighbour."""
    first = min(number * rows, layer.output[0] - rows)
    start = data[:, first * layer.strides[0] :]
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (start, weights, sums[first:])]
    return _call(entry, pointers)


def _call(entry: Callable[..., None], pointers: Sequence[object]) -> Callable[[], None]:
    return lambda: entry(*pointers)


def _tasks(program: LoadedProgram, name: str, threads: int) -> list[Callable[[], None]]:
    """A layer's own kernel, as so many tasks, each with scratch of its own."""
    call = next(call for call in program.program.calls if call.layer == name)
    entry, arguments = program.kernel(call)
    found = []
    for task in range(threads):
        scratch = np.zeros(call.scratch_bytes // 8 + 64, np.uint64)
        place = -(-scratch.ctypes.data // 64) * 64
        own = [ctypes.c_void_p(place), ctypes.c_int32(task), ctypes.c_int32(threads)]
        found.append(_task(entry, [*arguments[:-3], *own], scratch))
    return found


def _task(
    entry: Callable[..., None], arguments: Sequence[object], memory: Array
) -> Callable[[], None]:
    """One call, which keeps the memory of its scratch."""

    def run(_memory: Array = memory) -> None:
        entry(*arguments)

    return run


def _together(parts: Sequence[Callable[[], None]]) -> float:
    """Seconds until every part, each on a thread, has run once, of several times in a row."""
    best = math.inf
    for _ in range(RUNS):
        begun = threading.Barrier(len(parts) + 1)
        workers = [threading.Thread(target=_repeat, args=(part, begun)) for part in parts]
        for worker in workers:
            worker.start()
        begun.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        best = min(best, (time.perf_counter() - start) / REPEATED)
    return best


def _repeat(part: Callable[[], None], begun: threading.Barrier) -> None:
    begun.wait()
    for _ in range(REPEATED):
        part()


def loops(
    symbol: str, layer: ConvolutionShape, hardware: Hardware, steps: int, rows: int | None = None
) -> Any:
    """The PrimFunc `symbol(data, weights, sums)` of some rows with the first `steps` primitives.

    Planes are uint32 [bits, H, W, words] and [bits, KH, KW, words, O]; sums int32 [rows, W, O].
    """
    import tvm
    from tvm import s_tir, te, tirx

    from stages.packaging.emitting.vector_loops import DEVICE
    from stages.packaging.standalone.te_kernel import LOWERING, PLACING

    (kh, kw), (sh, sw), (_, outputs) = layer.window, layer.strides, layer.channels
    a = te.placeholder((layer.bits[0], *layer.size, layer.words), "uint32", name="data")
    shape = (layer.bits[1], kh, kw, layer.words, outputs)
    w = te.placeholder(shape, "uint32", name="weights")
    ry, rx, k = (te.reduce_axis((0, extent)) for extent in (kh, kw, layer.words))

    def at(y: Scalar, x: Scalar, o: Scalar) -> Scalar:
        total: Any = 0
        for i in range(layer.bits[0]):
            for j in range(layer.bits[1]):
                both = a[i, y * sh + ry, x * sw + rx, k] & w[j, ry, rx, k, o]
                total = total + (tirx.popcount(both).astype("int32") << (i + j))
        return te.sum(total, axis=[ry, rx, k])

    extents = (rows or layer.output[0], layer.output[1], outputs)
    sums = te.compute(extents, at, name="sums")
    schedule = s_tir.Schedule(te.create_prim_func([a, w, sums]))
    if steps:
        _tile(schedule, layer, isa_of(hardware).lanes, steps)
    lowered = LOWERING(PLACING(tvm.IRModule({"main": schedule.mod["main"]})))["main"]
    body, cpu = lowered.body, tirx.Var("cpu", "int32")
    for key, value in DEVICE.items():
        body = tirx.AttrStmt(cpu, key, tirx.const(value, "int32"), body)
    return tirx.PrimFunc(lowered.params, body).with_attr("global_symbol", symbol)


def _tile(schedule: Any, layer: ConvolutionShape, lanes: int, steps: int) -> None:
    """Tiles of some pixels by a register of channels, whose sums are written once."""
    block = schedule.get_sblock("sums")
    written = schedule.cache_write(block, 0, "global")
    y, x, o, ry, rx, k = schedule.get_loops(block)
    pixels = max(n for n in range(1, MAX_PIXELS + 1) if layer.output[1] % n == 0)
    x, inner = schedule.split(x, [None, pixels])
    o, lane = schedule.split(o, [None, math.gcd(lanes, layer.channels[1])])
    schedule.reorder(y, x, o, ry, rx, k, inner, lane)
    schedule.reverse_compute_at(written, o)
    if steps > 1:
        schedule.vectorize(lane)
        schedule.vectorize(schedule.get_loops(written)[-1])
    if steps > 2:
        schedule.unroll(inner)
        schedule.unroll(rx)
    start = schedule.decompose_reduction(block, ry)
    if steps > 1:
        schedule.vectorize(schedule.get_loops(start)[-1])
