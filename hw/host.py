"""The machine at hand as a hardware profile: `host` becomes named features."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from hw.arm_cores import ARM_CORES
from hw.isa.instruction_set import IsaName
from hw.isa.tile_registers import FEATURES
from hw.profile import NEEDED, Core, Hardware

# /proc/cpuinfo flag → (LLVM feature, features LLVM switches on with it). Only what kernels and
# the compiler can use is listed, so that machines which differ elsewhere share their artifacts.
X86_FEATURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "pni": ("sse3", ()),
    "ssse3": ("ssse3", ("sse3",)),
    "sse4_1": ("sse4.1", ("ssse3",)),
    "sse4_2": ("sse4.2", ("sse4.1",)),
    "popcnt": ("popcnt", ()),
    "abm": ("lzcnt", ()),
    "bmi1": ("bmi", ()),
    "bmi2": ("bmi2", ()),
    "avx": ("avx", ("sse4.2",)),
    "f16c": ("f16c", ("avx",)),
    "fma": ("fma", ("avx",)),
    "avx2": ("avx2", ("avx",)),
    "avx_vnni": ("avxvnni", ("avx2",)),
    "avx512f": ("avx512f", ("avx2", "f16c", "fma")),
    "avx512cd": ("avx512cd", ("avx512f",)),
    "avx512dq": ("avx512dq", ("avx512f",)),
    "avx512bw": ("avx512bw", ("avx512f",)),
    "avx512vl": ("avx512vl", ("avx512f",)),
    "avx512vbmi": ("avx512vbmi", ("avx512bw",)),
    "avx512_vbmi2": ("avx512vbmi2", ("avx512bw",)),
    "avx512_vnni": ("avx512vnni", ("avx512f",)),
    "avx512_bf16": ("avx512bf16", ("avx512bw",)),
    "avx512_bitalg": ("avx512bitalg", ("avx512bw",)),
    "avx512_vpopcntdq": ("avx512vpopcntdq", ("avx512f",)),
    "gfni": ("gfni", ("avx512bw",)),
    # Where the system refuses them, kernels of AVX512-VNNI take the place of those of tiles.
    "amx_tile": ("amx-tile", ("avx512bw", "avx512vnni")),
    "amx_bf16": ("amx-bf16", ("amx-tile",)),
    "amx_int8": ("amx-int8", ("amx-tile",)),
}
# Advanced SIMD is part of every aarch64 Linux processor.
ARM_FEATURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "asimd": ("neon", ()),
    "asimddp": ("dotprod", ("neon",)),
    "asimdhp": ("fullfp16", ("neon",)),
    "i8mm": ("i8mm", ("neon",)),
}

# Intel family 6 models; a shrink counts as the core it was shrunk from, and Skylake-SP (85, like
# Cascade Lake) as Cascade Lake: one core. Granite Rapids (173, 174) counts as Sapphire Rapids, and
# Raptor Lake and Meteor Lake (170 to 191) as Alder Lake, whose large cores they have.
# Source: Linux arch/x86/include/asm/intel-family.h
_INTEL_CORES: Mapping[int, Core] = {
    **dict.fromkeys((60, 63, 69, 70, 61, 71, 79, 86), "haswell"),
    **dict.fromkeys((151, 154, 170, 172, 183, 186, 191), "alderlake"),
    **dict.fromkeys((85,), "cascadelake"),
    **dict.fromkeys((106, 108, 125, 126), "icelake"),
    **dict.fromkeys((143, 207, 173, 174), "sapphirerapids"),
}
# AMD families 0x19 and 0x1A: models of Zen 4, the others are Zen 3, and of Zen 5, later ones are
# Zen 6. Mobile Zen 5 has pipes of half the width and counts as Zen 5 all the same.
# Source: Linux arch/x86/kernel/cpu/amd.c, bsp_init_amd
_AMD_CORES: Mapping[int, tuple[Core, tuple[range, ...]]] = {
    0x19: ("zen4", (range(0x10, 0x20), range(0x60, 0xB0))),
    0x1A: ("zen5", (range(0x00, 0x30), range(0x40, 0x50), range(0x60, 0x80))),
}
_ARM_CORES: Mapping[int, Core] = {
    core.part: name for name, core in ARM_CORES.items() if core.part is not None
}

# L1 and L2 data cache in KiB, where the system does not tell.
_CACHES: Mapping[Core, tuple[int, int]] = {
    **{name: core.caches for name, core in ARM_CORES.items()},
    "haswell": (32, 256),
    "alderlake": (48, 1280),
    "cascadelake": (32, 1024),
    "icelake": (48, 1280),
    "sapphirerapids": (48, 2048),
    "zen4": (32, 1024),
    "zen5": (48, 1024),
    "generic-x86-64": (32, 256),
}
# Linux: arch/x86/include/uapi/asm/prctl.h and arch/x86/include/asm/fpu/types.h
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
_X86_ISAS: tuple[IsaName, ...] = ("avx512vpopcntdq", "avx512bw", "avx2", "sse2")


def from_flags(
    *,
    machine: str,
    flags: Collection[str],
    vendor: str = "",
    family: int = 0,
    model: int = 0,
    threads: int = 1,
    l1d_kib: int | None = None,
    l2_kib: int | None = None,
) -> Hardware:
    """Return the profile of a processor described in the words of /proc/cpuinfo.

    `machine` is `uname -m`; on aarch64 `vendor` is the implementer ('0x41') and `model` the part.
    Features whose prerequisites a hypervisor hides are left out. Raises ValueError for a machine
    that is neither x86_64 nor aarch64.
    """
    core: Core
    if machine in ("x86_64", "amd64"):
        features = _named(flags, X86_FEATURES)
        isa = next(isa for isa in _X86_ISAS if set(NEEDED[isa]) <= set(features))
        core = _x86_core(vendor, family, model, features)
        l1d, l2 = _CACHES[core]
        return Hardware(
            name="host",
            architecture="x86_64",
            triple="x86_64-linux-gnu",
            cpu="x86-64",  # the baseline: all that may be used beyond it stands in `features`
            features=features,
            zig_target="x86_64-linux-gnu.2.28",
            isa=isa,
            core=core,
            threads=threads,
            l1d_kib=l1d_kib or l1d,
            l2_kib=l2_kib or l2,
        )
    if machine in ("aarch64", "arm64"):
        core = _ARM_CORES.get(model, "generic-aarch64") if vendor == "0x41" else "generic-aarch64"
        l1d, l2 = _CACHES[core]
        return Hardware(
            name="host",
            architecture="aarch64",
            triple="aarch64-linux-gnu",
            cpu="generic",
            features=_named({*flags, "asimd"}, ARM_FEATURES),
            zig_target="aarch64-linux-gnu.2.28",
            isa="neon_aarch64",
            core=core,
            threads=threads,
            l1d_kib=l1d_kib or l1d,
            l2_kib=l2_kib or l2,
        )
    raise ValueError(
        f"this machine ({machine or 'unknown'}) is neither x86_64 nor aarch64; "
        "name the board to build for, for example hardware=rpi3"
    )


def _x86_core(vendor: str, family: int, model: int, features: Collection[str]) -> Core:
    if vendor == "GenuineIntel" and family == 6:
        # No earlier core has tiles, whatever model a hypervisor shows.
        has_tiles = set(FEATURES) <= set(features)
        return "sapphirerapids" if has_tiles else _INTEL_CORES.get(model, "generic-x86-64")
    if vendor == "AuthenticAMD" and family in _AMD_CORES:
        core, models = _AMD_CORES[family]
        return core if any(model in some for some in models) else "generic-x86-64"
    return "generic-x86-64"


def _named(
    flags: Collection[str], table: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[str, ...]:
    """Return the LLVM features of the flags, without any whose prerequisites are missing."""
    kept: set[str] = set()
    for flag, (feature, needs) in table.items():  # prerequisites stand above what needs them
        if flag in flags and kept.issuperset(needs):
            kept.add(feature)
    return tuple(sorted(f"+{feature}" for feature in kept))


def x86_processor(text: str) -> tuple[Core, tuple[str, ...]]:
    """The core and the LLVM features of an x86-64 /proc/cpuinfo; needs no costs of that core."""
    cpu = parse_cpuinfo(text)
    family, model = (_number(cpu.get(name, "0")) for name in ("cpu family", "model"))
    features = _named(cpu.get("flags", "").split(), X86_FEATURES)
    return _x86_core(cpu.get("vendor_id", ""), family, model, features), features


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Return the fields of the first processor that /proc/cpuinfo lists."""
    first: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() not in first:
            first[key.strip()] = value.strip()
    return first


def from_cpuinfo(
    text: str,
    *,
    machine: str,
    threads: int = 1,
    l1d_kib: int | None = None,
    l2_kib: int | None = None,
) -> Hardware:
    """Return the profile of the machine whose /proc/cpuinfo reads `text`."""
    cpu = parse_cpuinfo(text)
    return from_flags(
        machine=machine,
        flags=frozenset(cpu.get("flags", cpu.get("Features", "")).split()),
        vendor=cpu.get("vendor_id", cpu.get("CPU implementer", "")),
        family=_number(cpu.get("cpu family", "0")),
        model=_number(cpu.get("model", cpu.get("CPU part", "0"))),
        threads=threads,
        l1d_kib=l1d_kib,
        l2_kib=l2_kib,
    )


def detect() -> Hardware:
    """Return the profile of this machine; ValueError where it cannot be read or built for."""
    if platform.system() != "Linux":
        raise ValueError(
            f"the host can be detected on Linux only, and this is {platform.system()}; "
            "name the board to build for, for example hardware=rpi3"
        )
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    l1d_kib, l2_kib = _cache_sizes(Path("/sys/devices/system/cpu/cpu0/cache"))
    found = from_cpuinfo(
        text,
        machine=platform.machine(),
        threads=os.cpu_count() or 1,
        l1d_kib=l1d_kib,
        l2_kib=l2_kib,
    )
    if set(found.features).isdisjoint(FEATURES) or may_use_tiles():
        return found
    granted = tuple(name for name in found.features if name not in FEATURES)
    return found.model_copy(update={"features": granted})


@cache
def may_use_tiles() -> bool:
    """Whether this process may use tiles (AMX), for which it asks the operating system.

    As packages do, see `rt_may_use_tiles` in their runtime.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    flags = parse_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    if not {"amx_tile", "amx_bf16", "amx_int8"} <= set(flags.get("flags", "").split()):
        return False
    arguments = (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return bool(ctypes.CDLL(None).syscall(*map(ctypes.c_long, arguments)) == 0)


def _cache_sizes(folder: Path) -> tuple[int | None, int | None]:
    """Return the L1 and L2 data cache in KiB, None where sysfs lacks it."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind in ("Data", "Unified") and level.isdigit() and re.fullmatch(r"\d+K", size):
            sizes.setdefault(int(level), int(size[:-1]))
    return sizes.get(1), sizes.get(2)


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0
