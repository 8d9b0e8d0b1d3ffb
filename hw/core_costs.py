"""Costs of a core, instruction by instruction, read from `hw/cores`.

A micro-operation occupies one pipe for one cycle; a core starts as many a cycle as it has pipes
that can take them. Decoding, and waiting for results, are left out: see `CoreCosts.cycles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import numpy as np

Core = Literal[
    "cortex-a53",
    "cortex-a72",
    "cortex-a76",
    "neoverse-n1",
    "neoverse-v1",
    "neoverse-v2",
    "generic-aarch64",
    "haswell",
    "alderlake",
    "cascadelake",
    "icelake",
    "sapphirerapids",
    "zen4",
    "zen5",
    "generic-x86-64",
]

FRICTION = 0.1


class UnknownInstructionError(LookupError):
    """A core's table has no such instruction; the message names both."""


class InstructionCosts(BaseModel):
    """What one instruction, or the sequence that the compiler makes of a row, costs."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    uses: dict[str, float] = Field(min_length=1)
    """Number of micro-operations, by the pipes that can take them, as `p0+p5`."""
    latency: float = Field(ge=0)
    """Cycles from the slowest operand to the result."""
    source: str
    """Where the figures come from: names of the table's sources, joined by `+`."""


class CoreCosts(BaseModel):
    """The table of one core. A row that takes an immediate has the costs of its dearest one."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    description: str
    """Which processor this is."""
    sources: dict[str, str] = Field(min_length=1)
    """Where figures come from, by the name that instructions refer to."""
    pipes: tuple[str, ...] = Field(min_length=1)
    """Execution pipes, by the names of the source."""
    issue: float = Field(gt=0)
    """Instructions started in a cycle at most; its source is `issue`."""
    l2_line_cycles: float = Field(default=0, ge=0, alias="line")
    """Cycles that 64 bytes from the L2 cache take beside arithmetic; its source is `line`. 0
    where nobody measured it."""
    memory_line_cycles: float = Field(default=0, ge=0, alias="memory")
    """Cycles that 64 bytes from memory take, or to it, beside arithmetic; its source is `memory`. 0
    where nobody measured it."""
    exposed_epilogue: float = Field(default=0, ge=0)
    """Cycles that each register of a tile's sums takes alone, of which results are not computed
    beside the products of the next tile; its source is `exposed_epilogue`. 0 where nobody
    measured it."""
    overlap_window: int = Field(default=0, ge=0)
    """Registers of a tile's sums that the core looks ahead over: their epilogue is hidden."""
    instructions: dict[str, InstructionCosts] = Field(min_length=1)
    """Costs by the name of a row of `hw.isa`; `load_N` and `broadcast_N` fill N bytes,
    `broadcast_half_N` with half of them twice."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> CoreCosts:
        for name, costs in self.instructions.items():
            for pipes, count in costs.uses.items():
                if not set(pipes.split("+")) <= set(self.pipes):
                    raise ValueError(f"{name} uses {pipes}, but the pipes are {self.pipes}")
                if count <= 0:
                    raise ValueError(f"{name} uses {pipes} {count} times")
            if not set(costs.source.split("+")) <= self.sources.keys():
                raise ValueError(f"{name} has an unknown source: {costs.source}")
        for figure in ("issue", *(self.optional_figures().keys() - {"overlap_window"})):
            if figure not in self.sources:
                raise ValueError(f"nothing says where the figure '{figure}' comes from")
        return self

    def optional_figures(self) -> dict[str, float]:
        """Figures that are no instruction's and not every core has, by their names in the file."""
        fields = type(self).model_fields.items()
        optional = {field.alias or name: name for name, field in fields if not field.is_required()}
        found = {stored: getattr(self, name) for stored, name in optional.items()}
        return {stored: figure for stored, figure in found.items() if figure}

    def knows(self, name: str) -> bool:
        """Whether the table has an instruction."""
        return name in self.instructions

    def latency(self, name: str) -> float:
        """Cycles from the slowest operand of an instruction to its result."""
        return self._find(name).latency

    def block(self, counts: Mapping[str, float], scalar: float = 0, chain: float = 0) -> float:
        """Cycles per repetition of a loop body, at least: pipes, issue, and what waits.

        `scalar` counts instructions that no pipe of the table runs, such as a loop's own; `chain`
        is the latency of the longest chain from one repetition to the next. A tenth of the time
        that starting takes is added, so that of two equal blocks the one with fewer instructions
        is the cheaper: nothing keeps every pipe full all the time.
        """
        started = (sum(counts.values()) + scalar) / self.issue
        return max(self.cycles(counts), started, chain) + FRICTION * started

    def cycles(self, counts: Mapping[str, float]) -> float:
        """Cycles per repetition of a block with so many of each instruction, at least.

        Micro-operations that can only go to some pipes keep these busy, so the fullest set of
        pipes bounds the block from below. A core reaches the bound if the block is long enough to
        hide latencies and its front end keeps up.
        """
        import numpy as np  # here, as `doit list` reads boards, and has no use for it

        busy = np.zeros(len(self._sets))
        for name, count in counts.items():
            self._find(name)
            busy += self._pressure[name] * count
        return float(busy.max())

    @cached_property
    def _sets(self) -> tuple[frozenset[str], ...]:
        """Every set of pipes."""
        sizes = range(1, len(self.pipes) + 1)
        return tuple(frozenset(chosen) for n in sizes for chosen in combinations(self.pipes, n))

    @cached_property
    def _pressure(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """For each instruction the cycles it keeps each set of pipes busy on its own."""
        import numpy as np

        return {
            name: np.array(
                [
                    sum(n for pipes, n in costs.uses.items() if chosen.issuperset(pipes.split("+")))
                    / len(chosen)
                    for chosen in self._sets
                ]
            )
            for name, costs in self.instructions.items()
        }

    def _find(self, name: str) -> InstructionCosts:
        try:
            return self.instructions[name]
        except KeyError:
            message = f"no costs of the instruction '{name}' for the core: {self.description}"
            raise UnknownInstructionError(message) from None

    def ingredients(self) -> dict[str, object]:
        """Return the figures as plain JSON data: they decide algorithms and tiles."""
        without_source = {"instructions": {"__all__": {"source"}}}
        return self.model_dump(
            mode="json",
            by_alias=True,
            exclude={"description": True, "sources": True, **without_source},
        )


@cache
def core_costs(core: str) -> CoreCosts:
    """The costs of a core; raises FileNotFoundError for a core without a table."""
    text = (files("hw") / "cores" / f"{core}.yaml").read_text(encoding="utf-8")
    return CoreCosts.model_validate(yaml.safe_load(text))
