"""Kernels that reduce in one call: instruction counts, proofs, and what they compute compiled."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from hw.isa import isa_of
from hw.isa.arrays import array_lanes, registers
from hw.profile import Hardware
from pipelines import targets
from stages.codegen import compile_object
from stages.kernels.packing import pack_planes
from stages.kernels.problems import Problem
from stages.kernels.terms import products
from stages.synthesizing.full_reduction import FullSpec, full_program, full_text, prove_full
from stages.synthesizing.interaction import residual
from stages.synthesizing.reduction import reduction
from stages.synthesizing.survey import PRECISIONS, FullReductionSurvey, full_reduction_survey
from tests.compiled import Library
from tests.hw.isa_code import caller
from tests.targets import skip_unless_runnable

MOST = {
    "neon_armv7": {(1, 1): 15, (2, 1): 27, (3, 1): 27, (2, 2): 39, (3, 2): 53, (3, 3): 79},
    "neon_aarch64": {(1, 1): 12, (2, 1): 24, (2, 2): 36, (3, 3): 73},
}
"""Arithmetic instructions of 8x8 by 8x1 after LLVM that must be reached."""
ENCODINGS = ("unipolar", "bipolar")
TRIALS = 1000


def board(isa: str) -> Hardware:
    return targets.profiles(isa, None)[0]


@cache
def kernel(isa: str, bits: tuple[int, int], encoding: str, chunk: int) -> FullReductionSurvey:
    return full_reduction_survey(Problem(*bits, encoding), board(isa), chunk=chunk)  # type: ignore[arg-type]


CASES = [
    (isa, bits, encoding, chunk)
    for isa, bits, encoding, chunk in product(MOST, PRECISIONS, ENCODINGS, (8, 16))
]


@pytest.mark.parametrize(("isa", "encoding"), list(product(MOST, ENCODINGS)))
def test_arithmetic_instructions_after_llvm(isa: str, encoding: str) -> None:
    for bits, most in MOST[isa].items():
        found = kernel(isa, bits, encoding, 8)
        assert found.after_llvm.arithmetic <= most, (bits, found.after_llvm)
        assert found.after_llvm.arithmetic == len(found.program.steps)


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "bits", "encoding", "chunk"), CASES)
def test_llvm_neither_adds_nor_spills(
    isa: str, bits: tuple[int, int], encoding: str, chunk: int
) -> None:
    after = kernel(isa, bits, encoding, chunk).after_llvm
    assert after.arithmetic == len(kernel(isa, bits, encoding, chunk).program.steps)
    assert after.moves <= 1
    # The sums, and on ARMv7 the registers that a caller wants back.
    assert after.stores <= 2


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "bits", "encoding", "chunk"), CASES)
def test_a_program_computes_products_on_a_thousand_inputs(
    isa: str, bits: tuple[int, int], encoding: str, chunk: int
) -> None:
    """In NumPy; its instructions are compared with the processor's one by one."""
    found = kernel(isa, bits, encoding, chunk)
    a, w = levels(found.spec, TRIALS)
    inputs = {name: array_lanes(value) for name, value in operands(found, a, w, TRIALS).items()}
    sums = registers(found.program.run(inputs)["sums"])
    check(found.spec, a, w, sums)


@pytest.mark.slow
@pytest.mark.parametrize("isa", MOST)
def test_compiled_kernels_compute_products(isa: str) -> None:
    hardware = board(isa)
    skip_unless_runnable(hardware)
    cases = [(bits, e, chunk) for bits in PRECISIONS for e in ENCODINGS for chunk in (8, 16)]
    functions = {}
    for number, case in enumerate(cases):
        found = kernel(isa, *case)
        text, declarations = full_text(f"full{number}", found.spec, found.program)
        sizes = [(f"uint{bits}", 1) for bits in (8, 8, 16)]
        functions[f"call{number}"] = caller(
            f"call{number}", [*declarations, text], f"full{number}", sizes
        )
    library = Library({"full.o": compile_object(functions, hardware)}, hardware)
    for number, case in enumerate(cases):
        spec = kernel(isa, *case).spec
        a, w = levels(spec, TRIALS // spec.rows)
        results = []
        for one_a, one_w in zip(a, w, strict=True):
            sums = np.zeros(spec.rows, np.uint16)
            library.call(f"call{number}", packed_weights(spec, one_w), packed(spec, one_a), sums)
            results.append(sums)
        check(spec, a, w, np.stack(results))


def levels(spec: FullSpec, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels [trials, K] and stored weights [trials, rows, K], the extremes first."""
    rng = np.random.default_rng(3)
    tops = (1 << spec.plan.activation_bits) - 1, (1 << spec.plan.weight_bits) - 1
    a = rng.integers(0, tops[0], (trials, 8 * spec.chunk), np.uint8, endpoint=True)
    w = rng.integers(0, tops[1], (trials, spec.rows, 8 * spec.chunk), np.uint8, endpoint=True)
    for trial, (x, y) in enumerate(product((0, tops[0]), (0, tops[1]))):
        a[trial], w[trial] = x, y
    return a, w


def packed(spec: FullSpec, a: np.ndarray) -> np.ndarray:
    """A register a plane, in which 8 bytes stand twice."""
    planes = pack_planes(a, spec.plan.activation_planes).view(np.uint8).reshape(-1, spec.chunk)
    return np.tile(planes, (1, 16 // spec.chunk))


def packed_weights(spec: FullSpec, w: np.ndarray) -> np.ndarray:
    """Rows one behind the other, plane by plane."""
    planes = pack_planes(w, spec.plan.weight_planes)
    return np.ascontiguousarray(planes).view(np.uint8).reshape(len(planes), -1)


def operands(
    found: FullReductionSurvey, a: np.ndarray, w: np.ndarray, trials: int
) -> dict[str, np.ndarray]:
    spec = found.spec
    data = np.stack([packed(spec, one) for one in a])
    weights = np.stack([packed_weights(spec, one) for one in w])
    result = {"sums": np.zeros((trials, spec.rows), np.uint16)}
    for name in found.program.inputs:
        if name[0] == "a":
            result[name] = data[:, int(name[1:])]
        elif name[0] == "w":
            plane, register, _ = (int(x) for x in name[1:].split("."))
            result[name] = weights[:, plane, 16 * register : 16 * register + 16]
    return result


def check(spec: FullSpec, a: np.ndarray, w: np.ndarray, sums: np.ndarray) -> None:
    """The kernel's sums, with what it leaves to others, are the products."""
    plan = spec.plan
    table = products(plan.activation_bits, plan.weight_bits, plan.weights)
    expected = table[a[:, None, :], w].sum(-1)
    u = np.array(plan.activation_sum or [0] * (1 << plan.activation_bits))[a].sum(-1)
    v = residual(plan)[w].sum(-1)
    found = plan.scale * (spec.unit * sums.astype(np.int64) + u[:, None]) + v
    np.testing.assert_array_equal(found, expected)


def test_a_reduction_is_the_cheapest_under_its_price() -> None:
    """Each of two prices likes the program best that was found under it."""
    isa = isa_of(board("neon_aarch64"))
    spec = kernel("neon_aarch64", (2, 2), "unipolar", 16).spec
    dear = {"pair_add": "addp", "pair_widen": "addlp"}

    def priced(part: str) -> float:
        return 9.0 if part.startswith(cheapest_under) else 1.0

    programs = {}
    for cheapest_under in dear:
        moves = reduction(dict(spec.counts), spec.rows, spec.chunk, isa, priced)
        programs[cheapest_under] = full_program(spec, isa, moves).counts()
    for part, mnemonic in dear.items():
        costs = {
            found: sum(n * (9 if mnemonic in name else 1) for name, n in counts.items())
            for found, counts in programs.items()
        }
        assert costs[part] == min(costs.values())
    assert programs["pair_add"] != programs["pair_widen"]


def test_a_sum_that_could_overflow_is_no_move() -> None:
    isa = isa_of(board("neon_aarch64"))
    for move in reduction({1: 4, 2: 4}, 8, 16, isa, lambda part: 1.0):
        if move.result is not None:
            assert move.result.most < 1 << move.result.bits


def test_proofs_are_for_the_program_at_hand() -> None:
    one, other = (kernel("neon_armv7", bits, "unipolar", 8) for bits in ((1, 1), (2, 1)))
    prove_full(one.spec, one.program)
    with pytest.raises((AssertionError, KeyError)):
        prove_full(other.spec, one.program)
