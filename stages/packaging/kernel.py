"""What lowering a composite gives, packed or plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """A lowered composite: its PrimFunc, scratch per task, and how many tasks it can use."""

    function: Any
    scratch_bytes: int
    max_tasks: int
    temporaries: tuple[int, ...] = ()
    """Bytes of the tensors that it keeps to itself, whose pointers follow those of its results."""
    helpers: Mapping[str, Any] = field(default_factory=dict)
    """PrimFuncs that it calls, by symbol: they are compiled beside it, not into it."""
