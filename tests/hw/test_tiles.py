"""Tiles: what TDPBUSD means, in NumPy and on a processor, and how registers are shaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import Instruction, isa_of
from hw.isa.arrays import array_lanes, registers
from hw.isa.tile_registers import (
    COLUMNS,
    FEATURES,
    ROW_BYTES,
    bfloat16_dot,
    configuration,
    configuration_text,
    tile_dot,
)
from hw.isa.x86_extensions import VPDPBUSD
from stages.codegen import compile_object
from tests.compiled import Library
from tests.targets import AMX, AVX512BW, AVX512VNNI, skip_unless_runnable

Array = np.ndarray[Any, Any]
SHAPES = [(1, 1), (7, 3), (16, 16), (14, 12), (5, 16), (16, 1)]


def operands(rows: int, words: int) -> tuple[Array, Array, Array]:
    """Sums that wrap around, and factors with their extremes."""
    rng = np.random.default_rng(rows * 17 + words)
    sums = rng.integers(-(1 << 31), 1 << 31, (rows, COLUMNS), np.int64).astype(np.int32)
    a = rng.integers(0, 256, (rows, words, 4), np.uint8)
    w = rng.integers(-128, 128, (words, COLUMNS, 4), np.int16).astype(np.int8)
    a[0, 0], w[0, 0], w[-1, -1] = 255, -128, 127
    return sums, a, w


def products(sums: Array, a: Array, w: Array) -> Array:
    """The same as a matrix product, which NumPy adds up in 64 bits."""
    added = np.einsum("rkb,knb->rn", a.astype(np.int64), w.astype(np.int64))
    return (sums.astype(np.int64) + added).astype(np.int32)


def halves(rows: int, words: int) -> tuple[Array, Array, Array]:
    """Sums and factors of bfloat16 that are whole numbers, so that nothing is rounded."""
    rng = np.random.default_rng(rows * 19 + words)
    sums = rng.integers(-99, 100, (rows, COLUMNS)).astype(np.float32)
    shapes = ((rows, words, 2), (words, COLUMNS, 2))
    wide = (rng.integers(-128, 128, shape).astype(np.float32) for shape in shapes)
    a, w = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in wide)
    return sums, a, w


def float_products(sums: Array, a: Array, w: Array) -> Array:
    """The same as a matrix product of floats."""
    left, right = ((x.astype(np.uint32) << 16).view(np.float32) for x in (a, w))
    return sums + np.einsum("rkb,knb->rn", left, right)


@pytest.mark.parametrize(("rows", "words"), SHAPES)
def test_a_product_of_tiles_of_bfloat16_is_one_of_matrices(rows: int, words: int) -> None:
    sums, a, w = halves(rows, words)
    inputs = [x.reshape(1, -1).view(f"u{x.itemsize}") for x in (sums, a, w)]
    found = registers(bfloat16_dot(rows, words).execute([array_lanes(x) for x in inputs]))
    expected = float_products(sums, a, w)
    np.testing.assert_array_equal(found.view(np.float32).reshape(rows, -1), expected)


def test_halves_of_words_are_added_up_on_their_own() -> None:
    """Of the lower halves a large number is lost with its negative, and what lies between."""
    values = np.array([[[2.0**30, 1], [1, 2], [-(2.0**30), 4]]], np.float32)
    a = (values.view(np.uint32) >> 16).astype(np.uint16)
    w = np.full((3, COLUMNS, 2), 0x3F80, np.uint16)
    inputs: list[Array] = [np.zeros((1, COLUMNS), np.uint32), a.reshape(1, -1), w.reshape(1, -1)]
    found = registers(bfloat16_dot(1, 3).execute([array_lanes(x) for x in inputs]))
    assert set(found.view(np.float32).ravel().tolist()) == {7.0}


@pytest.mark.parametrize(("rows", "words"), SHAPES)
def test_a_product_of_tiles_is_one_of_matrices(rows: int, words: int) -> None:
    sums, a, w = operands(rows, words)
    row = tile_dot(rows, words)
    inputs = [x.reshape(1, -1).view(f"u{x.itemsize}") for x in (sums, a, w)]
    assert [x.shape[1] for x in inputs] == [kind.lanes for kind in row.operands]
    found = registers(row.execute([array_lanes(x) for x in inputs]))
    np.testing.assert_array_equal(found.view(np.int32).reshape(rows, -1), products(sums, a, w))


def test_a_row_and_a_word_are_the_dot_product_of_vectors() -> None:
    sums, a, w = operands(1, 1)
    inputs = [sums, np.tile(a.reshape(-1), COLUMNS), w]
    lanes = [array_lanes(x.reshape(1, -1).view(f"u{x.itemsize}")) for x in inputs]
    found = registers(VPDPBUSD.execute(lanes)).view(np.int32)
    np.testing.assert_array_equal(found, products(sums, a, w))


def compiled(row: Instruction, rows: int, words: int) -> Any:
    """`f(sums, a, w)`, which adds the products of two registers to a third."""
    shapes = [(rows, ROW_BYTES), (rows, 4 * words), (words, ROW_BYTES)]
    loads = [
        f"  call void @llvm.x86.tileloadd64(i8 {n}, ptr %p{n}, i64 {size})"
        for n, (_, size) in enumerate(shapes)
    ]
    text = "\n".join(
        (
            configuration_text("shapes", shapes),
            "declare void @llvm.x86.ldtilecfg(ptr)",
            "declare void @llvm.x86.tilerelease()",
            "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
            "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
            str(row.declares),
            "define internal void @one(ptr %p0, ptr %p1, ptr %p2) alwaysinline {",
            "  call void @llvm.x86.ldtilecfg(ptr @shapes)",
            *loads,
            f"  {row.text(('0', '1', '2'))}",
            f"  call void @llvm.x86.tilestored64(i8 0, ptr %p0, i64 {ROW_BYTES})",
            "  call void @llvm.x86.tilerelease()",
            "  ret void",
            "}",
        )
    )
    with IRBuilder() as builder, T.prim_func():
        T.func_name("f")
        T.func_attr({"global_symbol": "f"})
        buffers = [T.arg(f"b{n}", T.Buffer((64,), "uint8")) for n in range(3)]
        with T.attr(0, "pragma_import_llvm", text):
            T.evaluate(T.call_extern("void", "one", *(T.address_of(b[0]) for b in buffers)))
    return builder.get()


@pytest.mark.parametrize(("rows", "words"), SHAPES)
def test_a_processor_computes_the_meaning(rows: int, words: int) -> None:
    """Where it has no tiles, what emulates them in other tests does."""
    skip_unless_runnable(AMX)
    for row, (sums, a, w), meaning in (
        (tile_dot(rows, words), operands(rows, words), products),
        (bfloat16_dot(rows, words), halves(rows, words), float_products),
    ):
        object_ = compile_object({"f": compiled(row, rows, words)}, AMX)
        expected = meaning(sums, a, w)
        Library({"f.o": object_}, AMX).call("f", sums, a, w)
        np.testing.assert_array_equal(sums, expected)


def test_registers_are_shaped_as_the_manual_says() -> None:
    data = configuration([(16, 64), (7, 12)])
    assert len(data) == 64
    assert {place: byte for place, byte in enumerate(data) if byte} == {
        **{0: 1, 16: 64, 18: 12},  # palette, bytes a row as 16 bits
        **{48: 16, 49: 7},  # rows
    }


@pytest.mark.parametrize("shapes", [[(17, 64)], [(1, 65)], [(0, 4)], [(1, 0)], [(1, 4)] * 9])
def test_a_shape_that_no_register_has_is_refused(shapes: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"no tile \d"):
        configuration(shapes)


def test_tiles_need_the_dot_products_that_replace_them() -> None:
    assert isa_of(AMX).tiles
    assert not isa_of(AVX512VNNI).tiles
    alone = AVX512BW.model_copy(update={"features": (*AVX512BW.features, *FEATURES)})
    assert not isa_of(alone).tiles
