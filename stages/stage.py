"""What a row of the pipeline says; the rows themselves are stages.STAGES."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stage:
    """One row of the pipeline; a pure function and all that may influence its result."""

    name: str
    """Its folder in the store and its task, `build:<name>`."""
    entry: str
    """`module:function`, called with keyword arguments only."""
    gives: str
    """The kind of its artifact: source, model, golden, table or files (see stages.artifacts)."""
    takes: Mapping[str, str] = field(default_factory=dict)
    """Argument name → the stage whose artifact is handed in."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Argument name → the class in stages.options of which an instance is handed in."""
    hardware: bool = False
    """Whether the hardware profile is handed in as `hardware`."""
    items: bool = False
    """Whether the item store is handed in as `memo`."""
    has_passes: bool = False
    """Whether it is a table of passes, and hands each of them to an `observe` that it is given."""
    tools: tuple[str, ...] = ()
    """Distributions whose versions belong to the key."""
