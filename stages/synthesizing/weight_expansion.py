"""Weights that are stored in fewer bits than they are multiplied in, made bytes on the way.

A layer that waits for its weights to come from beyond the L2 cache waits less for fewer bytes.
"""

from __future__ import annotations

import numpy as np

from hw.isa import Instruction, Isa
from hw.isa.arrays import array_lanes, registers
from hw.isa.gfni import REGISTER, operation_for
from stages.kernels.llvm import FunctionText
from stages.kernels.operand_storage import BYTE_BITS, WeightCode
from stages.kernels.signature import KernelSignature


def can_expand(code: WeightCode, isa: Isa) -> bool:
    """Whether an instruction set makes bytes of what a code stores."""
    return operation_for(code.name) in isa


def row_for(code: WeightCode, isa: Isa) -> Instruction:
    """The instruction that makes bytes of the numbers that a code stores."""
    return isa[operation_for(code.name)]


def load_expanded(
    text: FunctionText, signature: KernelSignature, isa: Isa, place: str, number: int = 0
) -> str:
    """The register of weights, bytes, of the `number`-th ones that are stored from `place` on."""
    code, size = signature.code, REGISTER.bytes // signature.expansion
    assert code is not None
    stored = text.load(f"<{size} x i8>", place, 1, number * size)
    return text.apply(row_for(code, isa), text.repeated(stored, size, REGISTER))


def prove_expansion(code: WeightCode, isa: Isa) -> None:
    """Raise AssertionError unless every stored byte becomes the weights that it stands for.

    The first numbers of all bytes come first, then those of the next bits. Each place of a register
    meets every byte, beside others that differ from it.
    """
    size = BYTE_BITS * code.bits
    places = np.arange(REGISTER.lanes)
    stored = (np.arange(1 << BYTE_BITS)[:, None] + 37 * places % size).astype(np.uint8)
    found = registers(row_for(code, isa).execute([array_lanes(stored)])).view(np.int8)
    numbers = stored >> code.bits * (places // size) & ((1 << code.bits) - 1)
    wrong = np.argwhere(found != code.weights(numbers))
    assert not len(wrong), f"byte {wrong[0][1]} of expanded weights is not what is stored"
