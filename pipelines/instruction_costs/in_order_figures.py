"""Figures of machine instructions from a model of an in-order core: `hw/timing`.

What such a core starts together is told by pipes: the two slots of a cycle, the halves of the two
vector pipes, and the one for loads. A vector operation of 128 bits takes the first slot and both
halves, one of 64 bits either slot and a half.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from hw import core_models
from hw.profile import Core
from pipelines.errors import UserError
from pipelines.instruction_costs.figures import Figure
from pipelines.modelling import out_of_order
from pipelines.modelling.arm_decoder import DecodedInstruction, Decoder

SOURCE = "in_order"
_ENCODING = re.compile(r"encoding: \[([0-9a-fx,]+)\]")
_HALVES = ("low", "high")


def is_known(core: Core) -> bool:
    """Whether a core has such a model."""
    return core in core_models.names() and core_models.model(core).in_order is not None


def source(core: Core) -> str:
    """What made the figures."""
    return (
        f"hw/timing/{core}.yaml, where each has its source: slots of a cycle, halves of vector "
        "pipes, and the pipe for loads"
    )


def figures(core: Core, triple: str, lines: Sequence[str]) -> dict[str, Figure]:
    """The figure of every line of machine code, each on its own."""
    model = core_models.model(core).in_order
    assert model
    decoder = Decoder("aarch64", model)
    found = {}
    for line, code in zip(lines, _assembled(triple, lines), strict=True):
        (instruction,) = decoder.instructions(code)
        found[line] = Figure(_uses(instruction), float(instruction.latency), SOURCE)
    return found


def _uses(instruction: DecodedInstruction) -> dict[str, float]:
    """What an instruction takes, by the pipes that can give it."""
    slots = {
        "first": {"slot0": 1.0},
        "any": {"slot0+slot1": 1.0},
        "both": {"slot0": 1.0, "slot1": 1.0},
    }
    uses = dict(slots[instruction.slot])
    if instruction.unit in {"load", "store"}:
        uses["ls"] = float(instruction.cycles)
        if instruction.cycles > 1:
            uses["slot0"] = uses.get("slot0", 0.0) + instruction.cycles - 1
        if (
            instruction.unit == "load" and instruction.kind == "vector"
        ):  # no product starts beside it
            uses |= {f"mul_{half}": 1.0 for half in _HALVES}
        return uses
    halves = [f"{instruction.unit}_{half}" for half in _HALVES]
    uses |= (
        dict.fromkeys(halves, 1.0) if instruction.halves == 2 else {"+".join(sorted(halves)): 1.0}
    )
    return uses


def _assembled(triple: str, lines: Sequence[str]) -> list[bytes]:
    command = [out_of_order.tool("llvm-mc"), f"-triple={triple}", "-mattr=+all", "-show-encoding"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = [
        bytes(int(byte, 16) for byte in group.split(","))
        for group in _ENCODING.findall(done.stdout)
    ]
    if len(found) != len(lines):
        raise UserError(f"llvm-mc did not assemble every line: {done.stderr.strip()[-500:]}")
    return found
