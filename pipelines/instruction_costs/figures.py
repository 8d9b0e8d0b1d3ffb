"""What machine instructions cost, and what the sequences that rows become cost in sum."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

_REGISTER = re.compile(r"%[xyz]mm(\d+)|\b[vqd](\d+)")
_AT_AND_T = re.compile(r"%[xyz]mm")
# Between registers: eliminated when registers are renamed, or an artefact of a row on its own.
_COPY = re.compile(
    r"v?mov(dq|ap|up)[asdu0-9]* %[xyz]mm\d+, %[xyz]mm\d+"
    r"|(f?mov|orr) (v\d+[^\s[]*), (v\d+[^\s[]*)(, \4)?"
)
# Instructions whose destination is an operand too, besides all of SSE's.
_READS_DESTINATION = re.compile(
    r"vpternlog|vpdp|ml[as]\b|[su]ml[as]l|[us]adalp|bsl|bi[tf]\b|[us]*mmla|mov v\d+\.\w\["
)


@dataclass(frozen=True)
class Figure:
    """Micro-operations by the pipes that can take them (`p0+p5`), and latency in cycles."""

    uses: Mapping[str, float]
    latency: float
    source: str
    """Names of sources, joined by `+`."""


def is_copy(line: str) -> bool:
    """Whether a line of machine code only copies a register, which counts as free."""
    return _COPY.fullmatch(line) is not None


def registers(line: str) -> tuple[int, list[int]]:
    """The numbers of the vector registers that a line writes and reads."""
    found = [int(first or second) for first, second in _REGISTER.findall(line)]
    is_x86 = _AT_AND_T.search(line) is not None
    destination = found.pop() if is_x86 else found.pop(0)
    two_operands = is_x86 and not line.startswith(("v", "mov", "pshuf"))
    if two_operands or _READS_DESTINATION.match(line):
        found.append(destination)
    return destination, found


def total(code: Sequence[str], figures: Mapping[str, Figure]) -> Figure:
    """The figure of a sequence: all its micro-operations, and its longest chain."""
    uses: dict[str, float] = {}
    ready: dict[int, float] = {}
    latency = 0.0
    sources: set[str] = set()
    for line in code:
        destination, operands = registers(line)
        begin = max((ready.get(operand, 0.0) for operand in operands), default=0.0)
        if is_copy(line):
            ready[destination] = begin
            continue
        figure = figures[line]
        sources |= {figure.source}
        for pipes, count in figure.uses.items():
            uses[pipes] = uses.get(pipes, 0.0) + count
        ready[destination] = begin + figure.latency
        latency = max(latency, ready[destination])
    return Figure(dict(sorted(uses.items())), latency, "+".join(sorted(sources)))


def throughput(uses: Mapping[str, float]) -> float:
    """Cycles that micro-operations take at least: the fullest set of pipes decides."""
    sets = {frozenset(pipes.split("+")): count for pipes, count in uses.items()}
    pipes = sorted(frozenset[str]().union(*sets))
    return max(
        sum(count for taking, count in sets.items() if taking <= set(chosen)) / size
        for size in range(1, len(pipes) + 1)
        for chosen in combinations(pipes, size)
    )
