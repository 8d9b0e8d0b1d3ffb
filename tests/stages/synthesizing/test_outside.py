"""A whole kernel proved from outside: bit-vectors and a solver, without the exact domain."""

from __future__ import annotations

import bitwuzla
import pytest
import z3

from hw.isa.solver import SolverLane, variables
from pipelines import targets
from stages.kernels.problems import Problem
from stages.synthesizing.survey import full_reduction_survey
from stages.synthesizing.vector_program import Program


def kernel() -> Program:
    """8x8 by 8x1, one bit by one bit, for ARMv7."""
    return full_reduction_survey(
        Problem(1, 1, "unipolar"), targets.profiles("neon_armv7", None)[0]
    ).program


def is_unsatisfiable(formula: object) -> bool:
    """Whether Bitwuzla finds no solution; Z3, which only writes the formula, needs too long."""
    solver = z3.SolverFor("QF_BV")
    solver.add(formula)
    text = "(set-logic QF_BV)\n" + solver.to_smt2().replace("(check-sat)", "")
    parser = bitwuzla.Parser(bitwuzla.TermManager(), bitwuzla.Options())
    parser.parse(text, True, False)
    return parser.bitwuzla().check_sat() == bitwuzla.Result.UNSAT


def sums(program: Program, a: list[SolverLane], w: list[list[SolverLane]]) -> list[SolverLane]:
    """The kernel's 16-bit sums from 0, for eight bytes of activations and of each row."""
    inputs = {}
    for name in program.inputs:
        if name == "sums":
            inputs[name] = [SolverLane(16, z3.BitVecVal(0, 16))] * 8
        elif name[0] == "a":
            inputs[name] = a + a
        else:
            register = int(name.split(".")[1])
            inputs[name] = w[2 * register] + w[2 * register + 1]
    return program.run(inputs)["sums"]


def bits_in_common(a: list[SolverLane], w: list[SolverLane]) -> object:
    """The dot product, bit by bit, as anybody would write it."""
    total = z3.BitVecVal(0, 16)
    for x, y in zip(a, w, strict=True):
        both = x.term & y.term
        for bit in range(8):
            total = total + z3.ZeroExt(15, z3.Extract(bit, bit, both))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("row", [0, 5])
def test_a_row_of_the_one_bit_kernel_is_its_dot_product(row: int) -> None:
    a, w = variables("a", 8, 8), [variables(f"w{r}_", 8, 8) for r in range(8)]
    found = sums(kernel(), a, w)[row].term
    assert is_unsatisfiable(found != bits_in_common(a, w[row]))


def test_the_solver_finds_what_is_wrong() -> None:
    a, w = variables("a", 8, 8), [variables(f"w{r}_", 8, 8) for r in range(8)]
    found = sums(kernel(), a, w)[3].term
    assert not is_unsatisfiable(found != bits_in_common(a, w[4]))
