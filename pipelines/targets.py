"""Instruction sets and cores by name: profiles for commands that work without a board."""

from __future__ import annotations

from collections.abc import Mapping

from hw import host
from hw.arm_cores import ARM_CORES
from hw.isa.gfni import GFNI
from hw.isa.instruction_set import Architecture, IsaName
from hw.isa.tile_registers import FEATURES
from hw.profile import CORES, ISA_NAMES, NEEDED, VECTOR_BITS, Core, Hardware
from pipelines.errors import UserError, did_you_mean

_TYPICAL: Mapping[IsaName, Core] = {
    "sse2": "generic-x86-64",
    "avx2": "haswell",
    "avx512bw": "cascadelake",
    "avx512vpopcntdq": "icelake",
    "neon_aarch64": "cortex-a53",
    "neon_armv7": "cortex-a53",
}
# Features of a core that add rows to the instruction sets of its widest registers, by their bits.
_MORE: Mapping[tuple[Core, int], tuple[str, ...]] = {
    **{(name, 128): core.features for name, core in ARM_CORES.items()},
    ("alderlake", 256): ("+avxvnni",),
    ("cascadelake", 512): ("+avx512vnni",),
    ("icelake", 512): ("+avx512vnni", "+avx512bitalg", "+avx512vbmi"),
    ("sapphirerapids", 512): ("+avx512vnni", "+avx512bitalg", "+avx512vbmi", GFNI, *FEATURES),
    ("zen4", 512): ("+avx512vnni", "+avx512bitalg", "+avx512vbmi"),
    ("zen5", 512): ("+avx512vnni", "+avx512bitalg", "+avx512vbmi"),
}


def profiles(isa: str | None, core: str | None) -> list[Hardware]:
    """A profile per instruction set, on the core asked for or a typical one.

    Raises UserError for names that do not exist or do not go together.
    """
    sets = [name for names in ISA_NAMES.values() for name in names]
    if isa is not None and isa not in sets:
        raise UserError(f"isa={isa}: unknown instruction set{did_you_mean(isa, sets)}")
    cores = list(dict.fromkeys(name for names in CORES.values() for name in names))
    if core is not None and core not in cores:
        raise UserError(f"core={core}: unknown core{did_you_mean(core, cores)}")
    found = []
    for name in sets:
        if isa in (None, name):
            chosen = next((c for c in cores if c == core), _TYPICAL[name])
            profile = _profile(name, chosen)
            if profile is not None:
                found.append(profile)
    if not found:
        raise UserError(f"core={core} has no instruction set {isa or 'here'}")
    return found


def native() -> Hardware | None:
    """The profile of this machine, or None where it cannot be told."""
    try:
        return host.detect()
    except (OSError, ValueError):
        return None


def _profile(isa: IsaName, core: Core) -> Hardware | None:
    architecture = next(a for a, names in ISA_NAMES.items() if isa in names)
    if core not in CORES[architecture]:
        return None
    fields = {
        "name": isa,
        "architecture": architecture,
        "triple": _TRIPLES[architecture],
        "cpu": "x86-64" if architecture == "x86_64" else core.replace("generic-aarch64", "generic"),
        "features": (*NEEDED[isa], *_MORE.get((core, VECTOR_BITS[isa]), ())),
        "zig_target": _ZIG[architecture],
        "isa": isa,
        "core": core,
        "threads": 1,
        "l1d_kib": 32,
        "l2_kib": 256,
    }
    if architecture == "armv7":
        fields["float_abi"] = "hard"
    try:
        return Hardware.model_validate(fields)
    except ValueError:
        return None  # an instruction set that the core does not have


_TRIPLES: Mapping[Architecture, str] = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "armv7": "armv7a-linux-gnueabihf",
}
_ZIG: Mapping[Architecture, str] = {
    "x86_64": "x86_64-linux-gnu.2.28",
    "aarch64": "aarch64-linux-gnu.2.28",
    "armv7": "arm-linux-gnueabihf.2.28",
}
