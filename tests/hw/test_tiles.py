"""Tiles: what TDPBUSD means, in NumPy and on a processor, and how registers are shaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.isa.arrays import array_lanes, registers
from hw.isa.tiles import COLUMNS, ROW_BYTES, configuration, configuration_text, tile_dot
from hw.isa.x86 import VPDPBUSD
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


def compiled(rows: int, words: int) -> Any:
    """`f(sums, a, w)`, which adds the products of two registers to a third."""
    shapes = [(rows, ROW_BYTES), (rows, 4 * words), (words, ROW_BYTES)]
    row = tile_dot(rows, words)
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
    library = Library({"f.o": compile_object({"f": compiled(rows, words)}, AMX)}, AMX)
    sums, a, w = operands(rows, words)
    expected = products(sums, a, w)
    library.call("f", sums, a, w)
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
    alone = AVX512BW.model_copy(update={"features": (*AVX512BW.features, "+amx-int8", "+amx-tile")})
    assert not isa_of(alone).tiles
