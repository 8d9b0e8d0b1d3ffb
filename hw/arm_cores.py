"""Cores of Arm Ltd. that costs are known of: one entry a core, and one file in `hw/cores`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hw.core_costs import Core

_GUIDE = " Software Optimization Guide: "
_DOT = ("+dotprod", "+fullfp16")
_MATRIX = (*_DOT, "+i8mm")


@dataclass(frozen=True)
class ArmCore:
    """What is known of a core beside what its instructions cost."""

    description: str
    part: int | None
    """Number in /proc/cpuinfo. Source: Linux arch/arm64/include/asm/cputype.h."""
    features: tuple[str, ...]
    """LLVM's features that have rows of their own."""
    caches: tuple[int, int]
    """L1 and L2 data cache in KiB, where the system does not tell."""
    issue: tuple[float, str]
    """Instructions started in a cycle at most, and who says so."""
    stand_in: str = ""
    """The core whose model llvm-mca takes, where it has none of this one."""
    has_aarch32: bool = False
    """Whether 32-bit systems run on it."""
    tuning: tuple[str, ...] = ()
    """LLVM's features that make code faster there, and run everywhere."""
    converts_slowly: bool = False
    """Whether four integers take longer to become floats, or floats integers, than two additions
    of floats. llvm-mca 19 has SCVTF and FCVTNS of 128 bits at 2 cycles each and FADD at 0.5 on the
    Neoverse N1, which stands in for the Cortex-A76, and at 1 and 0.25 on the V1 and V2."""


ARM_CORES: Mapping[Core, ArmCore] = {
    "cortex-a53": ArmCore(
        "Arm Cortex-A53, in order",
        part=0xD03,
        features=(),
        caches=(32, 512),
        issue=(
            2,
            "Arm Cortex-A53 Technical Reference Manual: issues two instructions a cycle",
        ),
        # A pair of loads takes two cycles alone; each of two runs beside an addition.
        tuning=("+disable-ldp",),
        has_aarch32=True,
    ),
    "cortex-a72": ArmCore(
        "Arm Cortex-A72, out of order",
        part=0xD08,
        features=(),
        caches=(32, 1024),
        issue=(3, "Arm Cortex-A72" + _GUIDE + "decodes three instructions"),
        has_aarch32=True,
    ),
    "cortex-a76": ArmCore(
        "Arm Cortex-A76, out of order, SDOT",
        part=0xD0B,
        features=_DOT,
        caches=(64, 512),
        issue=(4, "Arm Cortex-A76" + _GUIDE + "dispatches four macro-operations"),
        stand_in="neoverse-n1",
        converts_slowly=True,
    ),
    "neoverse-n1": ArmCore(
        "Arm Neoverse N1, out of order, SDOT",
        part=0xD0C,
        features=_DOT,
        caches=(64, 1024),
        issue=(4, "Arm Neoverse N1" + _GUIDE + "dispatches four macro-operations"),
        converts_slowly=True,
    ),
    "neoverse-v1": ArmCore(
        "Arm Neoverse V1, out of order, SDOT and USDOT",
        part=0xD40,
        features=_MATRIX,
        caches=(64, 1024),
        issue=(8, "Arm Neoverse V1" + _GUIDE + "dispatches eight macro-operations"),
        converts_slowly=True,
    ),
    "neoverse-v2": ArmCore(
        "Arm Neoverse V2, out of order, SDOT and USDOT",
        part=0xD4F,
        features=_MATRIX,
        caches=(64, 2048),
        issue=(8, "Arm Neoverse V2" + _GUIDE + "dispatches eight macro-operations"),
        converts_slowly=True,
    ),
    "generic-aarch64": ArmCore(
        "A 64-bit Arm core about which nothing is known; costs as for Cortex-A72",
        part=None,
        features=_MATRIX,
        caches=(32, 512),
        issue=(2, "the narrowest of the 64-bit Arm cores here"),
        stand_in="cortex-a72",
    ),
}


_FP16: Collection[str] = ("cortex-a76", "neoverse-n1")
"""LLVM's processors that have `fullfp16` without being told."""


def features_of(cpu: str, core: str) -> tuple[str, ...]:
    """Features with rows of their own that LLVM's processor has by itself, if its core is one that
    has their costs."""
    own = arm_core(core)
    has = cpu in _FP16 and own is not None and "+fullfp16" in own.features
    return ("+fullfp16",) if has else ()


def arm_core(name: str) -> ArmCore | None:
    """The core of a name, of ours or of LLVM's; None for any other."""
    return next((core for known, core in ARM_CORES.items() if known == name), None)
