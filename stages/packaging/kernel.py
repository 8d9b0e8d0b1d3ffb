"""What lowering a composite gives, packed or plain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """A lowered composite: its PrimFunc, scratch per task, and how many tasks it can use."""

    function: Any
    scratch_bytes: int
    max_tasks: int
    temporaries: tuple[int, ...] = ()
    """Bytes of the tensors that it keeps to itself, whose pointers follow those of its results."""
