"""Operands to run a row of an instruction set on: its extremes, and random ones."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hw.isa import Instruction, Isa, Operation

Array = np.ndarray[Any, Any]
ROUNDS = 24
LOOKUPS = Operation.LOOKUP_FOUR, Operation.LOOKUP_FOUR_ELSE
"""Rows of so many operands that their extremes have too many combinations."""

FLOAT16_ROWS = ["fmla.8h", "fadd.8h", "faddp.8h", "fcvtl", "fcvtl2"]
"""Rows that floats of 16 bits alone are operands of."""


def limits(isa: Isa, row: Instruction) -> list[tuple[str, int, int]]:
    """dtype, smallest and largest value of each operand: all there are, but what `dot` is for."""
    if row.name == isa[Operation.DOT].name:
        wide = row.operands[1].bits
        return [("int32", -(1 << 30), 1 << 30), (f"uint{wide}", 0, 255), (f"int{wide}", -128, 127)]
    return [(f"uint{kind.bits}", 0, (1 << kind.bits) - 1) for kind in row.operands]


def pairs_of_bfloat16(row: Instruction) -> list[Array]:
    """Registers of floats and of bfloat16, two a lane: numbers of all sizes that are normal."""
    rng = np.random.default_rng(11)
    rounds, lanes = 2 * ROUNDS, row.result.lanes
    totals = rng.normal(size=(rounds, lanes)).astype(np.float32).view(np.uint32)
    wide = rng.normal(size=(2, rounds, 2 * lanes)) * 2.0 ** rng.integers(-20, 20, (rounds, 1))
    return [totals, *(wide.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)]


def floats(row: Instruction) -> list[Array]:
    """Registers [round, lane] of floats: sums that cancel, ties, far apart, and random ones.

    None is so small that 32-bit ARM takes it for 0.
    """
    rng = np.random.default_rng(7)
    one, ulp = 1.0, 2.0**-23
    special = [
        (0.0, 0.0, -0.0),
        (-one, one, one),
        (2.0**-80, one + ulp, one + ulp / 2 * 2**12),  # a tie of float32 that the addend decides
        (-(2.0**-80), one + ulp, one + ulp / 2 * 2**12),
        (-(one + 2 * ulp), one + ulp, one + ulp),  # all but the last bits cancel
        (one, 2.0**60, 2.0**60),
    ]
    shape = (ROUNDS, row.result.lanes)
    rounds = [np.repeat(np.array(s, np.float32)[:, None], shape[1], 1) for s in special]
    random = rng.normal(size=(3, *shape)).astype(np.float32)
    found = [np.concatenate([[r[i] for r in rounds], random[i]]) for i in range(3)]
    return [np.ascontiguousarray(values, np.float32).view(np.uint32) for values in found]


def halves(row: Instruction) -> list[Array]:
    """Registers [round, lane] of floats of 16 bits: the largest and the smallest, what overflows,
    sums that cancel, ties, and random ones of all sizes."""
    rng = np.random.default_rng(9)
    one, ulp, largest, least = 1.0, 2.0**-10, 65504.0, 2.0**-24
    special = [
        (0.0, 0.0, -0.0),
        (largest, largest, one),  # infinite
        (-largest, largest, one),
        (np.inf, one, one),
        (least, least, one / 2),  # a tie of the smallest ones
        (2.0**-14, 2.0**-8, 2.0**-8),  # a product of no normal one
        (least, one + ulp, one + ulp / 2 * 2**6),  # a tie that the addend decides
        (-(one + 2 * ulp), one + ulp, one + ulp),
    ]
    shape = (ROUNDS, row.operands[0].lanes)
    found = []
    for number in range(len(row.operands)):
        rounds = [np.full(shape[1], values[number], np.float16) for values in special]
        random = rng.normal(size=shape) * 2.0 ** rng.integers(-14, 8, shape)
        found.append(np.concatenate([rounds, random.astype(np.float16)]).view(np.uint16))
    return found


def tables(row: Instruction) -> list[Array]:
    """Registers of a table, of random bytes, and last of all indices: every byte, then any."""
    rng = np.random.default_rng(13)
    kind = row.result
    shape = 256 // kind.lanes + 2 * ROUNDS, kind.lanes
    found = [rng.integers(0, 256, shape, np.uint8) for _ in row.operands]
    found[-1].reshape(-1)[:256] = np.arange(256)
    return found


def operands(isa: Isa, row: Instruction) -> list[Array]:
    """Registers [round, lane] of each operand: combinations of extremes, then random values.

    The extremes of both signs are among them; each fills a register or every other lane of it.
    """
    if row.name == isa[Operation.FLOAT_MAC].name:
        return floats(row)
    if row.name == isa[Operation.BFLOAT16_DOT].name:
        return pairs_of_bfloat16(row)
    if row.name in FLOAT16_ROWS:
        return halves(row)
    if row.name in (isa[each].name for each in LOOKUPS if each in isa):
        return tables(row)
    rng = np.random.default_rng(len(row.name))
    ranges = limits(isa, row)
    extremes = [sorted({low, 1, high // 2, high // 2 + 1, high}) for _, low, high in ranges]
    corners = list(product(*extremes))
    found = []
    for number, (kind, (dtype, low, high)) in enumerate(zip(row.operands, ranges, strict=True)):
        full = np.array([corner[number] for corner in corners], dtype)[:, None]
        full = np.repeat(full, kind.lanes, axis=1)
        striped = full.copy()
        striped[:, ::2] = np.roll(full, 1, axis=0)[:, ::2]
        random = rng.integers(low, high, (ROUNDS, kind.lanes), dtype, endpoint=True)
        found.append(np.concatenate([full, striped, random]).view(f"uint{kind.bits}"))
    return found
