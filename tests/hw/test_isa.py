"""Every instruction row: what its LLVM IR computes is what its NumPy meaning says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from hw.isa import ISAS, Instruction, Isa, Part, isa_of
from hw.isa.arrays import array_lanes, registers
from hw.isa.gfni import EXPANSIONS
from hw.profile import VECTOR_BITS, Hardware
from tests.hw.isa_code import assembly, cases_of, function_of, library
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

Array = np.ndarray[Any, Any]
ROUNDS = 24
LOOKUPS = Part.LOOKUP_FOUR, Part.LOOKUP_FOUR_ELSE
"""Rows of so many operands that their extremes have too many combinations."""
OWN_ROWS = {
    AMX_GFNI: [row.name for row in EXPANSIONS.values()],
    AVX512BF16: ["vdpbf16ps"],
    AVX512VBMI: ["vpermt2b_columns0", "vpermt2b_columns1", "vpermi2b"],
    AVXVNNI: ["vpdpbusd_ymm"],
    DOTPROD: ["sdot"],
    FP16: ["fmla.8h", "fadd.8h", "faddp.8h", "fcvtl", "fcvtl2"],
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


def limits(isa: Isa, row: Instruction) -> list[tuple[str, int, int]]:
    """dtype, smallest and largest value of each operand: all there are, but what `dot` is for."""
    if row.name == isa[Part.DOT].name:
        wide = row.operands[1].bits
        return [("int32", -(1 << 30), 1 << 30), (f"uint{wide}", 0, 255), (f"int{wide}", -128, 127)]
    return [(f"uint{kind.bits}", 0, (1 << kind.bits) - 1) for kind in row.operands]


def pairs_of_bfloat16(row: Instruction) -> list[Array]:
    """Registers of floats and of bfloat16, two a lane: numbers of all sizes that are normal."""
    rng = np.random.default_rng(11)
    rounds, lanes = 2 * ROUNDS, row.result.lanes
    totals = rng.normal(size=(rounds, lanes)).astype(np.float32).view(np.uint32)
    wide = rng.normal(size=(2, rounds, 2 * lanes)) * 2.0 ** rng.integers(-20, 20, (rounds, 1))
    return [totals, *(wide.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)]


def floats(row: Instruction) -> list[Array]:
    """Registers [round, lane] of floats: sums that cancel, ties, far apart, and random ones.

    None is so small that 32-bit ARM takes it for 0.
    """
    rng = np.random.default_rng(7)
    one, ulp = 1.0, 2.0**-23
    special = [
        (0.0, 0.0, -0.0),
        (-one, one, one),
        (2.0**-80, one + ulp, one + ulp / 2 * 2**12),  # a tie of float32 that the addend decides
        (-(2.0**-80), one + ulp, one + ulp / 2 * 2**12),
        (-(one + 2 * ulp), one + ulp, one + ulp),  # all but the last bits cancel
        (one, 2.0**60, 2.0**60),
    ]
    shape = (ROUNDS, row.result.lanes)
    rounds = [np.repeat(np.array(s, np.float32)[:, None], shape[1], 1) for s in special]
    random = rng.normal(size=(3, *shape)).astype(np.float32)
    found = [np.concatenate([[r[i] for r in rounds], random[i]]) for i in range(3)]
    return [np.ascontiguousarray(values, np.float32).view(np.uint32) for values in found]


def halves(row: Instruction) -> list[Array]:
    """Registers [round, lane] of floats of 16 bits: the largest and the smallest, what overflows,
    sums that cancel, ties, and random ones of all sizes."""
    rng = np.random.default_rng(9)
    one, ulp, largest, least = 1.0, 2.0**-10, 65504.0, 2.0**-24
    special = [
        (0.0, 0.0, -0.0),
        (largest, largest, one),  # infinite
        (-largest, largest, one),
        (np.inf, one, one),
        (least, least, one / 2),  # a tie of the smallest ones
        (2.0**-14, 2.0**-8, 2.0**-8),  # a product of no normal one
        (least, one + ulp, one + ulp / 2 * 2**6),  # a tie that the addend decides
        (-(one + 2 * ulp), one + ulp, one + ulp),
    ]
    shape = (ROUNDS, row.operands[0].lanes)
    found = []
    for number in range(len(row.operands)):
        rounds = [np.full(shape[1], values[number], np.float16) for values in special]
        random = rng.normal(size=shape) * 2.0 ** rng.integers(-14, 8, shape)
        found.append(np.concatenate([rounds, random.astype(np.float16)]).view(np.uint16))
    return found


def tables(row: Instruction) -> list[Array]:
    """Registers of a table, of random bytes, and last of all indices: every byte, then any."""
    rng = np.random.default_rng(13)
    kind = row.result
    shape = 256 // kind.lanes + 2 * ROUNDS, kind.lanes
    found = [rng.integers(0, 256, shape, np.uint8) for _ in row.operands]
    found[-1].reshape(-1)[:256] = np.arange(256)
    return found


def operands(isa: Isa, row: Instruction) -> list[Array]:
    """Registers [round, lane] of each operand: combinations of extremes, then random values.

    The extremes of both signs are among them; each fills a register or every other lane of it.
    """
    if row.name == isa[Part.FLOAT_MAC].name:
        return floats(row)
    if row.name == isa[Part.BFLOAT16_DOT].name:
        return pairs_of_bfloat16(row)
    if row.name in OWN_ROWS[FP16]:
        return halves(row)
    if row.name in (isa[part].name for part in LOOKUPS if part in isa):
        return tables(row)
    rng = np.random.default_rng(len(row.name))
    ranges = limits(isa, row)
    extremes = [sorted({low, 1, high // 2, high // 2 + 1, high}) for _, low, high in ranges]
    corners = list(product(*extremes))
    found = []
    for number, (kind, (dtype, low, high)) in enumerate(zip(row.operands, ranges, strict=True)):
        full = np.array([corner[number] for corner in corners], dtype)[:, None]
        full = np.repeat(full, kind.lanes, axis=1)
        striped = full.copy()
        striped[:, ::2] = np.roll(full, 1, axis=0)[:, ::2]
        random = rng.integers(low, high, (ROUNDS, kind.lanes), dtype, endpoint=True)
        found.append(np.concatenate([full, striped, random]).view(f"uint{kind.bits}"))
    return found


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
        for part in (Part.PAIR_WIDEN_8, Part.PAIR_WIDEN_16):
            kind = isa[part].result
            result = np.zeros(kind.lanes, f"uint{kind.bits}")
            library(hardware).call(f"i{names.index(isa[part].name)}", value, result)
            value = result
        np.testing.assert_array_equal(value, counts.reshape(-1, 4).sum(1, dtype=np.uint32))


# What the compiler selects for a part; one of several, where it depends on the registers.
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
    ("hardware", "part", "expected"), MNEMONICS, ids=lambda item: getattr(item, "name", item)
)
def test_the_compiler_selects_the_instruction(hardware: Hardware, part: str, expected: str) -> None:
    isa = isa_of(hardware)
    table = isa.halves if part.startswith("half/") else isa.parts
    row = table[Part(part.removeprefix("half/"))]
    for immediate in row.immediates or (None,):
        found = mnemonics(row, immediate, hardware)
        assert len(found & set(expected.split())) == 1, (immediate, found)


@pytest.mark.parametrize("factor", [2, 4])
def test_a_power_of_two_is_multiplied_by_only_where_it_is_opaque(factor: int) -> None:
    row = isa_of(AARCH64)[Part.SCALE_ADD_16]
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
    whole = [(part, row, isa.bytes) for part, row in isa.parts.items()]
    for part, row, size in whole + [(p, r, isa.bytes // 2) for p, r in isa.halves.items()]:
        # A widening operation takes half registers.
        assert {kind.bytes for kind in (*row.operands, row.result)} <= {size, isa.bytes // 2}, part
        assert row.result.bytes == size, part
        if row.declares:
            called = row.emit.split("@")[1].split("(")[0]
            assert f"@{called}(" in row.declares
    assert len(isa.instructions()) == len({*isa.parts.values(), *isa.halves.values()})
    for dot in isa.dots:
        total, *factors = isa[dot.part].operands
        assert {kind.lanes for kind in factors} == {total.lanes * dot.group // dot.pixels}
    if isa.counts_bytes:
        first, second = isa[Part.PAIR_WIDEN_8], isa[Part.PAIR_WIDEN_16]
        assert (*first.operands, *second.operands, second.result) == (
            isa[Part.COUNT].result,
            first.result,
            isa[Part.ADD_32].result,
        )


def test_a_profile_has_the_dot_product_that_its_features_name() -> None:
    assert isa_of(AVX512VNNI)[Part.DOT].name == "vpdpbusd"
    assert isa_of(AVX512VNNI).dot_group == 4
    assert isa_of(AVX512BW).dot_group == isa_of(AVX2).dot_group == 2
    for hardware in (AVXVNNI, VNNI_256):
        assert isa_of(hardware)[Part.DOT].name == "vpdpbusd_ymm"
        assert isa_of(hardware).dot_group == 4
    # AVX-VNNI has the dot product in 256 bits only.
    wide = AVX512BW.model_copy(update={"features": (*AVX512BW.features, "+avxvnni")})
    assert isa_of(wide).dot_group == 2


def test_a_profile_counts_bytes_in_one_instruction_where_it_can() -> None:
    assert isa_of(AVX512BITALG)[Part.COUNT].name == "vpopcntb"
    assert isa_of(AVX512BW)[Part.COUNT].name == "popcount_bytes_zmm"


def test_an_operand_that_the_text_leaves_out_is_an_error() -> None:
    with pytest.raises(ValueError, match="operand 1 does not occur in"):
        replace(ISAS["sse2"][Part.ADD_8], emit="add <16 x i8> {0}, {0}")


def test_an_immediate_that_the_text_leaves_out_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"immediates and .* do not agree"):
        replace(ISAS["sse2"][Part.ADD_8], immediates=(3,))
