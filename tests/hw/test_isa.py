"""Every instruction row: what its LLVM IR computes is what its NumPy meaning says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from hw.isa import ISAS, Instruction, Isa, isa_of
from hw.profile import VECTOR_BITS, Hardware
from tests.hw.isa_code import assembly, function_of, lanes_of, library
from tests.targets import (
    AARCH64,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    AVX512VPOPCNTDQ,
    EVERY,
    PROFILES,
    SSE2,
    skip_unless_runnable,
)

Array = np.ndarray[Any, Any]
ROUNDS = 24
ROWS = [
    pytest.param(hardware, number, id=f"{hardware.name}-{row.name}")
    for hardware in PROFILES
    for number, row in enumerate(isa_of(hardware).instructions())
]


def part_of(isa: Isa, row: Instruction) -> str:
    """Which part of an instruction set a row plays."""
    if row == isa.dot:
        return "dot"
    return "widen" if row in isa.widen else "lanewise"


def limits(isa: Isa, row: Instruction) -> list[tuple[str, int, int]]:
    """dtype, smallest and largest value of each operand, in the ranges kernels use."""
    bits = [lanes_of(kind)[1] for kind in row.operands]
    if part_of(isa, row) == "dot":
        wide = 8 if isa.dot_group == 4 else 16
        return [("int32", -(1 << 30), 1 << 30), (f"uint{wide}", 0, 255), (f"int{wide}", -128, 127)]
    if part_of(isa, row) == "widen":
        return [(f"uint{bits[0]}", 0, 255 if bits[0] == 8 else 510)]
    return [(f"uint{b}", 0, (1 << b) - 1) for b in bits]


def operands(isa: Isa, row: Instruction) -> list[list[Array]]:
    """Rounds of operands: every combination of extremes, then random values."""
    rng = np.random.default_rng(len(row.name))
    ranges = limits(isa, row)
    lanes = [lanes_of(kind)[0] for kind in row.operands]
    rounds = [
        [
            np.full(n, value, dtype)
            for n, value, (dtype, _, _) in zip(lanes, corner, ranges, strict=True)
        ]
        for corner in product(*[(low, 1, high) for _, low, high in ranges])
    ]
    for _ in range(ROUNDS):
        rounds.append(
            [
                rng.integers(low, high, n, dtype, endpoint=True)
                for n, (dtype, low, high) in zip(lanes, ranges, strict=True)
            ]
        )
    return rounds


@pytest.mark.parametrize(("hardware", "number"), ROWS)
def test_an_instruction_computes_its_meaning(hardware: Hardware, number: int) -> None:
    skip_unless_runnable(hardware)
    isa = isa_of(hardware)
    row = isa.instructions()[number]
    lanes, bits = lanes_of(row.result)
    inputs = operands(isa, row)
    for values in inputs:
        result = np.zeros(lanes, f"uint{bits}")
        library(hardware).call(
            f"i{number}", *[v.view(f"uint{8 * v.itemsize}") for v in values], result
        )
        expected = row.meaning(*values)
        assert expected.shape == (lanes,)
        np.testing.assert_array_equal(result, expected.astype(f"uint{bits}"), str(values))
    assert len(inputs) > ROUNDS


@EVERY
def test_sums_of_four_bytes_never_saturate(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    if not isa.counts_bytes:
        pytest.skip("counts whole words")
    skip_unless_runnable(hardware)
    rng = np.random.default_rng(3)
    first = list(isa.instructions()).index(isa.widen[0])
    for counts in (
        np.full(4 * isa.lanes, 255, np.uint8),
        rng.integers(0, 256, 4 * isa.lanes, np.uint8),
    ):
        value = counts
        for number, row in enumerate(isa.widen, first):
            lanes, bits = lanes_of(row.result)
            result = np.zeros(lanes, f"uint{bits}")
            library(hardware).call(f"i{number}", value, result)
            value = result
        np.testing.assert_array_equal(value, counts.reshape(-1, 4).sum(1, dtype=np.uint32))


MNEMONICS = [
    (SSE2, "dot", "pmaddwd"),
    (AVX2, "widen", "vpmaddubsw"),
    (AVX2, "dot", "vpmaddwd"),
    (AVX512BW, "widen", "vpmaddubsw"),
    (AVX512BW, "dot", "vpmaddwd"),
    (AVX512VNNI, "dot", "vpdpbusd"),
    (AVX512VPOPCNTDQ, "count", "vpopcntd"),
    (AARCH64, "count", "cnt"),
    (AARCH64, "widen", "uaddlp"),
    (AARCH64, "dot", "smlal"),
    (ARMV7, "count", "vcnt.8"),
    (ARMV7, "widen", "vpaddl.u8"),
    (ARMV7, "dot", "vmlal.s16"),
]


@pytest.mark.parametrize(
    ("hardware", "part", "mnemonic"), MNEMONICS, ids=lambda item: getattr(item, "name", item)
)
def test_the_compiler_selects_the_instruction(hardware: Hardware, part: str, mnemonic: str) -> None:
    isa = isa_of(hardware)
    row = isa.widen[0] if part == "widen" else getattr(isa, part)
    text = assembly(function_of(row, "one"), hardware)
    assert mnemonic in {word for line in text.splitlines() for word in line.split()[:1]}


@pytest.mark.parametrize("isa", ISAS.values(), ids=lambda isa: isa.name)
def test_an_instruction_set_is_consistent(isa: Isa) -> None:
    assert isa.lanes * 32 == VECTOR_BITS[isa.name]  # type: ignore[index]
    assert isa.counts_bytes == (lanes_of(isa.count.result)[1] == 8)
    for row in isa.instructions():
        for kind in (*row.operands, row.result):
            lanes, bits = lanes_of(kind)
            # A widening multiply takes half registers.
            assert lanes * bits in (32 * isa.lanes, 16 * isa.lanes), row.name
        if row.declares:
            called = row.emit.split("@")[1].split("(")[0]
            assert f"@{called}(" in row.declares
    lanes, bits = lanes_of(isa.dot.operands[1])
    assert lanes == isa.lanes * isa.dot_group
    kinds = [(*row.operands, row.result) for row in isa.widen]
    assert [k[0] for k in kinds[1:]] == [k[1] for k in kinds[:-1]]


def test_a_profile_has_the_dot_product_that_its_features_name() -> None:
    assert isa_of(AVX512VNNI).dot.name == "vpdpbusd"
    assert isa_of(AVX512VNNI).dot_group == 4
    assert isa_of(AVX512BW).dot_group == isa_of(AVX2).dot_group == 2
    # AVX-VNNI has the dot product in 256 bits only.
    avx_vnni = AVX512BW.model_copy(update={"features": (*AVX512BW.features, "+avxvnni")})
    assert isa_of(avx_vnni).dot_group == 2


def test_an_operand_that_the_text_leaves_out_is_an_error() -> None:
    with pytest.raises(ValueError, match="operand 1 does not occur in"):
        replace(ISAS["sse2"].accumulate, emit="add <16 x i8> {0}, {0}")
