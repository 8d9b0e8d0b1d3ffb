"""Every instruction row: what its LLVM IR computes is what its NumPy meaning says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hw.isa import ISAS, Instruction, Isa, Operation, isa_of
from hw.isa.arrays import array_lanes, registers
from hw.isa.gfni import EXPANSIONS
from hw.isa.operation import REQUIRED
from hw.profile import VECTOR_BITS, Hardware
from tests.hw.isa_code import assembly, cases_of, function_of, library
from tests.hw.row_operands import FLOAT16_ROWS, ROUNDS, operands
from tests.targets import (
    AARCH64,
    AMX_GFNI,
    ARMV7,
    AVX2,
    AVX512BF16,
    AVX512BITALG,
    AVX512BW,
    AVX512VBMI,
    AVX512VNNI,
    AVX512VPOPCNTDQ,
    AVXVNNI,
    DOTPROD,
    EVERY,
    FP16,
    I8MM,
    PROFILES,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)

OWN_ROWS = {
    AMX_GFNI: [row.name for row in EXPANSIONS.values()],
    AVX512BF16: ["vdpbf16ps"],
    AVX512VBMI: ["vpermt2b_columns0", "vpermt2b_columns1", "vpermi2b"],
    AVXVNNI: ["vpdpbusd_ymm"],
    DOTPROD: ["sdot"],
    FP16: FLOAT16_ROWS,
    I8MM: ["usdot", "usmmla", "smmla", "zip1.8", "zip2.8", "zip1.32", "zip2.32"],
    VNNI_256: ["vpdpbusd_ymm"],
}
"""Profiles of which these rows alone are no other's."""
CASES = [
    pytest.param(hardware, number, id=f"{hardware.name}-{row.name}" + f"-{k}" * (k is not None))
    for hardware in (*PROFILES, *OWN_ROWS)
    for number, (row, k) in enumerate(cases_of(isa_of(hardware)))
    if row.name in OWN_ROWS.get(hardware, [row.name])
]


@pytest.mark.parametrize(("hardware", "number"), CASES)
def test_an_instruction_computes_its_meaning(hardware: Hardware, number: int) -> None:
    skip_unless_runnable(hardware)
    isa = isa_of(hardware)
    row, immediate = cases_of(isa)[number]
    inputs = operands(isa, row)
    expected = registers(row.execute([array_lanes(values) for values in inputs], immediate))
    assert expected.shape == (len(inputs[0]), row.result.lanes)
    assert len(expected) > ROUNDS
    for *values, wanted in zip(*inputs, expected, strict=True):
        result = np.zeros(row.result.lanes, f"uint{row.result.bits}")
        library(hardware).call(f"i{number}", *values, result)
        if not np.array_equal(result, wanted):  # the message takes longer than the call
            np.testing.assert_array_equal(result, wanted, str(values))


@EVERY
def test_sums_of_four_bytes_never_saturate(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    if not isa.counts_bytes:
        pytest.skip("counts whole words")
    skip_unless_runnable(hardware)
    names = [row.name for row, _ in cases_of(isa)]
    rng = np.random.default_rng(3)
    for counts in (
        np.full(4 * isa.lanes, 255, np.uint8),
        rng.integers(0, 256, 4 * isa.lanes, np.uint8),
    ):
        value = counts
        for operation in (Operation.PAIR_WIDEN_8, Operation.PAIR_WIDEN_16):
            kind = isa[operation].result
            result = np.zeros(kind.lanes, f"uint{kind.bits}")
            library(hardware).call(f"i{names.index(isa[operation].name)}", value, result)
            value = result
        np.testing.assert_array_equal(value, counts.reshape(-1, 4).sum(1, dtype=np.uint32))


# What the compiler selects for an operation; one of several, where it depends on the registers.
MNEMONICS = [
    (SSE2, "dot", "pmaddwd"),
    (SSE2, "float_mac", "mulps"),
    (AVX2, "float_mac", "vfmadd132ps vfmadd213ps vfmadd231ps"),
    (AVX512BW, "float_mac", "vfmadd132ps vfmadd213ps vfmadd231ps"),
    (AVX512BF16, "bfloat16_dot", "vdpbf16ps"),
    (AARCH64, "float_mac", "fmla"),
    (ARMV7, "float_mac", "vfma.f32"),
    (AVX2, "pair_widen.8", "vpmaddubsw"),
    (AVX2, "pair_widen.16", "vpmaddwd"),
    (AVX2, "products.8", "vpmaddubsw"),
    (AVX2, "dot", "vpmaddwd"),
    (AVX512BW, "select", "vpternlogd"),
    (AVX512BW, "pair_widen.8", "vpmaddubsw"),
    (AVX512BW, "dot", "vpmaddwd"),
    (AVX512VNNI, "dot", "vpdpbusd"),
    (AVXVNNI, "dot", "vpdpbusd"),
    (AVX512BITALG, "count", "vpopcntb"),
    (AVX512VPOPCNTDQ, "count", "vpopcntd"),
    (AARCH64, "count", "cnt"),
    (AARCH64, "select", "bsl bit bif"),
    (AARCH64, "half/select", "bsl bit bif"),
    (AARCH64, "mac.8", "mla"),
    (AARCH64, "scale_add.8", "mla"),
    (AARCH64, "scale_add.16", "mla"),
    (AARCH64, "scale_add.32", "mla"),
    (AARCH64, "pair_add.8", "addp"),
    (AARCH64, "half/pair_add.16", "addp"),
    (AARCH64, "pair_widen.8", "uaddlp"),
    (AARCH64, "pair_widen_add.8", "uadalp"),
    (AARCH64, "pair_widen_add.16", "uadalp"),
    (AARCH64, "half/pair_widen_add.8", "uadalp"),
    (AARCH64, "widen_add.8", "uaddw"),
    (AARCH64, "widen_scale_add.8", "umlal"),
    (AARCH64, "widen_scale_add.16", "umlal"),
    (AARCH64, "pair_widen_signed.8", "saddlp"),
    (AARCH64, "mac.16", "smlal"),
    (AARCH64, "dot", "smlal"),
    (DOTPROD, "dot.signed", "sdot"),
    (I8MM, "dot.mixed", "usdot"),
    (FP16, "half_mac", "fmla"),
    (FP16, "half_add", "fadd"),
    (FP16, "half_pair_add", "faddp"),
    (FP16, "half_widen_low", "fcvtl"),
    (FP16, "half_widen_high", "fcvtl fcvtl2"),
    (I8MM, "matrix.mixed", "usmmla"),
    (I8MM, "matrix.signed", "smmla"),
    (I8MM, "low_halves.8", "zip1 mov"),
    (I8MM, "high_halves.32", "zip2"),
    (ARMV7, "count", "vcnt.8"),
    (ARMV7, "select", "vbsl vbit vbif"),
    (ARMV7, "mac.8", "vmla.i8"),
    (ARMV7, "scale_add.8", "vmla.i8"),
    (ARMV7, "scale_add.16", "vmla.i16"),
    (ARMV7, "scale_add.32", "vmla.i32"),
    (ARMV7, "half/pair_add.8", "vpadd.i8"),
    (ARMV7, "pair_widen.8", "vpaddl.u8"),
    (ARMV7, "pair_widen_add.8", "vpadal.u8"),
    (ARMV7, "half/pair_widen_add.16", "vpadal.u16"),
    (ARMV7, "widen_add.8", "vaddw.u8"),
    (ARMV7, "widen_scale_add.8", "vmlal.u8"),
    (ARMV7, "pair_widen_signed.8", "vpaddl.s8"),
    (ARMV7, "mac.16", "vmlal.s8"),
    (ARMV7, "dot", "vmlal.s16"),
]


def mnemonics(row: Instruction, immediate: int | None, hardware: Hardware) -> set[str]:
    """The instructions of a row's function."""
    text = assembly(function_of(row, "one", immediate), hardware).replace("{vex}", "")
    lines = text.split("\none:")[1].splitlines()
    end = next(i for i, line in enumerate(lines) if line.split()[:1] in (["ret"], ["retq"], ["bx"]))
    return {word for line in lines[:end] for word in line.split()[:1]}


@pytest.mark.parametrize(
    ("hardware", "operation", "expected"), MNEMONICS, ids=lambda item: getattr(item, "name", item)
)
def test_the_compiler_selects_the_instruction(
    hardware: Hardware, operation: str, expected: str
) -> None:
    isa = isa_of(hardware)
    table = isa.half_registers if operation.startswith("half/") else isa.rows
    row = table[Operation(operation.removeprefix("half/"))]
    for immediate in row.immediates or (None,):
        found = mnemonics(row, immediate, hardware)
        assert len(found & set(expected.split())) == 1, (immediate, found)


@pytest.mark.parametrize("factor", [2, 4])
def test_a_power_of_two_is_multiplied_by_only_where_it_is_opaque(factor: int) -> None:
    row = isa_of(AARCH64)[Operation.SCALE_ADD_16]
    assert "mla" in mnemonics(row, factor, AARCH64)
    # Two additions for 2, a shift and an addition for 4.
    seen = mnemonics(replace(row, opaque=False), factor, AARCH64)
    assert "mla" not in seen and "add" in seen


@pytest.mark.parametrize(
    "isa",
    [*ISAS.values(), *(isa_of(hardware) for hardware in OWN_ROWS)],
    ids=[*ISAS, *(hardware.name for hardware in OWN_ROWS)],
)
def test_an_instruction_set_is_consistent(isa: Isa) -> None:
    assert isa.lanes * 32 == VECTOR_BITS[isa.name]
    assert set(isa.rows) >= REQUIRED
    whole = [(operation, row, isa.bytes) for operation, row in isa.rows.items()]
    for operation, row, size in whole + [
        (p, r, isa.bytes // 2) for p, r in isa.half_registers.items()
    ]:
        # A widening operation takes half registers.
        assert {kind.bytes for kind in (*row.operands, row.result)} <= {size, isa.bytes // 2}, (
            operation
        )
        assert row.result.bytes == size, operation
        if row.declares:
            called = row.emit.split("@")[1].split("(")[0]
            assert f"@{called}(" in row.declares
    assert len(isa.instructions()) == len({*isa.rows.values(), *isa.half_registers.values()})
    for dot in isa.dots:
        total, *factors = isa[dot.operation].operands
        assert {kind.lanes for kind in factors} == {total.lanes * dot.group // dot.pixels}
    if isa.counts_bytes:
        first, second = isa[Operation.PAIR_WIDEN_8], isa[Operation.PAIR_WIDEN_16]
        assert (*first.operands, *second.operands, second.result) == (
            isa[Operation.COUNT].result,
            first.result,
            isa[Operation.ADD_32].result,
        )


def test_a_profile_has_the_dot_product_that_its_features_name() -> None:
    assert isa_of(AVX512VNNI)[Operation.DOT].name == "vpdpbusd"
    assert isa_of(AVX512VNNI).dot_group == 4
    assert isa_of(AVX512BW).dot_group == isa_of(AVX2).dot_group == 2
    for hardware in (AVXVNNI, VNNI_256):
        assert isa_of(hardware)[Operation.DOT].name == "vpdpbusd_ymm"
        assert isa_of(hardware).dot_group == 4
    # AVX-VNNI has the dot product in 256 bits only.
    wide = AVX512BW.model_copy(update={"features": (*AVX512BW.features, "+avxvnni")})
    assert isa_of(wide).dot_group == 2


def test_a_profile_counts_bytes_in_one_instruction_where_it_can() -> None:
    assert isa_of(AVX512BITALG)[Operation.COUNT].name == "vpopcntb"
    assert isa_of(AVX512BW)[Operation.COUNT].name == "popcount_bytes_zmm"


def test_an_operand_that_the_text_leaves_out_is_an_error() -> None:
    with pytest.raises(ValueError, match="operand 1 does not occur in"):
        replace(ISAS["sse2"][Operation.ADD_8], emit="add <16 x i8> {0}, {0}")


def test_an_immediate_that_the_text_leaves_out_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"immediates and .* do not agree"):
        replace(ISAS["sse2"][Operation.ADD_8], immediates=(3,))
