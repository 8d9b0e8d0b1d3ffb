"""What lowering a composite gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stages.nodes import PrimFunc

TASKS, TASKS_OF_TILES = 4, 2
"""Tasks that a call is split into for each thread, of several; and where it uses matrix tiles: what
overlaps within a task is more."""


@dataclass(frozen=True)
class Helper:
    """A function that kernels call: compiled beside them, not into them; equal ones are one."""

    symbol: str
    function: PrimFunc
    problem: Mapping[str, Any]
    """All that decides its code but the processor, as plain JSON data."""


def digest_of(problem: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for plain JSON data."""
    text = json.dumps(problem, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class FewThreads:
    """With so many threads or fewer, a call is split into so many tasks at most."""

    threads: int
    tasks: int


@dataclass(frozen=True)
class Kernel:
    """A lowered composite: its PrimFunc, scratch per thread, and how many tasks it can use."""

    function: PrimFunc
    scratch_bytes: int
    max_tasks: int
    temporaries: tuple[int, ...] = ()
    """Bytes of the tensors that it keeps to itself, whose pointers follow those of its results."""
    helpers: tuple[Helper, ...] = ()
    """What the kernel calls."""
    uses_tiles: bool = False
    """Whether it uses registers that the operating system may refuse (AMX)."""
    few: FewThreads | None = None
    """Where few threads had better have fewer tasks."""

    def capped(self, most: int | None) -> Kernel:
        """The kernel, split into so many tasks at most: so many threads share a call."""
        if most is None or most >= self.max_tasks:
            return self
        few = self.few if self.few is not None and self.few.tasks < most else None
        return replace(self, max_tasks=most, few=few)
