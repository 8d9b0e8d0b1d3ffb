"""The loops of steps that are not left to LLVM: what each loads, and whether there is one."""

from __future__ import annotations

from hw.isa import Isa
from stages.kernels.operand_storage import BYTE_BITS, WORD_BYTES
from stages.kernels.signature import COUPLE, KernelSignature
from stages.synthesizing.loop_schedule import CrowdedError, Load
from stages.synthesizing.software_pipeline import Loop
from stages.synthesizing.vector_program import Program

POINTERS = 18
"""General registers for pointers, beside those for addresses, a count, and what LLVM keeps for
itself."""


def loop_of(signature: KernelSignature, program: Program, isa: Isa) -> Loop:
    """The loop of a step of a popcount kernel; CrowdedError if it does not fit the registers."""
    size, step = signature.word_bits // BYTE_BITS, signature.words_per_step
    row = signature.channels * size
    loads, iterations = {}, {}
    for name in program.inputs:
        operand, (part, place) = name[0], (int(x) for x in name[1:].split("."))
        plane, number = divmod(part, step)
        if operand == "a":
            distance = size * signature.word_bytes // WORD_BYTES
            loads[name] = Load(f"a{plane}.{place}", number * distance, size, distance)
            iterations[f"a{plane}.{place}"] = step * distance
        elif operand == "w":
            couple, word = divmod(number, COUPLE)
            offset = COUPLE * (couple * row + place * isa.bytes) + word * isa.bytes
            loads[name] = Load(f"w{plane}", offset, isa.bytes)
            iterations[f"w{plane}"] = step * row
    vectors = {load.pointer for load in loads.values() if not load.is_word}
    loop = Loop(program, loads, {name: by for name, by in iterations.items() if name in vectors})
    if len(loop.pointers) + len(loop.strides) > POINTERS:
        raise CrowdedError(f"{len(loop.pointers)} pointers")
    return loop


def ahead(signature: KernelSignature, program: Program, isa: Isa) -> int:
    """How many instructions load, before the loop of a step, what its first iteration reads."""
    moments = loop_of(signature, program, isa).moments
    return sum(m.paired is not None and m.paired.is_next for m in moments)


def fits(signature: KernelSignature, program: Program, isa: Isa) -> bool:
    """Whether there is a loop of a step within the registers."""
    try:
        loop_of(signature, program, isa)
    except CrowdedError:
        return False
    return True
