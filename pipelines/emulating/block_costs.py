"""What blocks of machine code cost: instructions, emulated, and cycles, modelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hw import core_models
from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.modelling import cycle_prices
from pipelines.modelling.code_blocks import Block, executed, joined
from pipelines.modelling.memory import NO_MEMORY, Memory


@dataclass(frozen=True)
class Cost:
    """What some code takes; cycles are None where they cannot be modelled."""

    instructions: float = 0.0
    cycles: float | None = None
    in_l1: float | None = None
    """Cycles, as if every load found its data in the L1 cache."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.instructions + other.instructions,
            _sum(self.cycles, other.cycles),
            _sum(self.in_l1, other.in_l1),
        )

    def __mul__(self, part: float) -> Cost:
        scaled = (None if each is None else each * part for each in (self.cycles, self.in_l1))
        return Cost(self.instructions * part, *scaled)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data, every figure called what it is."""
        found = {
            "instructions_emulated": self.instructions,
            "cycles_modelled": self.cycles,
            "cycles_modelled_in_l1": self.in_l1,
        }
        return {name: round(value) for name, value in found.items() if value is not None}


def _sum(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else left + right


@dataclass(frozen=True)
class Pricing:
    """How the blocks that a board runs are priced."""

    core: str
    architecture: str
    memory: Memory
    lack: str | None = None
    """Why no cycles can be modelled."""

    def cost(self, blocks: Sequence[Block]) -> Cost:
        """Return what some blocks cost together."""
        return total(self.costs({"": blocks}).values())

    def costs(self, groups: Mapping[str, Sequence[Block]]) -> dict[str, Cost]:
        """Return what each group of blocks costs."""
        if self.lack:
            return {name: Cost(executed(blocks)) for name, blocks in groups.items()}
        if self.architecture == "aarch64":
            groups = {name: joined(blocks) for name, blocks in groups.items()}
        together = [block for blocks in groups.values() for block in blocks]
        # The cycles of all code are computed at once: each call of the model's tools takes seconds.
        priced = iter(cycle_prices.cycles(together, self.core, self.architecture))
        found = {}
        for name, blocks in groups.items():
            own = [next(priced) for _ in blocks]
            cycles, in_l1 = sum(x.cycles for x in own), sum(x.computing for x in own)
            found[name] = Cost(executed(blocks), cycles, in_l1)
        return found


def pricing_of(hardware: Hardware) -> Pricing:
    """Return how a board's blocks are priced; where nothing can model it, without cycles."""
    core, architecture = hardware.core, hardware.architecture
    if core not in core_models.names():
        lack = f"there is no model of the {core}; there are {', '.join(core_models.names())}"
        return Pricing(core, architecture, NO_MEMORY, lack)
    try:
        cycle_prices.rounds_of([_NOP[architecture]], core, architecture)
    except UserError as error:
        return Pricing(core, architecture, NO_MEMORY, error.message)
    return Pricing(core, architecture, cycle_prices.memory(core))


_NOP = {"aarch64": bytes.fromhex("1f2003d5"), "armv7": bytes.fromhex("00f020e3")}
"""A block that any model prices, if what it needs is installed."""


def total(costs: Iterable[Cost]) -> Cost:
    """Return what several cost together."""
    found = Cost()
    for cost in costs:
        found += cost
    return found
