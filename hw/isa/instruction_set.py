"""An instruction set as a table: its rows by the operations they do, and what extensions add."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hw.isa.instruction import Instruction
from hw.isa.operation import Operation

Architecture = Literal["x86_64", "aarch64", "armv7"]
IsaName = Literal["sse2", "avx2", "avx512bw", "avx512vpopcntdq", "neon_aarch64", "neon_armv7"]
DOTS = (Operation.DOT, Operation.DOT_16)
"""Operations of one instruction, where bytes are widened to the words that it multiplies."""


@dataclass(frozen=True)
class Dot:
    """A dot product of bytes, whose second factors, the weights, are signed."""

    operation: Operation
    group: int
    """Neighbouring 8-bit channels that it multiplies into one 32-bit lane."""
    is_signed: bool = False
    """Whether the first factors are signed as well: activations less 128."""
    pixels: int = 1
    """Pixels in a register of first factors, and output channels in one of second ones, if that is
    more than one: lanes are of every pixel by every channel."""


@dataclass(frozen=True)
class Extension:
    """What some processors of a set have beyond it."""

    name: str
    features: tuple[tuple[str, ...], ...]
    """LLVM's features that it needs: all of one of these."""
    rows: Mapping[Operation, Instruction] = field(default_factory=dict)
    """Rows for operations that the set lacks, or does otherwise."""
    dots: tuple[Dot, ...] = ()
    """Dot products that are new, or take the place of those of the same operations."""
    without: tuple[Operation, ...] = ()
    """Operations that nobody needs any more."""
    tiles: bool = False
    """Whether it adds registers of rows (`hw.isa.tile_registers`)."""

    def is_in(self, features: Collection[str]) -> bool:
        """Whether a processor of these features has it."""
        return any(set(needed) <= set(features) for needed in self.features)


@dataclass(frozen=True)
class Isa:
    """A vector instruction set: which row does which operation of the kernels.

    A 32-bit lane belongs to one output channel; `lanes` of them make a register.
    """

    name: IsaName
    architecture: Architecture
    lanes: int
    registers: int
    rows: Mapping[Operation, Instruction] = field(hash=False)
    dots: tuple[Dot, ...]
    """Dot products of bytes; the first is `Operation.DOT`, which every set has."""
    features: tuple[str, ...] = ()
    """LLVM's features without which a processor does not have the set."""
    extensions: tuple[Extension, ...] = field(default=(), hash=False)
    """What may be added to it, each to what those before it left."""
    half_registers: Mapping[Operation, Instruction] = field(default_factory=dict, hash=False)
    """Rows for operations on half a register, of sets whose instructions take halves."""
    adds_half_registers: bool = False
    """Whether pairwise additions work on half registers (ARMv7: d, the halves of q)."""
    tiles: bool = False
    """Whether there are registers of rows beside them (`hw.isa.tile_registers`)."""

    def __getitem__(self, operation: Operation) -> Instruction:
        return self.rows[operation]

    def __contains__(self, operation: Operation) -> bool:
        return operation in self.rows

    @property
    def is_arm(self) -> bool:
        """Whether it is one of Arm's, 64 or 32 bits."""
        return self.architecture != "x86_64"

    @property
    def bytes(self) -> int:
        """Size of a register."""
        return 4 * self.lanes

    @property
    def counts_bytes(self) -> bool:
        """Whether counts are accumulated in bytes and need flushing."""
        return self.rows[Operation.COUNT].result.bits == 8

    @property
    def dot_group(self) -> int:
        """Neighbouring 8-bit channels that `Operation.DOT` multiplies into one 32-bit lane."""
        return self.dots[0].group

    def dot_for(self, low: int, high: int) -> Instruction | None:
        """The row that adds up most products at once with weights from `low` to `high`, if any."""
        for row in (self.rows[operation] for operation in DOTS):
            limit = 1 << (row.operands[2].bits - 1)
            if -limit <= low and high < limit:
                return row
        return None

    def instructions(self) -> tuple[Instruction, ...]:
        """Every row once, in order."""
        rows = (*self.rows.values(), *self.half_registers.values())
        return tuple({row.name: row for row in rows}.values())

    def extended(self, features: Collection[str]) -> Isa:
        """The set with all rows that these features of a processor allow."""
        isa = self
        for extension in self.extensions:
            if extension.is_in(features):
                isa = isa.with_extension(extension)
        return isa

    def with_extension(self, extension: Extension) -> Isa:
        """The set with the rows of an extension."""
        kept = {each: row for each, row in self.rows.items() if each not in extension.without}
        dots = {dot.operation: dot for dot in (*self.dots, *extension.dots)}
        return replace(
            self,
            rows=kept | dict(extension.rows),
            dots=tuple(dots.values()),
            tiles=self.tiles or extension.tiles,
        )
