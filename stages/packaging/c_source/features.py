"""Which features a package needs of its processor, and how the runtime asks for each."""

from __future__ import annotations

from hw.profile import Hardware
from stages.errors import StageError

Check = tuple[int, int, int, int, int]
"""What `struct rt_feature` in the runtime holds."""

_SSE, _AVX, _AVX512, _AMX = 0, 0x6, 0xE6, 0x60000
_EAX, _EBX, _ECX, _EDX = range(4)
_EXTENDED = 0x80000001

_X86_64: dict[str, Check] = {
    "sse2": (1, 0, _EDX, 26, _SSE),
    "sse3": (1, 0, _ECX, 0, _SSE),
    "pclmul": (1, 0, _ECX, 1, _SSE),
    "ssse3": (1, 0, _ECX, 9, _SSE),
    "fma": (1, 0, _ECX, 12, _AVX),
    "cx16": (1, 0, _ECX, 13, _SSE),
    "sse4.1": (1, 0, _ECX, 19, _SSE),
    "sse4.2": (1, 0, _ECX, 20, _SSE),
    "movbe": (1, 0, _ECX, 22, _SSE),
    "popcnt": (1, 0, _ECX, 23, _SSE),
    "aes": (1, 0, _ECX, 25, _SSE),
    "avx": (1, 0, _ECX, 28, _AVX),
    "f16c": (1, 0, _ECX, 29, _AVX),
    "bmi": (7, 0, _EBX, 3, _SSE),
    "avx2": (7, 0, _EBX, 5, _AVX),
    "bmi2": (7, 0, _EBX, 8, _SSE),
    "avx512f": (7, 0, _EBX, 16, _AVX512),
    "avx512dq": (7, 0, _EBX, 17, _AVX512),
    "adx": (7, 0, _EBX, 19, _SSE),
    "avx512ifma": (7, 0, _EBX, 21, _AVX512),
    "avx512cd": (7, 0, _EBX, 28, _AVX512),
    "avx512bw": (7, 0, _EBX, 30, _AVX512),
    "avx512vl": (7, 0, _EBX, 31, _AVX512),
    "avx512vbmi": (7, 0, _ECX, 1, _AVX512),
    "avx512vbmi2": (7, 0, _ECX, 6, _AVX512),
    "gfni": (7, 0, _ECX, 8, _SSE),
    "vaes": (7, 0, _ECX, 9, _AVX),
    "vpclmulqdq": (7, 0, _ECX, 10, _AVX),
    "avx512vnni": (7, 0, _ECX, 11, _AVX512),
    "avx512bitalg": (7, 0, _ECX, 12, _AVX512),
    "avx512vpopcntdq": (7, 0, _ECX, 14, _AVX512),
    "amx-bf16": (7, 0, _EDX, 22, _AMX),
    "avx512fp16": (7, 0, _EDX, 23, _AVX512),
    "amx-tile": (7, 0, _EDX, 24, _AMX),
    "amx-int8": (7, 0, _EDX, 25, _AMX),
    "avxvnni": (7, 1, _EAX, 4, _AVX),
    "avx512bf16": (7, 1, _EAX, 5, _AVX512),
    "avxvnniint8": (7, 1, _EDX, 4, _AVX),
    "sahf": (_EXTENDED, 0, _ECX, 0, _SSE),
    "lzcnt": (_EXTENDED, 0, _ECX, 5, _SSE),
}


def _field(crm: int, op2: int, low: int, least: int) -> Check:
    return (8 * crm + op2, low, least, 0, 0)


_PFR0, _ZFR0, _ISAR0, _ISAR1 = (4, 0), (4, 4), (6, 0), (6, 1)
_AARCH64: dict[str, Check] = {
    "fp-armv8": _field(*_PFR0, 16, 0),
    "neon": _field(*_PFR0, 20, 0),
    "fullfp16": _field(*_PFR0, 20, 1),
    "sve": _field(*_PFR0, 32, 1),
    "aes": _field(*_ISAR0, 4, 1),
    "sha2": _field(*_ISAR0, 12, 1),
    "crc": _field(*_ISAR0, 16, 1),
    "lse": _field(*_ISAR0, 20, 2),
    "rdm": _field(*_ISAR0, 28, 1),
    "dotprod": _field(*_ISAR0, 44, 1),
    "bf16": _field(*_ISAR1, 44, 1),
    "i8mm": _field(*_ISAR1, 52, 1),
    "sve2": _field(*_ZFR0, 0, 1),
}

_ARMV7: dict[str, Check] = {
    "neon": (0, 12, 0, 0, 0),
    "vfp3": (0, 13, 0, 0, 0),
    "vfp4": (0, 16, 0, 0, 0),
    "hwdiv-arm": (0, 17, 0, 0, 0),
    "hwdiv": (0, 18, 0, 0, 0),
    "aes": (1, 0, 0, 0, 0),
    "sha2": (1, 3, 0, 0, 0),
    "crc": (1, 4, 0, 0, 0),
}

CHECKS = {"x86_64": _X86_64, "aarch64": _AARCH64, "armv7": _ARMV7}

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_SKX = (*_V4, "adx", "aes", "pclmul")
_ICX = (
    *_SKX,
    *("avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq"),
    *("gfni", "vaes", "vpclmulqdq"),
)
# No AMX: a compiler never uses tiles on its own, and virtual machines often hide them.
_SPR = (*_ICX, "avx512bf16", "avx512fp16", "avxvnni")

OPTIONAL = frozenset({"amx-bf16", "amx-int8", "amx-tile"})
"""What kernels use where they may; where not, others take their place."""

# What LLVM may use when told -mcpu, as far as generated kernels could contain it. Every 64-bit
# ARM core has NEON. 32-bit Linux reports no "ARMv8"; CRC is the feature that betrays it.
_OF_CPU: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64": ("sse2",),
        "x86-64-v2": _V2,
        "x86-64-v3": _V3,
        "x86-64-v4": _V4,
        "haswell": (*_V3, "aes", "pclmul"),
        "skylake-avx512": _SKX,
        "cascadelake": (*_SKX, "avx512vnni"),
        "icelake-server": _ICX,
        "sapphirerapids": _SPR,
    },
    "aarch64": {
        "generic": ("neon",),
        "cortex-a53": ("neon",),
        "cortex-a72": ("neon",),
        "cortex-a76": ("neon", "dotprod", "fullfp16", "lse", "rdm"),
        "neoverse-n1": ("neon", "dotprod", "fullfp16", "lse", "rdm"),
    },
    "armv7": {
        "generic": ("neon",),
        "cortex-a7": ("neon", "vfp4", "hwdiv-arm"),
        "cortex-a53": ("neon", "vfp4", "hwdiv-arm", "crc"),
        "cortex-a72": ("neon", "vfp4", "hwdiv-arm", "crc"),
    },
}


def needed_features(hardware: Hardware) -> tuple[str, ...]:
    """Return the features that kernels for this hardware rely on, sorted, by LLVM's names."""
    known = CHECKS[hardware.architecture]
    of_cpu = _OF_CPU[hardware.architecture]
    if hardware.cpu not in of_cpu:
        raise StageError(
            f"cannot tell which features the processor {hardware.cpu!r} of hardware "
            f"{hardware.name!r} brings",
            hint=f"use one of {', '.join(of_cpu)} and list the others under features",
        )
    names = {feature.removeprefix("+") for feature in hardware.features} - OPTIONAL
    for name in sorted(names - known.keys()):
        raise StageError(
            f"a package cannot ask a processor for the feature {name!r} of hardware "
            f"{hardware.name!r}",
            hint=f"accepted on {hardware.architecture}: {', '.join(sorted(known))}",
        )
    return tuple(sorted(names.union(of_cpu[hardware.cpu])))


def check_of(architecture: str, feature: str) -> Check:
    """Return how the runtime asks a processor of this architecture for a feature."""
    return CHECKS[architecture][feature]
