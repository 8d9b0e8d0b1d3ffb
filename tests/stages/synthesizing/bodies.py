"""Micro-kernels compiled on their own, and what they compute beside the meaning of their plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import compile_object
from stages.dialect.convolve import windows
from stages.kernels.operand_storage import BYTE_LIMIT, WORD_LIMIT
from stages.kernels.packing import pack_activations, pack_weights, raw_sums
from stages.kernels.signature import (
    BLOCK,
    RING_BYTES,
    TILES_BEGIN,
    TILES_END,
    Flush,
    KernelSignature,
)
from stages.kernels.terms import term_table
from stages.synthesizing.microkernel import kernel_text
from stages.synthesizing.tile_body import shaping_text
from tests.compiled import Library

Array = np.ndarray[Any, Any]
FLUSHES: tuple[Flush, ...] = ("window", "row", "chunk")
SHAPE = 8
"""Numbers of a shape, behind which is what sums begin with; the last says whether they do."""


@dataclass(frozen=True)
class Case:
    """A signature over a window of `height` x `width` pixels of `words` words, `stride` apart."""

    signature: KernelSignature
    height: int
    width: int
    words: int
    stride: int = 1

    @property
    def name(self) -> str:
        """A name for its compiled function."""
        return f"call_{self.signature.name}"

    @property
    def extremes(self) -> list[tuple[int, int]]:
        """Pairs of a level and a stored weight that fill counters, or make the largest sums."""
        if self.signature.is_transformed:
            low, high = self.weights
            return [(low, low), (low, high), (high, high)]
        if (products := self.signature.products) is not None:
            top, limit = (1 << products.activation_bits) - 1, products.weight_limit
            return [(top, limit - (limit == BYTE_LIMIT)), (top, -limit)]
        plan = self.signature.plan
        assert plan is not None
        counted = [sum(term_table(t, plan) for t in plan.of(c)) for c in plan.coefficients]
        tables = [*counted, plan.table(), -plan.table()]
        places = [np.unravel_index(int(np.argmax(table)), np.shape(table)) for table in tables]
        return sorted({(int(level), int(weight)) for level, weight in places})

    def full(self, level: int, weight: int) -> tuple[Array, Array]:
        """A strip of a level [H, W, C] that holds the tile's windows, and weights [32, h, w, C]."""
        data, weights = self._shapes
        kind = np.int16 if self.signature.is_transformed else np.uint8
        return np.full(data, level, kind), np.full(weights, weight, np.int16)

    def random(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """A strip of any levels, and any weights."""
        data, weights = self._shapes
        low, high = self.weights
        if self.signature.is_transformed:
            first, second = (
                rng.integers(low, high, shape, np.int16, endpoint=True) for shape in (data, weights)
            )
            return first, second
        top = (1 << self._activation_bits) - 1
        return (
            rng.integers(0, top, data, np.uint8, endpoint=True),
            self._stored(rng.integers(low, high, weights, np.int16, endpoint=True)),
        )

    def _stored(self, weights: Array) -> Array:
        """Weights, or of those that are stored in fewer bits ones near them."""
        code = self.signature.code
        return weights if code is None else code.weights(code.numbers(weights)).astype(np.int16)

    @property
    def _shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int, int]]:
        channels = self.words * self.signature.channels_per_word
        columns = (self.signature.rows - 1) * self.stride + self.width
        return (self.height, columns + 1, channels), (BLOCK, self.height, self.width, channels)

    @property
    def _activation_bits(self) -> int:
        one = self.signature.plan or self.signature.products
        assert one is not None
        return one.activation_bits

    @property
    def weights(self) -> tuple[int, int]:
        """The smallest and the largest weight."""
        if (code := self.signature.code) is not None:
            found = code.weights(np.arange(1 << code.bits, dtype=np.uint8))
            return int(found.min()), int(found.max())
        if (products := self.signature.products) is not None:
            limit = products.weight_limit
            return -limit, limit - (limit in (BYTE_LIMIT, WORD_LIMIT))
        assert self.signature.plan is not None
        return 0, (1 << self.signature.plan.weight_bits) - 1


def filled(signature: KernelSignature, flush: Flush) -> Case:
    """A case whose counters reach their limit, and would overflow if flushed any later."""
    period = signature.flush_period
    if period == 0:
        return Case(signature, 2, 1, 40)
    if flush == "window":
        return Case(signature.flushed(flush), 1, 1, period)
    if flush == "row":
        return Case(signature.flushed(flush), 3, 1, period)
    return Case(signature.flushed(flush), 2, 1, 2 * period + 3 * signature.step)


def compile_cases(cases: Sequence[Case], hardware: Hardware, inlined: bool = True) -> Library:
    """A library with `case.name(data, weights, sums, shape, later)` for every case.

    Where sums can begin with something, they begin with what is behind the shape if that says so.
    Such a kernel is compiled twice, as packages have it, inside what begins with nothing and on its
    own; or, not `inlined`, once for both.
    """
    functions = {case.name: _caller(case, hardware, inlined) for case in cases}
    return Library({"bodies.o": compile_object(functions, hardware)}, hardware)


def _caller(case: Case, hardware: Hardware, inlined: bool) -> Any:
    signature = case.signature
    with IRBuilder() as builder, T.prim_func():
        T.func_name(case.name)
        T.func_attr({"global_symbol": case.name})
        names = (("data", "uint32"), ("weights", "uint32"), ("sums", "int32"), ("shape", "int32"))
        kinds = (*names, ("later", "uint8"))
        buffers = [T.arg(name, T.Buffer((8,), dtype)) for name, dtype in kinds]
        with T.attr(0, "pragma_import_llvm", _text(case, hardware, inlined)):
            if signature.is_tiled:
                T.evaluate(T.call_extern("void", TILES_BEGIN))
            if signature.preloads_bias:
                with T.If(buffers[3][SHAPE - 1] != 0):
                    with T.Then():
                        _call(signature.preload_name, buffers, T.address_of(buffers[3][SHAPE]))
                    with T.Else():
                        _call(signature.name, buffers)
            else:
                _call(signature.name, buffers)
            if signature.is_tiled:
                T.evaluate(T.call_extern("void", TILES_END))
    return builder.get()


def _text(case: Case, hardware: Hardware, inlined: bool) -> str:
    """A kernel with all that it needs."""
    signature = case.signature
    text, declarations = kernel_text(signature, isa_of(hardware))
    if signature.preloads_bias and not inlined:
        head = next(line for line in text.splitlines() if f"@{signature.preload_name}(" in line)
        assert head.startswith("define internal")
        text = text.replace(head, head.replace(" alwaysinline ", " noinline "))
    shaping, more = shaping_text(signature) if signature.is_tiled else ("", [])
    return "\n".join([*declarations, *more, text, shaping])


def _call(name: str, buffers: Sequence[Any], *more: Any) -> None:
    """Call a kernel on the first of each buffer, with the numbers of the shape."""
    T.evaluate(
        T.call_extern(
            "void",
            name,
            *(T.address_of(buffers[index][0]) for index in (0, 1, 2, 4)),
            *(T.Cast("int64", buffers[3][index]) for index in range(5)),
            T.int64(0),
            T.int64(1),
            T.int64(0),
            *more,
        )
    )


def sums_of(
    case: Case, library: Library, data: Array, weights: Array, begin: Array | None = None
) -> Array:
    """What the compiled body computes: int32 [rows, 32]; sums may begin with int32 [32]."""
    signature = case.signature
    packed = packed_weights(signature, weights)
    if signature.multiplies_int16:
        stored = np.ascontiguousarray(data.astype(np.int16)).view(np.uint32)[None]
    elif signature.stored is not None:
        stored = pack_activations(signature.stored, data)
    else:
        stored = np.ascontiguousarray(data.astype(np.uint8)).view(np.uint32)[None]
    _, height, width, words = stored.shape
    pixel = words * 4
    shape = np.zeros(SHAPE + BLOCK, np.int32)
    shape[:5] = (
        case.height,
        case.width * words,
        width * pixel,
        case.stride * pixel,
        height * width * pixel,
    )
    result = np.zeros((signature.rows, BLOCK), np.int32)
    for tile, block in enumerate(packed):
        sums = np.zeros((signature.rows, BLOCK), np.int32)
        first = tile * signature.channels
        if begin is not None:
            shape[SHAPE - 1] = 1
            shape[SHAPE : SHAPE + signature.channels] = begin[first : first + signature.channels]
        library.call(case.name, stored, block, sums, shape, np.zeros(RING_BYTES, np.uint8))
        result[:, first : first + signature.channels] = sums[:, : signature.channels]
        assert not sums[:, signature.channels :].any()
    return result


def packed_weights(signature: KernelSignature, weights: Array) -> Array:
    """Weights as the kernel reads them; those that are not transformed here, but as they are."""
    if not signature.is_transformed:
        return pack_weights(signature, weights)
    assert signature.products is not None
    group, channels = signature.products.group, signature.channels
    words = weights.reshape(BLOCK // channels, channels, -1, 2 // group, group)
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1, 4))


def expected_sums(case: Case, data: Array, weights: Array) -> Array:
    """What the plan means: int32 [rows, 32]."""
    view = windows(data[None], (case.height, case.width), (1, 1))[0, 0]
    patches = view[:: case.stride][: case.signature.rows].transpose(0, 2, 3, 1)
    flat = patches.reshape(case.signature.rows, -1)
    if case.signature.is_transformed:
        exact = flat.astype(np.int64) @ weights.reshape(BLOCK, -1).astype(np.int64).T
        return exact.astype(np.uint32).view(np.int32)
    return raw_sums(case.signature, flat, weights.reshape(BLOCK, -1))


def same(found: Array, expected: Array, *what: object) -> None:
    """Fail, and only then say of what, unless two arrays are equal."""
    if not np.array_equal(found, expected):
        np.testing.assert_array_equal(found, expected, " ".join(map(str, what)))
        raise AssertionError(what)
