"""A digest of an instruction set: its rows' text, and what their meanings do on fixed inputs."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from hw.isa.arrays import array_lanes, registers
from hw.isa.instruction import Instruction
from hw.isa.instruction_set import Isa
from hw.isa.operation import Operation
from hw.isa.tile_registers import COLUMNS, ROWS, bfloat16_dot, tile_dot

TRIALS = 4
FLOAT16_OPERATIONS = frozenset(each for each in Operation if each.name.startswith("FLOAT16_"))


def fingerprint(isa: Isa, *, float16: bool = False) -> str:
    """Changes whenever a row's LLVM IR, or its meaning on some fixed inputs, does.

    Rows of floats of 16 bits count where they are asked for: no other kernel has a use for them.
    """
    skipped = frozenset() if float16 else FLOAT16_OPERATIONS
    own = {str(name): row for name, row in isa.rows.items() if name not in skipped}
    rows_of = own | {f"half/{name}": row for name, row in isa.half_registers.items()}
    rows = "\n".join(f"{name} {_row(rows_of[name])}" for name in sorted(rows_of))
    if isa.tiles:
        dots = (tile_dot(ROWS, COLUMNS), bfloat16_dot(ROWS, COLUMNS))
        rows += f"\ntiles {' '.join(map(_row, dots))}"
    return hashlib.sha256(rows.encode()).hexdigest()


@cache
def _row(row: Instruction) -> str:
    rng = np.random.default_rng(1)
    operands = [
        array_lanes(rng.integers(0, 256, (TRIALS, kind.bytes), np.uint8).view(f"u{kind.bits // 8}"))
        for kind in row.operands
    ]
    results = [
        registers(row.execute(operands, immediate)).tobytes()
        for immediate in row.immediates or (None,)
    ]
    text = f"{row.name} {row.operands} {row.result} {row.emit} {row.declares}"
    return hashlib.sha256(text.encode() + b"".join(results)).hexdigest()
