"""Costs of a core: cycles per vector instruction by the part it plays, read from `hw/cores`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml
from pydantic import BaseModel, ConfigDict, Field


class CoreCosts(BaseModel):
    """Reciprocal throughput in cycles per full-width vector instruction."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    description: str
    """Which processor this is."""
    sources: tuple[str, ...] = Field(min_length=1)
    """Where the figures come from."""
    logic: float = Field(gt=0)
    """AND, XOR."""
    add: float = Field(gt=0)
    """Integer addition."""
    count: dict[str, float]
    """Population count of a whole register, by instruction set, emulation included."""
    dot: dict[str, float]
    """8-bit multiply-accumulate, operands' widening included, by instruction."""

    def ingredients(self) -> dict[str, object]:
        """Return the figures as plain JSON data: they decide algorithms and tiles."""
        return self.model_dump(mode="json", exclude={"description", "sources"})


@cache
def core_costs(core: str) -> CoreCosts:
    """The costs of a core; raises FileNotFoundError for a core without a table."""
    text = (files("hw") / "cores" / f"{core}.yaml").read_text(encoding="utf-8")
    return CoreCosts.model_validate(yaml.safe_load(text))
