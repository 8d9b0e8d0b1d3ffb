"""Instruction sets: what each instruction means, and which rows the kernel families use."""

from __future__ import annotations

from typing import Protocol

from hw.arm_cores import features_of
from hw.core_costs import Core
from hw.isa.instruction import Instruction, Vector
from hw.isa.instruction_set import Dot, Extension, Isa, IsaName
from hw.isa.neon import AARCH64, ARMV7
from hw.isa.operation import Operation
from hw.isa.x86 import AVX2, AVX512BW, AVX512VPOPCNTDQ, SSE2
from hw.isa.x86_extensions import VNNI_256

__all__ = [
    "ISAS",
    "VNNI_256",
    "Dot",
    "Extension",
    "Instruction",
    "Isa",
    "Operation",
    "Vector",
    "isa_of",
]

ISAS: dict[IsaName, Isa] = {
    isa.name: isa for isa in (SSE2, AVX2, AVX512BW, AVX512VPOPCNTDQ, AARCH64, ARMV7)
}


class Processor(Protocol):
    """What a profile says of a processor's instructions."""

    @property
    def isa(self) -> IsaName:
        """The name of its instruction set."""

    @property
    def cpu(self) -> str:
        """LLVM's processor, which has features of its own."""

    @property
    def core(self) -> Core:
        """The core, whose table has costs of the rows of its features."""

    @property
    def features(self) -> tuple[str, ...]:
        """LLVM's features beside those of the processor, each as `+name`."""


def isa_of(hardware: Processor) -> Isa:
    """The instruction set of a profile, with the rows its features allow beyond the name's."""
    features = {*hardware.features, *features_of(hardware.cpu, hardware.core)}
    return ISAS[hardware.isa].extended(features)
