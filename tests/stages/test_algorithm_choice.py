"""A layer's algorithm follows its encodings, the candidates of the core, and its neighbours."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages.dialect.zero_point import ZeroPoint
from stages.errors import StageError
from stages.kernels.families import Dots
from stages.kernels.kernel_candidates import KernelAlgorithm, KernelCandidate, from_table, to_table
from stages.kernels.lut import Lut
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import digit_plan
from stages.kinds import Table
from stages.layer_options import Algorithm
from stages.legalizing.choice import ON_BYTES, Layer, choose, shared_algorithm
from tests.stages.networks import residual_block
from tests.stages.pipeline import board, kept_candidates
from tests.stages.test_legalizing import BOARDS, legalize, products, server


def layer(activation_bits: int, weight_bits: int, **changes: Any) -> Layer:
    facts: dict[str, Any] = {
        "name": "conv",
        "data_dtype": f"uint{activation_bits}",
        "weight_dtype": f"uint{weight_bits}",
        "attrs": {"groups": 1, "weight_zero_point": ZeroPoint(0)},
        "weight": np.zeros((64, 3, 3, 64), np.uint8),
        "output": (16, 16),
    }
    return Layer(**{**facts, **changes})


def table(hardware: Hardware, found: Layer) -> Table:
    """The candidates for one layer's problem."""
    return {found.problem.name: to_table(kept_candidates(found.problem, hardware))}


def cycles(hardware: Hardware, found: Layer) -> dict[KernelAlgorithm, float]:
    """What the cheapest kernel of each algorithm is predicted to cost."""
    costs: dict[KernelAlgorithm, float] = {}
    for candidate in kept_candidates(found.problem, hardware):
        if candidate.signature.rows <= found.output[1]:
            if not found.geometry.takes(candidate.signature):
                continue
            cost = candidate.layer(found.geometry, len(found.weight))
            way: KernelAlgorithm = (
                "mac8" if candidate.algorithm in ON_BYTES else candidate.algorithm
            )
            costs[way] = min(cost, costs.get(way, cost))
    return costs


@pytest.mark.parametrize("name", BOARDS)
def test_the_cheaper_algorithm(name: str) -> None:
    hardware = board(name)
    for a, w, width in ((1, 1, 16), (1, 1, 1), (2, 1, 16), (2, 2, 16), (2, 2, 1)):
        found = layer(a, w, output=(width, width))
        costs = cycles(hardware, found)
        assert {"bitserial", "mac8"} <= costs.keys() <= {"bitserial", "lookup", "mac8"}
        chosen = choose(found, None, table(hardware, found), {})
        assert costs[chosen] == min(costs.values())


def made(found: Layer, popcounts: float, products: float) -> Table:
    """Candidates of one kernel of each algorithm, with their costs per word."""
    plan = digit_plan("and", found.problem.activation_bits, found.problem.weight_bits, "unipolar")
    signatures = (
        KernelSignature("sse2", plan, None, 1, 32, "none", 0),
        KernelSignature("sse2", None, Dots(4), 1, 32, "none", 0),
    )
    costs = (popcounts, products)
    candidates = [KernelCandidate(s, cost, 0.0) for s, cost in zip(signatures, costs, strict=True)]
    return {found.problem.name: to_table(candidates)}


def test_the_choice_follows_the_candidates() -> None:
    """A word has 32 channels of a plane, or four of bytes; both are padded to whole blocks."""
    for channels in (5, 64):
        found = layer(2, 2, weight=np.zeros((64, 3, 3, channels), np.uint8))
        assert choose(found, None, made(found, 7.9, 1.0), {}) == "bitserial"
        assert choose(found, None, made(found, 8.1, 1.0), {}) == "mac8"


def test_the_choice_depends_on_the_problem() -> None:
    found = layer(2, 2)
    others = made(layer(2, 1), 1.0, 99.0) | made(layer(3, 2), 1.0, 99.0)
    assert choose(found, None, others | made(found, 99.0, 1.0), {}) == "mac8"
    with pytest.raises(KeyError, match="a2w2_unipolar"):
        choose(found, None, others, {})


@pytest.mark.parametrize("algorithm", ["bitserial", "mac8"])
def test_an_override_is_followed_whatever_it_costs(algorithm: Algorithm) -> None:
    found = layer(2, 2)
    for costs in ((1.0, 99.0), (99.0, 1.0)):
        assert choose(found, algorithm, made(found, *costs), {}) == algorithm


def readers_of_one_input() -> tuple[Layer, Layer]:
    """A 3x3 convolution and a 1x1 one of the same 16x16 pixels of 64 channels, one bit each."""
    beside = layer(1, 1, weight=np.zeros((64, 1, 1, 64), np.uint8), output=(8, 8))
    beside.attrs["strides"] = (2, 2)
    return layer(1, 1), beside


def of_each_algorithm(popcounts: float, emptying: float, lookups: float) -> Table:
    """Candidates for one bit by one: popcounts, which are emptied once a window, and look-ups."""
    plan = digit_plan("and", 1, 1, "unipolar")
    popcount = KernelSignature("avx2", plan, None, 1, 32, "window", 99)
    tables = Lut(1, 1, "unipolar", 32)
    lookup = KernelSignature("avx2", None, None, 1, 32, "window", 99, lut=tables)
    candidates = [
        KernelCandidate(popcount, popcounts, emptying),
        KernelCandidate(lookup, lookups, 0.0),
    ]
    return {"a1w1_unipolar": to_table(candidates)}


def test_readers_of_one_input_share_an_algorithm_unless_one_gains_what_tables_take() -> None:
    wide, narrow = readers_of_one_input()
    assert narrow.lut_lines == 16 * 16 * 64 * 4 / 64
    # Windows of 18 words and of 2: popcounts take 210 and 50 cycles, look-ups 252 and 28.
    little = of_each_algorithm(10.0, 30.0, 14.0)
    # 680 and 520 cycles, and 810 and 90.
    much = of_each_algorithm(10.0, 500.0, 45.0)
    for candidates, found in ((little, "bitserial"), (much, None)):
        own = [choose(one, None, candidates, {}) for one in (wide, narrow)]
        assert own == ["bitserial", "lookup"]
        assert shared_algorithm([wide, narrow], candidates) == found
    assert shared_algorithm([narrow, narrow], little) is None
    grouped = replace(narrow, attrs={**narrow.attrs, "groups": 2})
    assert shared_algorithm([wide, grouped], little) is None


def test_readers_that_all_move_by_two_may_share_bytes_in_phases() -> None:
    """One by one the wide one is computed on bytes and the other on bits; so both on bytes."""
    strided = {"groups": 1, "weight_zero_point": ZeroPoint(0), "strides": (2, 2)}
    wide = layer(1, 1, attrs=strided, output=(7, 7))
    beside = replace(wide, weight=np.zeros((64, 1, 1, 64), np.uint8))
    plan = digit_plan("and", 1, 1, "unipolar")
    popcount = KernelSignature("avx2", plan, None, 1, 32, "window", 99)
    dot = KernelSignature("avx2", None, Dots(4), 7, 32, "none", 0)
    # Of rows in phases 55 positions are computed for 49 pixels, of others 97.
    found = [
        KernelCandidate(popcount, 2.0, 0.0),
        KernelCandidate(dot, 10.0, 0.0),
        KernelCandidate(replace(dot, rows=14), 1.0, 0),
    ]
    candidates = {"a1w1_unipolar": to_table(found)}
    assert [choose(one, None, candidates, {}) for one in (wide, beside)] == ["mac8", "bitserial"]
    assert shared_algorithm([wide, beside], candidates) == "mac8"
    other = replace(beside, attrs={**strided, "strides": (2, 1)})
    assert choose(other, None, candidates, {}) == "bitserial"
    assert shared_algorithm([wide, other], candidates) is None


@pytest.mark.parametrize("name", BOARDS)
def test_cost_grows_with_bit_pairs(name: str) -> None:
    pairs = ((1, 1), (2, 1), (2, 2))
    costs = [cycles(board(name), layer(a, w))["bitserial"] for a, w in pairs]
    assert costs == sorted(costs)
    # Fewer popcounts than pairs of digits.
    assert 2 * costs[0] < costs[-1] < 5 * costs[0]


def without_lookups(candidates: Table) -> Table:
    """Candidates of the other algorithms."""
    return {
        name: to_table([o for o in from_table(data) if o.algorithm != "lookup"])
        for name, data in candidates.items()
    }


def test_one_model_two_chips() -> None:
    """A2W2 is bit-serial on a Cortex-A72, and not where bytes are multiplied or looked up fast."""
    source = residual_block(2, 2, channels=64, size=6)
    vnni = server("cascadelake", "+avx512vnni")
    assert set(products(legalize(source, board("rpi4"))).values()) == {"bitserial_conv2d"}
    assert set(products(legalize(source, vnni)).values()) <= {"conv2d", "lookup_conv2d"}


def test_a_dot_product_moves_the_choice() -> None:
    """VPDPBUSD makes 8-bit products cheaper; of popcounts it only weighs what carried bits hold."""
    without, having = server("cascadelake"), server("cascadelake", "+avx512vnni")
    found = layer(2, 1)
    assert cycles(having, found)["mac8"] < 0.7 * cycles(without, found)["mac8"]
    ratio = cycles(having, found)["bitserial"] / cycles(without, found)["bitserial"]
    assert 0.9 < ratio <= 1
    assert choose(found, None, without_lookups(table(having, found)), {}) == "mac8"


def test_a_population_count_moves_the_choice() -> None:
    plain = server("icelake", "+avx512vnni")
    counting = server("icelake", "+avx512vnni", "+avx512vpopcntdq")
    found = layer(2, 1)
    assert cycles(counting, found)["bitserial"] < cycles(plain, found)["bitserial"]
    assert choose(found, None, without_lookups(table(plain, found)), {}) == "mac8"
    assert choose(found, None, without_lookups(table(counting, found)), {}) == "bitserial"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data_dtype": "uint4"}, "it has more than 3 bits"),
        ({"weight_dtype": "int8"}, "it has more than 3 bits"),
        (
            {"attrs": {"groups": 2, "weight_zero_point": ZeroPoint(0)}},
            "it is a grouped convolution",
        ),
        (
            {"attrs": {"groups": 1, "weight_zero_point": ZeroPoint(2)}},
            "its weights have the zero point 1.0, neither 0 nor the middle of the range",
        ),
        (
            {"weight_dtype": "int2", "attrs": {"groups": 1, "weight_zero_point": ZeroPoint(3)}},
            "its weights have the zero point 1.5, neither 0 nor the middle of the range",
        ),
    ],
)
def test_what_cannot_be_bit_serial(changes: dict[str, Any], why: str) -> None:
    found = layer(2, 2, **changes)
    assert found.obstacle == why
    cheap = made(layer(2, 2), 0.0, 99.0)
    assert choose(found, None, cheap, {}) == "mac8"
    assert choose(found, "mac8", cheap, {}) == "mac8"
    sentence = f"conv: cannot be bit-serial: {why}; use algorithm: mac8"
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        choose(found, "bitserial", cheap, {})


@pytest.mark.parametrize("point", [0, 3])
def test_what_can(point: int) -> None:
    found = layer(3, 2, attrs={"groups": 1, "weight_zero_point": ZeroPoint(point)})
    assert found.obstacle is None
    assert layer(1, 3, weight_dtype="int3").obstacle is None
