"""Proofs of LUT kernels: they hold, and do not for kernels that are changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hw.isa import Isa, Operation, isa_of
from hw.profile import Hardware
from stages.kernels.problems import Problem
from stages.layer_options import Encoding
from stages.synthesizing import synthesized
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.vector_program import Program, Step
from tests.stages.synthesizing.plans import PROBLEMS
from tests.stages.synthesizing.test_lut_body import WITH_TABLES, steps, tile


@WITH_TABLES
@pytest.mark.parametrize("weights", ["unipolar", "bipolar", "signed"])
def test_a_kernel_is_proved(hardware: Hardware, weights: Encoding) -> None:
    problem = Problem(2, 2, weights)
    facts = synthesized(tile(problem, hardware), hardware)["certificate"]["proved"]
    assert facts["level_pairs"] == 16
    assert len(set(facts["weights_alone"])) == 1
    # A window of 3x3 pixels of 512 channels at the least.
    assert facts["most_words"] > 9 * 16


@WITH_TABLES
def test_a_longer_period_is_not_proved(hardware: Hardware) -> None:
    for problem in (Problem(1, 1, "unipolar"), Problem(3, 2, "bipolar")):
        for right in steps(problem, hardware):
            longer = replace(right, flush_period=right.flush_period + right.step)
            with pytest.raises(ProofError, match="a lane of 16 bits holds 0 to"):
                prove(longer, isa_of(hardware), body_of(longer, isa_of(hardware)))


@WITH_TABLES
def test_more_words_than_fit_a_byte_are_not_proved(hardware: Hardware) -> None:
    """A run of look-ups is as long as a byte allows: of tables with larger entries it is not."""
    isa, right = isa_of(hardware), steps(Problem(1, 1, "bipolar"), hardware)[-1]
    assert right.lut is not None and right.step == 3
    larger = replace(right, lut=replace(right.lut, activation_bits=2))
    with pytest.raises(ProofError, match="a lane of 8 bits holds 0 to"):
        prove(larger, isa, body_of(right, isa))


@WITH_TABLES
def test_other_tables_are_not_proved(hardware: Hardware) -> None:
    """Those of more bits or other coefficients, and those whose channels are elsewhere."""
    isa, right = isa_of(hardware), tile(Problem(2, 2, "bipolar"), hardware, 1)
    tables = right.lut
    assert tables is not None
    body = body_of(right, isa)
    wrong = [
        replace(tables, weights="signed"),
        replace(tables, activation_bits=3),
        replace(tables, weight_bits=1),
        replace(tables, weight_bits=3),
        replace(tables, interleave=5 - tables.interleave),
        replace(tables, interleave=2),
        replace(tables, words=2),
    ]
    for other in wrong:
        with pytest.raises(ProofError):
            prove(replace(right, lut=other), isa, body)


@WITH_TABLES
def test_a_changed_step_is_not_proved(hardware: Hardware) -> None:
    """Every look-up on another table, every index of the other half, every sum of something else.

    A body is changed in one step of one pass: its first two operands exchanged, one operand taken
    from another step, or its instruction replaced by another of its types.
    """
    isa, signature = isa_of(hardware), tile(Problem(2, 1, "bipolar"), hardware, 1)
    body = body_of(signature, isa)
    (only,) = body.passes
    refused = 0
    for number, step in enumerate(only.word.steps):
        for changed in mutants(only.word, number, step, isa):
            program = replace(only.word, steps=changed)
            wrong = replace(body, passes=(replace(only, word=program),))
            with pytest.raises(ProofError):
                prove(signature, isa, wrong)
            refused += 1
    assert refused > len(only.word.steps)


def mutants(program: Program, number: int, step: Step, isa: Isa) -> Iterator[list[Step]]:
    """The steps with one changed, where that changes what is computed."""
    name = step.instruction.name
    steps = program.steps
    halves = isa[Operation.LOW_NIBBLE], isa[Operation.HIGH_NIBBLE]
    for one, other in (halves, halves[::-1]):
        if name == one.name:
            yield [*steps[:number], replace(step, instruction=other), *steps[number + 1 :]]
    if name == isa[Operation.LOOKUP].name:
        table, index = step.operands
        others = [r for n, r in program.inputs.items() if n[0] == "a" and r != table]
        for changed in (*((other, index) for other in others[:2]), (index, table)):
            yield [*steps[:number], replace(step, operands=changed), *steps[number + 1 :]]
    if name == isa[Operation.ADD_8].name:
        first, second = step.operands
        for changed in ((first, first), (second, second)):
            yield [*steps[:number], replace(step, operands=changed), *steps[number + 1 :]]


@pytest.mark.slow
@WITH_TABLES
def test_every_problem_is_proved(hardware: Hardware) -> None:
    for problem in PROBLEMS:
        longest = steps(problem, hardware)[-1]
        prove(longest, isa_of(hardware), body_of(longest, isa_of(hardware)))
