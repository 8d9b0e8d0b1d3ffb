"""From machine code to costs: sums, longest chains, pipes from pressures and from pairs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipelines.instruction_costs import block_timer, mca_figures, pipe_placement
from pipelines.instruction_costs.figures import Figure, is_copy, registers, throughput, total

LINES = {
    "vpand %ymm0, %ymm2, %ymm3": Figure({"p0+p1+p5": 1}, 1, "mca"),
    "vpshufb %ymm3, %ymm1, %ymm3": Figure({"p5": 1}, 2, "mca"),
    "vpaddb %ymm3, %ymm2, %ymm2": Figure({"p0+p1+p5": 1}, 1, "corrected"),
}


def test_a_sequence_adds_micro_operations_and_follows_its_longest_chain() -> None:
    found = total(list(LINES), LINES)
    assert found == Figure({"p0+p1+p5": 2, "p5": 1}, 4, "corrected+mca")
    assert throughput(found.uses) == 1
    apart = total(["vpand %ymm0, %ymm2, %ymm3", "vpaddb %ymm3, %ymm2, %ymm2"], LINES)
    assert apart.latency == 2


def test_copies_are_free_but_carry_the_chain() -> None:
    figures = {"psrlw $1, %xmm4": Figure({"p0": 1}, 1, "mca")}
    found = total(["psrlw $1, %xmm4", "movdqa %xmm4, %xmm3"], figures)
    assert (found.uses, found.latency) == ({"p0": 1}, 1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("movdqa %xmm3, %xmm4", True),
        ("vmovdqa64 %zmm3, %zmm4", True),
        ("mov v1.16b, v0.16b", True),
        ("mov v1.d[1], v0.d[0]", False),
        ("orr v1.16b, v0.16b, v0.16b", True),
        ("orr v1.16b, v0.16b, v2.16b", False),
        ("movups (%rcx), %xmm0", False),
        ("vpmulld %ymm0, %ymm2, %ymm2", False),
    ],
)
def test_copies(line: str, expected: bool) -> None:
    assert is_copy(line) == expected


@pytest.mark.parametrize(
    ("line", "destination", "sources"),
    [
        ("vpaddd %zmm0, %zmm1, %zmm2", 2, [0, 1]),
        ("paddd %xmm0, %xmm1", 1, [0, 1]),
        ("pshufd $232, %xmm2, %xmm3", 3, [2]),
        ("psrlw $1, %xmm4", 4, [4]),
        ("vpdpbusd %zmm2, %zmm1, %zmm0", 0, [2, 1, 0]),
        ("vpternlogd $202, %zmm1, %zmm0, %zmm2", 2, [1, 0, 2]),
        ("vmovups (%rcx), %zmm0", 0, []),
        ("add v0.16b, v1.16b, v2.16b", 0, [1, 2]),
        ("mla v2.16b, v0.16b, v1.16b", 2, [0, 1, 2]),
        ("uadalp v1.8h, v0.16b", 1, [0, 1]),
        ("smlal v2.4s, v0.4h, v1.4h", 2, [0, 1, 2]),
        ("ldr q0, [x9]", 0, []),
    ],
)
def test_what_a_line_writes_and_reads(line: str, destination: int, sources: list[int]) -> None:
    assert registers(line) == (destination, sources)


@pytest.mark.parametrize(
    ("pressure", "uses"),
    [
        ({"p0": 0.5, "p5": 0.5}, {"p0+p5": 1}),
        ({"p0": 1.5, "p5": 0.5}, {"p0+p5": 1, "p0": 1}),
        ({"p0": 5 / 6, "p1": 5 / 6, "p5": 1 / 3}, {"p0+p1+p5": 1, "p0+p1": 1}),
        ({"p2": 0.5, "p3": 0.5, "p1": 0.5, "p5": 0.5}, {"p2+p3": 1, "p1+p5": 1}),
        ({"l": 1, "w": 0.5, "x": 0.5}, {"l": 1, "w+x": 1}),
    ],
)
def test_micro_operations_behind_a_pressure(
    pressure: dict[str, float], uses: dict[str, float]
) -> None:
    assert mca_figures.micro_operations(pressure) == pytest.approx(uses)


def test_corrections_of_intel_models() -> None:
    everywhere = Figure({"p0+p1+p5": 1}, 1, "mca")
    wide = mca_figures.corrected("vpaddd %zmm0, %zmm1, %zmm0", everywhere)
    assert wide == Figure({"p0+p5": 1}, 1, "corrected")
    assert mca_figures.corrected("vpaddd %ymm0, %ymm1, %ymm0", everywhere) == everywhere
    load = Figure({"p2+p3": 1, "p0+p1+p5": 1}, 8, "mca")
    assert mca_figures.corrected("vmovups (%rcx), %zmm0", load).uses == {"p2+p3": 1}


def test_pipes_are_found_from_pairs() -> None:
    truth = {"a": "0+1", "b": "1+2", "c": "0+3", "d": "2+3", "e": "0+1+2+3", "f": "0+1", "g": "3"}
    shape = {line: pipe_placement.Shape(len(pipes.split("+"))) for line, pipes in truth.items()}
    cycles = {
        pair: _taken(pipe_placement.mix(pair, shape), truth) for pair in pipe_placement.pairs(shape)
    }
    found = pipe_placement.placed(shape, cycles.__getitem__, "fp")
    for pair, measured in cycles.items():
        assert _taken(pipe_placement.mix(pair, shape), found) == measured
    assert found["e"] == "fp0+fp1+fp2+fp3" and found["f"] == found["a"]


def test_halves_of_registers_are_placed_as_whole_ones() -> None:
    # Zen 4: 512 bits take a pipe of 256 twice. Shuffles and products share one pipe of three.
    truth = {"vadd %ymm0": "0+1+2+3", "vdot %ymm0": "0+1", "vshuf %ymm0": "1+2"}
    truth |= {line.replace("%ymm0", "%zmm0"): pipes for line, pipes in truth.items()}
    parts = {line: 2 if "zmm" in line else 1 for line in truth}
    reciprocals = {line: parts[line] / len(pipes.split("+")) for line, pipes in truth.items()}
    shape = pipe_placement.shapes(reciprocals)
    assert shape["vadd %zmm0"] == pipe_placement.Shape(4, 2) and shape[
        "vdot %ymm0"
    ] == pipe_placement.Shape(2)
    cycles = {
        pair: _taken(pipe_placement.mix(pair, shape), truth, parts)
        for pair in pipe_placement.pairs(shape)
    }
    assert cycles["vdot %zmm0", "vshuf %zmm0"] == pytest.approx(8 / 3)
    found = pipe_placement.placed(shape, cycles.__getitem__, "fp")
    assert found["vdot %zmm0"] == found["vdot %ymm0"] != found["vshuf %ymm0"]
    for pair, measured in cycles.items():
        assert _taken(pipe_placement.mix(pair, shape), found, parts) == measured


def test_registers_run_whole_where_the_widest_are_not_half_as_fast() -> None:
    # Intel: 256 bits on three pipes, 512 on two of them, some on one.
    reciprocals = dict.fromkeys(("vadd %ymm0", "vand %ymm0", "vor %ymm0"), 1 / 3)
    reciprocals |= dict.fromkeys(("vadd %zmm0", "vand %zmm0", "vor %zmm0"), 0.5)
    reciprocals["vshift %zmm0"] = 1.0
    assert {found.micro_operations for found in pipe_placement.shapes(reciprocals).values()} == {1}


def test_loads_half_as_fast_are_halves() -> None:
    whole, half = pipe_placement.Shape(2), pipe_placement.Shape(2, 2)
    assert pipe_placement.load_shapes({"ymm": 0.5, "zmm": 1.01}) == {"ymm": whole, "zmm": half}
    assert pipe_placement.load_shapes({"ymm": 0.34, "zmm": 0.5}) == {
        "ymm": pipe_placement.Shape(3),
        "zmm": whole,
    }


def test_a_load_computes_where_a_mix_takes_twice_as_long() -> None:
    pipes = {"vshuf": "fp1+fp2", "vdot": "fp0+fp1"}
    assert pipe_placement.extra_pipes(pipes, {"vshuf": 3.9, "vdot": 2.7}) == "fp1+fp2"
    assert pipe_placement.extra_pipes(pipes, {"vshuf": 2.1, "vdot": 2.0}) == ""
    assert pipe_placement.extra_pipes(pipes, {}) == ""


def test_forms_of_sse_stand_in_blocks_of_their_own() -> None:
    shape = dict.fromkeys(("vshuf %ymm0", "vdot %ymm0", "pshuf %xmm0"), pipe_placement.Shape(2))
    shape["vadd %ymm0"] = pipe_placement.Shape(4)
    assert pipe_placement.pairs(shape) == [("vdot %ymm0", "vshuf %ymm0")]


def _taken(
    block: list[str], pipes: Mapping[str, str], parts: Mapping[str, int] | None = None
) -> float:
    """Cycles of a block whose instructions run on given pipes, in so many parts."""
    return pipe_placement.bound([(pipes[line], parts[line] if parts else 1) for line in block])


def test_what_takes_more_than_a_cycle_is_not_guessed_at() -> None:
    found = pipe_placement.shapes({"fast": 0.2512, "half": 0.503})
    assert found == {"fast": pipe_placement.Shape(4), "half": pipe_placement.Shape(2)}
    with pytest.raises(ValueError, match="more than one cycle each: slow"):
        pipe_placement.shapes({"fast": 0.25, "slow": 2.0})


def test_blocks_of_independent_and_of_chained_lines() -> None:
    line = "vpaddd %zmm5, %zmm6, %zmm6"
    assert block_timer.independent([line], 13)[::12] == ["vpaddd %zmm12, %zmm13, %zmm0"] * 2
    assert block_timer.chained(line, 1, 2) == ["vpaddd %zmm12, %zmm0, %zmm0"] * 2
    assert block_timer.chained("paddd %xmm3, %xmm4", None, 1) == ["paddd %xmm12, %xmm0"]
    assert block_timer.canonical("vmovups (%rdi), %zmm9") == "vmovups (%rcx), %zmm0"
