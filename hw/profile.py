"""A hardware profile: what the compiler may assume about the processor it builds for."""

from __future__ import annotations

import re
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hw import isa as sets
from hw.arm_cores import ARM_CORES
from hw.core_costs import Core as Core
from hw.core_costs import core_costs
from hw.isa import tile_registers
from hw.isa.instruction_set import Architecture, IsaName
from hw.isa.operation import Operation

ISA_NAMES: dict[Architecture, tuple[IsaName, ...]] = {
    arch: tuple(name for name, isa in sets.ISAS.items() if isa.architecture == arch)
    for arch in get_args(Architecture)
}
VECTOR_BITS: dict[IsaName, int] = {name: 32 * isa.lanes for name, isa in sets.ISAS.items()}
NEEDED: dict[IsaName, tuple[str, ...]] = {name: isa.features for name, isa in sets.ISAS.items()}
CORES: dict[Architecture, tuple[Core, ...]] = {
    "x86_64": (
        *("haswell", "alderlake", "cascadelake", "icelake", "sapphirerapids", "zen4", "zen5"),
        "generic-x86-64",
    ),
    "aarch64": tuple(ARM_CORES),
    "armv7": tuple(name for name, core in ARM_CORES.items() if core.has_aarch32),
}
_TRIPLE_HEADS: dict[Architecture, tuple[str, ...]] = {
    "x86_64": ("x86_64",),
    "aarch64": ("aarch64",),
    "armv7": ("armv7a", "armv7"),
}
_ZIG_HEADS: dict[Architecture, str] = {"x86_64": "x86_64", "aarch64": "aarch64", "armv7": "arm"}


class Hardware(BaseModel):
    """One target processor, self-checking; equal profiles give equal binaries."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Short name, equal to the board file's stem."""
    description: str = ""
    """One line for people; no part of any key."""
    sources: tuple[str, ...] = ()
    """Where the facts come from; no part of any key."""
    architecture: Architecture
    """Instruction set family."""
    triple: str
    """LLVM target triple."""
    cpu: str
    """LLVM processor name (-mcpu)."""
    features: tuple[str, ...] = ()
    """LLVM features beyond those of `cpu`, each as '+name'."""
    float_abi: Literal["hard"] | None = None
    """Floating-point calling convention, where the triple leaves it open."""
    zig_target: str
    """Target for the C compiler, with the oldest glibc a package must run on."""
    zig_cpu: str = "baseline"
    """Processor for the C compiler: what the runtime may use before it has checked features."""
    isa: IsaName
    """The vector instructions that kernels are written in."""
    core: Core
    """The microarchitecture whose costs steer schedules."""
    threads: int = Field(ge=1, le=1024)
    """Threads worth running: usually the number of cores."""
    memory_mib: int | None = Field(default=None, ge=1)
    """Main memory in MiB, where known: a network that does not fit is refused."""
    l1d_kib: int = Field(ge=1)
    """L1 data cache of one core, KiB."""
    l2_kib: int = Field(ge=1)
    """L2 cache that one core sees, KiB."""

    @field_validator("features")
    @classmethod
    def _well_formed(cls, features: tuple[str, ...]) -> tuple[str, ...]:
        for feature in features:
            if not re.fullmatch(r"\+[a-z0-9][a-z0-9._-]*", feature):
                raise ValueError(f"'{feature}' is not a feature; write '+name', as LLVM does")
        return tuple(sorted(set(features)))

    @field_validator("triple", "zig_target")
    @classmethod
    def _is_for_linux(cls, target: str) -> str:
        parts = re.split(r"[-.]", target)[1:]
        if "linux" not in parts or any(part.startswith("android") for part in parts):
            found = f"is for {'-'.join(parts)}" if parts else "names no system"
            raise ValueError(
                f"{target} {found}, and packages run on Linux alone as yet; accepted: targets of "
                "Linux, such as aarch64-linux-gnu"
            )
        return target

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Hardware:
        arch = self.architecture
        if self.isa not in ISA_NAMES[arch]:
            raise ValueError(f"isa {self.isa} does not exist on {arch}; {_one_of(ISA_NAMES[arch])}")
        missing = [feature for feature in NEEDED[self.isa] if feature not in self.features]
        if missing:
            raise ValueError(f"isa {self.isa} needs the features {', '.join(missing)}")
        if self.core not in CORES[arch]:
            raise ValueError(f"core {self.core} is not an {arch} core; {_one_of(CORES[arch])}")
        self._check_costs()
        if self.triple.split("-")[0] not in _TRIPLE_HEADS[arch]:
            raise ValueError(f"triple {self.triple} does not begin with {_TRIPLE_HEADS[arch][0]}-")
        if self.zig_target.split("-")[0] != _ZIG_HEADS[arch]:
            raise ValueError(
                f"zig_target {self.zig_target} does not begin with {_ZIG_HEADS[arch]}-"
            )
        if (self.float_abi is not None) != (arch == "armv7"):
            raise ValueError("float_abi is hard on armv7 and left out everywhere else")
        return self

    def _check_costs(self) -> None:
        """Raise ValueError unless the core has costs for all that kernels may be made of."""
        costs = core_costs(self.core)

        def has(isa: IsaName) -> bool:
            return all(costs.knows(row.name) for row in sets.ISAS[isa].instructions())

        if not has(self.isa):
            known = tuple(isa for isa in ISA_NAMES[self.architecture] if has(isa))
            raise ValueError(f"core {self.core} has no isa {self.isa}; {_one_of(known)}")
        isa = sets.isa_of(self)
        needed = [row.name for row in isa.instructions()] + (
            list(tile_registers.NAMES) if isa.tiles else []
        )
        unknown = [name for name in needed if not costs.knows(name)]
        if unknown:
            raise ValueError(f"core {self.core} has no {', '.join(unknown)}; leave out its feature")

    @property
    def vector_bits(self) -> int:
        """Width of one vector register of `isa`, bits."""
        return VECTOR_BITS[self.isa]

    @property
    def vnni(self) -> bool:
        """Whether u8 x s8 dot products into int32 exist (AVX512-VNNI or AVX-VNNI)."""
        return "+avx512vnni" in self.features or "+avxvnni" in self.features

    @property
    def multiplies_float16(self) -> bool:
        """Whether floats of 16 bits are multiplied and added up as they are (Arm's FEAT_FP16)."""
        return Operation.FLOAT16_MAC in sets.isa_of(self)

    def ingredients(self) -> dict[str, object]:
        """Return what may influence a build, as plain JSON data: all but words for people."""
        return self.model_dump(mode="json", exclude={"description", "sources"})


def _one_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"accepted: {', '.join(names)}"
