"""Which pipes run an instruction, from the cycles of pairs of instructions in one block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import quantiles

from pipelines.instruction_costs.figures import throughput

Pair = tuple[str, str]
_WIDEST, _WIDE = "%zmm", "%ymm"
_SHARED = 3
"""Cycles of a mix from which its two instructions run on the same pipes: 2 if they share none, 4 if
all."""


@dataclass(frozen=True)
class Shape:
    """How an instruction runs: its micro-operations, and how many pipes can take them."""

    width: int
    micro_operations: int = 1


def shapes(reciprocals: Mapping[str, float]) -> dict[str, Shape]:
    """The shape of each instruction: as many pipes as micro-operations start in a cycle.

    Where 512 bits start half as often as 256 at best, pipes are of 256 bits (AMD Zen 4), and an
    instruction of 512 is two micro-operations. ValueError for one that starts less than once a
    cycle otherwise; it is several micro-operations, which timing alone does not take apart.
    """
    is_halved = 0 < _pipes(reciprocals, _WIDE) == 2 * _pipes(reciprocals, _WIDEST)
    slow = [line for line, cycles in reciprocals.items() if cycles > 1.25]
    if slow:
        raise ValueError(f"more than one cycle each: {'; '.join(slow)}")
    parts = {line: 2 if is_halved and _WIDEST in line else 1 for line in reciprocals}
    return {
        line: Shape(round(parts[line] / cycles), parts[line])
        for line, cycles in reciprocals.items()
    }


def _pipes(reciprocals: Mapping[str, float], kind: str) -> int:
    """How many instructions on registers of a kind start in a cycle, of the fastest quarter."""
    cycles = [cycles for line, cycles in reciprocals.items() if kind in line]
    return round(1 / quantiles(cycles, n=4)[0]) if len(cycles) > 1 else 0


def load_shapes(reciprocals: Mapping[str, float]) -> dict[str, Shape]:
    """The shape of each load: one that starts half as often as the fastest is two halves."""
    fastest = min(reciprocals.values())
    pipes = round(1 / fastest)
    return {
        line: Shape(pipes, 2) if round(cycles / fastest) == 2 else Shape(round(1 / cycles))
        for line, cycles in reciprocals.items()
    }


def pairs(shape: Mapping[str, Shape]) -> list[Pair]:
    """The pairs to time: those of instructions that do not run everywhere."""
    most = max(found.width for found in shape.values())
    narrow = sorted(line for line in shape if shape[line].width < most)
    return [pair for pair in combinations(narrow, 2) if mixes(*pair)]


def mixes(line: str, other: str) -> bool:
    """Whether two instructions may stand in one block: SSE's wait for the upper halves of AVX's."""
    return line.startswith("v") == other.startswith("v")


def mix(pair: Pair, shape: Mapping[str, Shape]) -> list[str]:
    """A block that takes two cycles if the two share no pipe, and more the more they share."""
    return [
        line for line in pair for _ in range(2 * shape[line].width // shape[line].micro_operations)
    ]


def placed(
    shape: Mapping[str, Shape], cycles: Callable[[Pair], float], prefix: str
) -> dict[str, str]:
    """The pipes of each instruction, as `fp0+fp1`, that explain the pairs best.

    `cycles` tells what a `mix` takes. Pipes are numbered as they come up: timing tells which
    instructions share some, not which pipe the manufacturer calls the first.
    """
    names = [f"{prefix}{number}" for number in range(max(s.width for s in shape.values()))]
    found: dict[str, str] = {}
    for line in sorted(shape, key=lambda line: (shape[line].width == len(names), line)):
        width = shape[line].width
        candidates = ["+".join(chosen) for chosen in combinations(names, width)]
        known = [
            other
            for other in found
            if shape[other].width < len(names) > width and mixes(line, other)
        ]
        times = {other: cycles((min(line, other), max(line, other))) for other in known}

        def error(candidate: str, width: int = width, times: Mapping[str, float] = times) -> float:
            return sum(
                abs(bound([(candidate, 2 * width), (found[other], 2 * shape[other].width)]) - taken)
                for other, taken in times.items()
            )

        found[line] = min(candidates, key=error)
    return found


def extra_pipes(pipes: Mapping[str, str], cycles: Mapping[str, float]) -> str:
    """The pipes that a load takes beside its own, as one that fills lanes from others may, or "".

    `cycles` are those of its mixes with computing instructions, which run on `pipes`: with one that
    runs where a load computes, a mix takes twice as long.
    """
    slowest = max(cycles, key=lambda line: cycles[line], default="")
    return pipes[slowest] if slowest and cycles[slowest] > _SHARED else ""


def bound(loads: Sequence[tuple[str, int]]) -> float:
    """Cycles of a block, given each instruction's pipes and how often it occurs."""
    uses: dict[str, float] = {}
    for pipes, count in loads:
        uses[pipes] = uses.get(pipes, 0.0) + count
    return throughput(uses)
