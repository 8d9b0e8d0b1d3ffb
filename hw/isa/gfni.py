"""Bytes of numbers of few bits (GFNI): one instruction for 64 of them.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VGF2P8AFFINEQB. Every bit of
its result is a sum modulo 2 of bits of the same byte, the same ones in all eight bytes that a
matrix of 64 bits goes with. So it can bring any bits of a byte to any place, any number of times,
which repeats a sign; and it can set bits.
"""

from __future__ import annotations

from hw.isa.instruction import Instruction, Meaning, Vector
from hw.isa.lane import Lane, Lanes
from hw.isa.operation import Operation

REGISTER = Vector(64, 8)
WIDTHS = (1, 2, 4)
"""Bits of a number; so many are as many to a byte, and a register is filled from as many times
eight bytes."""
GFNI = "+gfni"


def _expanding(bits: int, is_odd: bool) -> Instruction:
    """The row for numbers of so many bits in two's complement, or for twice these and one."""
    name, kind = f"vgf2p8affineqb_{code_name(bits, is_odd)}", REGISTER.llvm
    matrices = [_matrix(bits, place // (8 * bits), is_odd) for place in range(REGISTER.lanes)]
    constant = ", ".join(f"i8 {matrix[place % 8]}" for place, matrix in enumerate(matrices))
    intrinsic = "@llvm.x86.vgf2p8affineqb.512"
    return Instruction(
        name,
        (REGISTER,),
        REGISTER,
        f"call {kind} {intrinsic}({kind} {{0}}, {kind} <{constant}>, i8 {int(is_odd)})",
        _meaning(bits, is_odd),
        f"declare {kind} {intrinsic}({kind}, {kind}, i8 immarg)",
    )


def code_name(bits: int, is_odd: bool) -> str:
    """What numbers stored in so many bits are called."""
    return f"{'odd' if is_odd else 'signed'}{bits}"


def operation_for(code: str) -> Operation:
    """The operation that makes bytes of numbers of a code."""
    return Operation(f"expand.{code}")


def _matrix(bits: int, copy: int, is_odd: bool) -> list[int]:
    """Which bits of a byte each bit of its `copy`-th number sums, that of the highest bit first."""
    rows = []
    for place in range(7, -1, -1):
        number = place - is_odd
        rows.append(0 if number < 0 else 1 << (copy * bits + min(number, bits - 1)))
    return rows


def _meaning(bits: int, is_odd: bool) -> Meaning:
    """Every byte has a number for each copy of the source in a register; a lane takes its own."""
    source = 8 * bits

    def meaning(x: Lanes) -> list[Lane]:
        found = []
        for place, lane in enumerate(x):
            number = lane.split(bits)[place // source].extend(8, True)
            found.append(number - ~number if is_odd else number)  # ~n is -n - 1
        return found

    return meaning


EXPANSIONS = {
    operation_for(code_name(bits, is_odd)): _expanding(bits, is_odd)
    for bits in WIDTHS
    for is_odd in (False, True)
}
