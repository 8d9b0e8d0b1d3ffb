"""Which pipes run an instruction, from the cycles of pairs of instructions in one block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from pipelines.measuring.figures import throughput

Pair = tuple[str, str]


def widths(reciprocals: Mapping[str, float]) -> dict[str, int]:
    """How many pipes run each instruction: as many as start one a cycle.

    ValueError for one that starts less than once a cycle; it is several micro-operations, which
    timing alone does not take apart.
    """
    slow = [line for line, cycles in reciprocals.items() if cycles > 1.25]
    if slow:
        raise ValueError(f"more than one cycle each: {'; '.join(slow)}")
    return {line: round(1 / cycles) for line, cycles in reciprocals.items()}


def pairs(width: Mapping[str, int]) -> list[Pair]:
    """The pairs to time: those of instructions that do not run everywhere."""
    most = max(width.values())
    narrow = sorted(line for line in width if width[line] < most)
    return list(combinations(narrow, 2))


def mix(pair: Pair, width: Mapping[str, int]) -> list[str]:
    """A block that takes one cycle if the two share no pipe, and more the more they share."""
    return [line for line in pair for _ in range(width[line])]


def placed(
    width: Mapping[str, int], cycles: Callable[[Pair], float], prefix: str
) -> dict[str, str]:
    """The pipes of each instruction, as `fp0+fp1`, that explain the pairs best.

    Pipes are numbered as they come up: timing tells which instructions share some, not which pipe
    the manufacturer calls the first.
    """
    names = [f"{prefix}{number}" for number in range(max(width.values()))]
    found: dict[str, str] = {}
    for line in sorted(width, key=lambda line: (width[line] == len(names), line)):
        candidates = ["+".join(chosen) for chosen in combinations(names, width[line])]
        known = [other for other in found if width[other] < len(names) > width[line]]
        times = {other: cycles((min(line, other), max(line, other))) for other in known}

        def error(candidate: str, line: str = line, times: Mapping[str, float] = times) -> float:
            return sum(
                abs(bound([(candidate, width[line]), (found[other], width[other])]) - measured)
                for other, measured in times.items()
            )

        found[line] = min(candidates, key=error)
    return found


def bound(loads: Sequence[tuple[str, int]]) -> float:
    """Cycles of a block, given each instruction's pipes and how often it occurs."""
    uses: dict[str, float] = {}
    for pipes, count in loads:
        uses[pipes] = uses.get(pipes, 0.0) + count
    return throughput(uses)
