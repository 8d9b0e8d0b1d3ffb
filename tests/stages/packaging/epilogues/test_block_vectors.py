"""Vectors of channels: what saturates, packs and rounds, beside NumPy, on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import compile_object
from stages.packaging.epilogues.block_vectors import BlockVectors
from stages.packaging.epilogues.saturation import SATURATED, has_saturating_pack, saturating_text
from tests.compiled import Library
from tests.hw.isa_code import caller
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
Emit = Callable[[BlockVectors, str], str]
EVERY = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
BLOCK = 32


def edges(*bounds: int) -> Array:
    """A block of int32: on both sides of bounds, the ends of the type, and any."""
    rng = np.random.default_rng(0)
    near = [bound + step for bound in bounds for step in (-1, 0, 1)]
    listed = np.array([*near, -(1 << 31), (1 << 31) - 1, 0])
    rest = rng.integers(-(1 << 31), 1 << 31, BLOCK - len(listed))
    return rng.permutation(np.concatenate([listed, rest])).astype(np.int32)


def results(
    hardware: Hardware, emit: Emit, kinds: tuple[str, str], source: Array, dtype: Any
) -> Array:
    """What `emit` makes of a block, part by part; `kinds` are attributes of Vectors."""
    skip_unless_runnable(hardware)
    code = BlockVectors(hardware.architecture, isa_of(hardware).lanes)
    before, after = (getattr(code, kind) for kind in kinds)
    size = np.dtype(dtype).itemsize
    for first in range(0, BLOCK, code.count):
        value = code.load(before, "%from", 4, 4 * first)
        code.store(after, emit(code, value), "%to", 1, size * first)
    code.do("ret void")
    text = code.function("bk_tried", ["ptr %from", "ptr %to"])
    buffers = [(str(source.dtype), BLOCK), (np.dtype(dtype).name, BLOCK)]
    function = caller("tried", [*code.declarations, text], "bk_tried", buffers)
    found = np.zeros(BLOCK, dtype)
    object_ = compile_object({"tried": function}, hardware)
    Library({"tried.o": object_}, hardware).call("tried", source, found)
    return found


def test_integers_saturate_to_words() -> None:
    source = edges(-32768, 32767)
    found = results(AVX512BW, BlockVectors.saturated, ("ints", "words"), source, np.int16)
    np.testing.assert_array_equal(found, source.clip(-32768, 32767))


def words(hardware: Hardware, emit: Emit, source: Array) -> int:
    """The i32 that `emit` makes of parts of a block of bytes, the first part lowest."""
    skip_unless_runnable(hardware)
    code = BlockVectors(hardware.architecture, isa_of(hardware).lanes)
    for first in range(0, BLOCK, code.count):
        word = emit(code, code.load(code.bytes, "%from", 1, first))
        code.store("i32", word, "%to", 4, first // 4)
    code.do("ret void")
    text = code.function("bk_tried", ["ptr %from", "ptr %to"])
    buffers = [("uint8", BLOCK), ("uint32", BLOCK // 4)]
    function = caller("tried", [*code.declarations, text], "bk_tried", buffers)
    found = np.zeros(BLOCK // 4, np.uint32)
    object_ = compile_object({"tried": function}, hardware)
    Library({"tried.o": object_}, hardware).call("tried", source, found)
    return sum(int(found[first // 16]) << first for first in range(0, BLOCK, code.count))


@pytest.mark.parametrize("bounds", [(0, 255), (0, 3), (0, 200), (-128, 127)])
@pytest.mark.parametrize("kind", ["ints", "words"])
def test_blocks_are_packed(bounds: tuple[int, int], kind: str) -> None:
    """From integers of 32 bits, or of 16."""
    dtype = np.int8 if bounds[0] else np.uint8

    def emit(code: BlockVectors, value: str) -> str:
        if kind == "words":
            value = code.saturated(value)
        return code.packed(value, getattr(code, kind), bounds)

    source = edges(*bounds, -32768, 32767)
    found = results(AVX512BW, emit, ("ints", "bytes"), source, dtype)
    np.testing.assert_array_equal(found, source.clip(*bounds))


@EVERY
def test_masks_become_words(hardware: Hardware) -> None:
    """The bits of a block's bytes, those that are not 0."""

    def emit(code: BlockVectors, value: str) -> str:
        return code.mask_word(code.nonzero(code.bytes, value), code.count)

    source = np.random.default_rng(0).integers(0, 3, BLOCK).astype(np.uint8)
    found = words(hardware, emit, source)
    assert found == sum(1 << lane for lane in range(BLOCK) if source[lane])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_the_function_that_saturates(dtype: str) -> None:
    skip_unless_runnable(AVX512BW)
    limits = np.iinfo(dtype)
    source, found = edges(limits.min, limits.max), np.zeros(BLOCK, dtype)
    text, declarations = saturating_text(dtype)
    buffers = [("int32", BLOCK), (dtype, BLOCK)]
    function = caller("tried", [*declarations, text], SATURATED + dtype, buffers)
    object_ = compile_object({"tried": function}, AVX512BW)
    Library({"tried.o": object_}, AVX512BW).call("tried", source, found)
    np.testing.assert_array_equal(found, source.clip(limits.min, limits.max))


def test_only_registers_of_sixteen_lanes_are_packed() -> None:
    assert has_saturating_pack(isa_of(AVX512BW))
    assert not any(has_saturating_pack(isa_of(other)) for other in (SSE2, AVX2, AARCH64, ARMV7))
