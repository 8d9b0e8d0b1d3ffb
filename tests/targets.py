"""One hardware profile per instruction set, and whether its code can run on this machine."""

from __future__ import annotations

import importlib.util
from functools import cache

import pytest

from hw import host
from hw.isa.tile_registers import FEATURES
from hw.profile import NEEDED, Hardware
from tests.stages.packaging.support import AARCH64, ARMV7, X86_64
from tests.under_qemu import qemu

__all__ = [
    "AARCH64",
    "ARMV7",
    "EVERY",
    "PROFILES",
    "is_native",
    "obstacle",
    "skip_unless_runnable",
]


def _x86(isa: str, *more: str) -> Hardware:
    fields = X86_64.model_dump() | {
        "name": "_".join([isa, *(f[7:] for f in more if f.startswith("+avx512"))]),
        "isa": isa,
        "features": (*NEEDED[isa], *more),  # type: ignore[index]
    }
    return Hardware.model_validate(fields)


SSE2, AVX2 = _x86("sse2"), _x86("avx2")
AVX512BW, AVX512VNNI = _x86("avx512bw"), _x86("avx512bw", "+avx512vnni")
AVX512BITALG = _x86("avx512bw", "+avx512bitalg")
AVX512VPOPCNTDQ = _x86("avx512vpopcntdq")
AVX512BF16 = _x86("avx512bw", "+avx512bf16")
"""Not among PROFILES: but for one row it is AVX512BW."""
AVX512VBMI = _x86("avx512bw", "+avx512vnni", "+avx512vbmi")
"""Not among PROFILES: but for what puts rows side by side it is AVX512VNNI."""
AVXVNNI = _x86("avx2", "+avxvnni").model_copy(update={"name": "avxvnni"})
VNNI_256 = _x86("avx2", "+avx512vl", "+avx512vnni")
"""Not among PROFILES: but for one row they are AVX2, and on both kernels' texts are the same."""
AMX = _x86("avx512bw", "+avx512vnni", *FEATURES).model_copy(update={"name": "amx"})
"""Not among PROFILES: its vector instructions are AVX512VNNI's."""
AMX_GFNI = _x86("avx512bw", "+avx512vnni", "+gfni", *FEATURES).model_copy(
    update={"name": "amx_gfni"}
)
"""Not among PROFILES: but for what expands weights it is AMX."""
DOTPROD, FP16, I8MM = (
    Hardware.model_validate(
        AARCH64.model_dump() | {"name": name, "core": core, "cpu": cpu, "features": features}
    )
    for name, core, cpu, features in (
        ("dotprod", "cortex-a76", "cortex-a76", ("+neon", "+dotprod")),
        ("fp16", "cortex-a76", "cortex-a76", ("+neon", "+dotprod", "+fullfp16")),
        ("i8mm", "neoverse-v1", "neoverse-n1", ("+neon", "+dotprod", "+i8mm")),
    )
)
"""Not among PROFILES: but for dot products of bytes, and products of float16, they are AARCH64."""
# Its kernels' text, on processors that count words in several instructions.
LOWERED = AVX512VPOPCNTDQ.model_copy(
    update={"name": "avx512vpopcntdq_lowered", "features": AVX512BW.features}
)
PROFILES = (
    *(SSE2, AVX2, AVX512BW, AVX512VNNI, AVX512BITALG, AVX512VPOPCNTDQ, LOWERED),
    *(AARCH64, ARMV7),
)
"""Every row of every instruction set occurs in one of these."""

EVERY = pytest.mark.parametrize("hardware", PROFILES, ids=lambda item: item.name)


@cache
def obstacle(hardware: Hardware) -> str:
    """Why code for a profile cannot run here, or nothing."""
    machine = _machine()
    if machine is not None and machine.architecture == hardware.architecture:
        # Tiles are emulated where there are none (`tests.tiles`).
        wanted = set(hardware.features).difference(FEATURES)
        missing = sorted(wanted.difference(machine.features))
        return f"this processor lacks {', '.join(missing)}" if missing else ""
    if hardware.architecture == "x86_64":
        return "code for x86-64 runs natively only"
    if needs_qemu(hardware) and qemu() is None:
        return "needs qemu-user: the emulator has no I8MM"
    found = all(importlib.util.find_spec(name) for name in ("unicorn", "elftools"))
    return "" if found else "needs the extra 'emulator'"


def needs_qemu(hardware: Hardware) -> bool:
    """Whether a profile has what the emulator lacks, and qemu has."""
    return "+i8mm" in hardware.features


def is_native(hardware: Hardware) -> bool:
    """Whether code for a profile runs on this processor itself."""
    machine = _machine()
    return machine is not None and machine.architecture == hardware.architecture


def skip_unless_runnable(hardware: Hardware) -> None:
    """Skip the running test, with the reason, where a profile's code cannot run."""
    if reason := obstacle(hardware):
        pytest.skip(reason)


@cache
def _machine() -> Hardware | None:
    try:
        return host.detect()
    except ValueError:
        return None
