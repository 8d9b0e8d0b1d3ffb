"""Figures of machine instructions timed on the x86-64 processor at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hw.profile import Hardware
from pipelines.measuring import native, placing
from pipelines.measuring.figures import Figure, is_copy

SOURCE, LOADS = "measured", "loads"
_COPIES, _CHAIN, _MIXES = 48, 32, 12
_CHASE = ["vmovq 8(%rcx), %xmm0", "vmovq %xmm0, %rcx"]
_ROUND_TRIP = ["vmovq %xmm0, %rax", "vmovq %rax, %xmm0"]


def figures(lines: Sequence[str], profile: Hardware) -> dict[str, Figure]:
    """The figure of every line of machine code; `profile` has the features to compile with."""
    kinds = {line: native.canonical(line) for line in lines}
    loads = sorted({kind for kind in kinds.values() if "(%" in kind})
    others = sorted(set(kinds.values()) - set(loads))
    reciprocals = _reciprocals([*others, *loads], profile)
    width = placing.widths({line: reciprocals[line] for line in others})
    pipes = placing.placed(width, _pair_cycles(width, profile).__getitem__, "fp")
    latency = _latencies(others, profile)
    found = {line: Figure({pipes[line]: 1.0}, latency[line], SOURCE) for line in others}
    for line, count in placing.widths({line: reciprocals[line] for line in loads}).items():
        ports = "+".join(f"load{number}" for number in range(count))
        found[line] = Figure({ports: 1.0}, latency[_CHASE[0]], LOADS)
    return {line: found[kind] for line, kind in kinds.items()}


def block_cycles(blocks: Mapping[str, Sequence[str]], profile: Hardware) -> dict[str, float]:
    """Measured cycles of blocks of machine code whose lines do not wait for each other."""
    timer = native.Timer(
        {
            name: native.independent([line for line in block if not is_copy(line)], _MIXES)
            for name, block in blocks.items()
        },
        profile,
    )
    return {name: timer.cycles(name) / _MIXES for name in blocks}


def _reciprocals(lines: Sequence[str], profile: Hardware) -> dict[str, float]:
    timer = native.Timer({line: native.independent([line], _COPIES) for line in lines}, profile)
    return {line: timer.cycles(line) / _COPIES for line in lines}


def _pair_cycles(width: Mapping[str, int], profile: Hardware) -> dict[placing.Pair, float]:
    blocks = {"|".join(pair): placing.mix(pair, width) for pair in placing.pairs(width)}
    found = block_cycles(blocks, profile)
    return {pair: found["|".join(pair)] for pair in placing.pairs(width)}


def _latencies(lines: Sequence[str], profile: Hardware) -> dict[str, float]:
    """Whole cycles through the slowest operand, and of a load into a vector register.

    Nothing but a load leads from an address to a vector, so the way back to the address registers
    is timed with it; it counts as half of a round trip between the two kinds of registers.
    """
    chains = {
        (line, operand): native.chained(line, operand, _CHAIN)
        for line in lines
        for operand in (None, *range(native.operands(line)))
    }
    named = {f"{line}|{operand}": block for (line, operand), block in chains.items()}
    loads = {"chase": _CHASE * (_CHAIN // 2), "round trip": _ROUND_TRIP * (_CHAIN // 2)}
    timer = native.Timer({**named, **loads}, profile)
    latency: dict[str, float] = {}
    for line, operand in chains:
        cycles = timer.cycles(f"{line}|{operand}") / _CHAIN
        latency[line] = max(latency.get(line, 1.0), float(round(cycles)))
    chase, back = (2 * timer.cycles(name) / _CHAIN for name in loads)
    latency[_CHASE[0]] = float(round(chase - back / 2))
    return latency
