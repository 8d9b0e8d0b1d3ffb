"""Models of cores that whole runs are priced with, read from `hw/timing`.

`hw/cores` prices instructions, so that kernels can be chosen before they exist; a model here prices
machine code that has been counted, and what its loads and stores met in the caches.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class MemoryModel(_Data):
    """Caches of a core, and what a line costs that is not in the first of them."""

    l1_kib: int = Field(gt=0)
    l1_ways: int = Field(gt=0)
    l2_kib: int = Field(gt=0)
    l2_ways: int = Field(gt=0)
    random: bool
    """Whether victims are picked at random instead of the least recently used."""
    streams: int = Field(ge=0)
    """Streams of lines that the prefetcher tracks."""
    train: int = Field(gt=0)
    """Equal strides after which it fetches ahead."""
    distance: int = Field(ge=0)
    """Lines that it fetches ahead."""
    reach: int = Field(gt=0)
    """The longest stride in lines."""
    l2_latency: float = Field(ge=0)
    """Cycles that a load from the L2 cache takes beyond one from the first."""
    memory_latency: float = Field(ge=0)
    """Cycles that a load from memory takes beyond one from the L1 cache."""
    hidden: float = Field(ge=0)
    """Cycles of either that the core hides by running what comes after."""
    overlap: float = Field(ge=1)
    """How many misses are under way at once, where a program has more than one."""
    l2_line_cycles: float = Field(ge=0, alias="l2_line")
    """Cycles that a line takes between the two caches, at their full rate."""
    memory_line_cycles: float = Field(ge=0, alias="memory_line")
    """Cycles that a line takes from or to memory, at its full rate."""
    figures: dict[str, str]
    """The source of each figure."""

    def cycles(
        self,
        computing: float,
        l2_loads: float,
        memory_loads: float,
        l2_lines: float,
        memory_lines: float,
    ) -> float:
        """Cycles of code that computes so long, waits for loads and moves so many lines."""
        waiting = l2_loads * max(0.0, self.l2_latency - self.hidden)
        waiting += memory_loads * max(0.0, self.memory_latency - self.hidden)
        moving = max(l2_lines * self.l2_line_cycles, memory_lines * self.memory_line_cycles)
        return max(computing + waiting / self.overlap, moving)


class Row(_Data):
    """Vector instructions that take the same pipe for the same time."""

    names: tuple[str, ...] = Field(min_length=1)
    unit: Literal["alu", "mul", "div", "move"]
    latency: int = Field(ge=0)
    forwards: int | None = None
    """Latency to the sum of an instruction that accumulates onto it, if it is another."""
    adds: bool = False
    """Whether the sum takes the adding pipe later, as in multiply-accumulate of floats."""
    source: str


class InOrder(_Data):
    """The vector instructions of a core that runs them in order: see pipelines/modelling."""

    rows: tuple[Row, ...]

    @cached_property
    def by_name(self) -> dict[str, Row]:
        """The row of each instruction."""
        return {name: row for row in self.rows for name in row.names}


class Mca(_Data):
    """How llvm-mca is asked about a core."""

    cpu: str
    dispatch: int = Field(default=0, ge=0)
    """Micro-operations dispatched a cycle, where its own figure is known to be wrong."""
    source: str


class CoreModel(_Data):
    """A core: its caches, and how its machine code is priced."""

    description: str
    ghz: float = Field(gt=0)
    """The core's clock in the board that is described."""
    sources: dict[str, str]
    memory: MemoryModel
    in_order: InOrder | None = None
    mca: Mca | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> CoreModel:
        if (self.in_order is None) == (self.mca is None):
            raise ValueError("a model is either in order or llvm-mca's")
        named = set(self.memory.figures.values())
        named |= {row.source for row in self.in_order.rows} if self.in_order else set()
        named |= {self.mca.source} if self.mca else set()
        if unknown := named - self.sources.keys():
            raise ValueError(f"unknown sources: {', '.join(sorted(unknown))}")
        fields = {field.alias or name for name, field in MemoryModel.model_fields.items()}
        if missing := fields - {"figures"} - self.memory.figures.keys():
            raise ValueError(f"nothing says where {', '.join(sorted(missing))} come from")
        if self.in_order and len(self.in_order.by_name) != sum(
            len(row.names) for row in self.in_order.rows
        ):
            raise ValueError("an instruction stands in two rows")
        return self


def names() -> tuple[str, ...]:
    """The cores that have a model."""
    found = (item.name for item in (files("hw") / "timing").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def model(core: str) -> CoreModel:
    """The model of a core; raises FileNotFoundError for a core without one."""
    text = (files("hw") / "timing" / f"{core}.yaml").read_text(encoding="utf-8")
    return CoreModel.model_validate(yaml.safe_load(text))
