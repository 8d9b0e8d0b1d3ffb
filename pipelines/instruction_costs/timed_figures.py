"""Figures of machine instructions timed on the x86-64 processor at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hw.profile import Hardware
from pipelines.instruction_costs import block_timer, pipe_placement
from pipelines.instruction_costs.figures import Figure, is_copy

SOURCE, LOADS = "measured", "loads"
_COPIES, _CHAIN, _MIXES = 48, 32, 12
_CHASE = ["vmovq 8(%rcx), %xmm0", "vmovq %xmm0, %rcx"]
_ROUND_TRIP = ["vmovq %xmm0, %rax", "vmovq %rax, %xmm0"]


def figures(lines: Sequence[str], profile: Hardware) -> dict[str, Figure]:
    """The figure of every line of machine code; `profile` has the features to compile with."""
    kinds = {line: block_timer.canonical(line) for line in lines}
    loads = sorted({kind for kind in kinds.values() if "(%" in kind})
    others = sorted(set(kinds.values()) - set(loads))
    reciprocals = _reciprocals([*others, *loads], profile)
    shape = pipe_placement.shapes({line: reciprocals[line] for line in others})
    pipes = pipe_placement.placed(
        shape, _mixed(pipe_placement.pairs(shape), shape, profile).__getitem__, "fp"
    )
    latency = _latencies(others, profile)
    found = {
        line: Figure({pipes[line]: shape[line].micro_operations}, latency[line], SOURCE)
        for line in others
    }
    ports = pipe_placement.load_shapes({line: reciprocals[line] for line in loads})
    for line, too in _computing(ports, pipes, shape, profile).items():
        count = ports[line].micro_operations
        own = "+".join(f"load{number}" for number in range(ports[line].width))
        uses = {own: float(count)} | ({too: float(count)} if too else {})
        found[line] = Figure(uses, latency[_CHASE[0]], LOADS)
    return {line: found[kind] for line, kind in kinds.items()}


def _computing(
    loads: Mapping[str, pipe_placement.Shape],
    pipes: Mapping[str, str],
    shape: Mapping[str, pipe_placement.Shape],
    profile: Hardware,
) -> dict[str, str]:
    """The pipes of computing instructions that each load takes, too; few take any.

    Each is mixed with one instruction on every set of up to half of the pipes; beside more of them
    a load may find a core's issue full.
    """
    most = max(found.width for found in shape.values())
    some = {
        (pipes[line], line.startswith("v")): line
        for line in sorted(pipes)
        if shape[line].width <= most / 2
    }
    pairs = [
        (load, line) for load in loads for line in some.values() if pipe_placement.mixes(load, line)
    ]
    taken = _mixed(pairs, {**shape, **loads}, profile)
    return {
        load: pipe_placement.extra_pipes(
            pipes, {line: taken[one, line] for one, line in pairs if one == load}
        )
        for load in loads
    }


def block_cycles(blocks: Mapping[str, Sequence[str]], profile: Hardware) -> dict[str, float]:
    """Measured cycles of blocks of machine code whose lines do not wait for each other."""
    timer = block_timer.Timer(
        {
            name: block_timer.independent([line for line in block if not is_copy(line)], _MIXES)
            for name, block in blocks.items()
        },
        profile,
    )
    return {name: cycles / _MIXES for name, cycles in timer.all_cycles().items()}


def _reciprocals(lines: Sequence[str], profile: Hardware) -> dict[str, float]:
    timer = block_timer.Timer(
        {line: block_timer.independent([line], _COPIES) for line in lines}, profile
    )
    return {line: cycles / _COPIES for line, cycles in timer.all_cycles().items()}


def _mixed(
    pairs: Sequence[pipe_placement.Pair],
    shape: Mapping[str, pipe_placement.Shape],
    profile: Hardware,
) -> dict[pipe_placement.Pair, float]:
    blocks = {"|".join(pair): pipe_placement.mix(pair, shape) for pair in pairs}
    found = block_cycles(blocks, profile)
    return {pair: found["|".join(pair)] for pair in pairs}


def _latencies(lines: Sequence[str], profile: Hardware) -> dict[str, float]:
    """Whole cycles through the slowest operand, and of a load into a vector register.

    Nothing but a load leads from an address to a vector, so the way back to the address registers
    is timed with it; it counts as half of a round trip between the two kinds of registers.
    """
    chains = {
        (line, operand): block_timer.chained(line, operand, _CHAIN)
        for line in lines
        for operand in (None, *range(block_timer.operands(line)))
    }
    named = {f"{line}|{operand}": block for (line, operand), block in chains.items()}
    loads = {"chase": _CHASE * (_CHAIN // 2), "round trip": _ROUND_TRIP * (_CHAIN // 2)}
    taken = block_timer.Timer({**named, **loads}, profile).all_cycles()
    latency: dict[str, float] = {}
    for line, operand in chains:
        cycles = taken[f"{line}|{operand}"] / _CHAIN
        latency[line] = max(latency.get(line, 1.0), float(round(cycles)))
    chase, back = (2 * taken[name] / _CHAIN for name in loads)
    latency[_CHASE[0]] = float(round(chase - back / 2))
    return latency
