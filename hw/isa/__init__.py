"""Instruction sets: what each instruction means, and which rows the kernel families use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hw.isa.expanding import EXPANSIONS, GFNI
from hw.isa.instruction import Instruction, Isa, Vector
from hw.isa.neon import AARCH64, ARMV7
from hw.isa.tiles import FEATURES
from hw.isa.x86 import (
    AVX2,
    AVX512BW,
    AVX512VPOPCNTDQ,
    SSE2,
    VBMI,
    VDPBF16PS,
    VPDPBUSD,
    VPDPBUSD_YMM,
    VPDPWSSD,
    VPDPWSSD_YMM,
    VPOPCNTB,
    WEIGHED,
)
from hw.profile import Hardware

__all__ = ["ISAS", "VNNI_256", "Instruction", "Isa", "Vector", "isa_of"]

ISAS: dict[str, Isa] = {
    isa.name: isa for isa in (SSE2, AVX2, AVX512BW, AVX512VPOPCNTDQ, AARCH64, ARMV7)
}

VNNI_256 = ("+avx512vnni", "+avx512vl")
"""What has AVX-VNNI's instructions too, encoded otherwise."""


def isa_of(hardware: Hardware) -> Isa:
    """The instruction set of a profile, with the rows its features allow beyond the name's."""
    isa = ISAS[hardware.isa]
    features = set(hardware.features)
    parts = dict(isa.parts)
    group = isa.dot_group
    if isa.lanes == 16 and "+avx512vnni" in features:
        parts = _fused(parts, VPDPBUSD, VPDPWSSD)
        group = 4
        parts["weighed.8"] = WEIGHED
        if "+avx512vbmi" in features:
            parts |= VBMI
    if isa.lanes == 8 and ("+avxvnni" in features or features.issuperset(VNNI_256)):
        parts = _fused(parts, VPDPBUSD_YMM, VPDPWSSD_YMM)
        group = 4
    # Where the use of tiles is refused, the same weights are multiplied by dot products.
    tiles = isa.lanes == 16 and group == 4 and set(FEATURES) <= features
    if tiles and GFNI in features:
        parts |= EXPANSIONS
    if isa.lanes == 16 and "+avx512bf16" in features:
        parts["bfloat16_dot"] = VDPBF16PS
    if isa.name == "avx512bw" and "+avx512bitalg" in features:
        parts["count"] = VPOPCNTB
    return replace(isa, parts=parts, dot_group=group, tiles=tiles)


def _fused(
    parts: Mapping[str, Instruction], dot: Instruction, words: Instruction
) -> dict[str, Instruction]:
    """Parts with dot products of one instruction each, beside which nobody multiplies alone."""
    return {p: row for p, row in parts.items() if p != "products.16"} | {
        "dot": dot,
        "dot.16": words,
    }
