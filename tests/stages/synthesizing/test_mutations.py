"""Mutated kernels: none that NumPy shows to be wrong is accepted by a proof."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from hw.isa import Isa, Vector, isa_of
from hw.isa.arrays import ArrayLane, array_lanes
from hw.profile import Hardware
from stages.kernels.packing import pack_planes
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import TermPlan
from stages.synthesizing.bodies import Body, body_of
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.vector_program import Program, Step
from tests.stages.synthesizing.plans import plan_named, popcount
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, AVX512VPOPCNTDQ

Array = np.ndarray[Any, Any]
CASES = [
    (AARCH64, plan_named("xor2", 2, 1, "bipolar")),
    (AARCH64, plan_named("mix3", 2, 2, "bipolar")),
    (ARMV7, plan_named("choose_a2", 3, 1, "unipolar")),
    (AVX2, plan_named("and4", 2, 2, "signed")),
    (AVX512VPOPCNTDQ, plan_named("choose_w6", 3, 3, "signed")),
]
CARRY_SAVE = [
    (plan_named("xor1", 1, 1, "bipolar"), 6),
    (plan_named("mix3", 2, 2, "bipolar"), 4),
]
MUTANTS = 120
TRIALS = 64


def mutants(body: Body, isa: Isa, rng: random.Random) -> Iterator[Body]:
    """Bodies with one step, one pass or the flushing changed."""
    while True:
        passes = list(body.passes)
        index = rng.randrange(len(passes))
        one = passes[index]
        what = rng.choice(("step", "step", "step", "step", "flush", "pass", "output"))
        if what == "flush" and body.flush.steps:
            yield replace(body, flush=mutated(body.flush, isa, rng))
            continue
        if what == "pass":
            if rng.random() < 0.5:
                passes[index] = replace(one, coefficient=one.coefficient + rng.choice((-1, 1)))
            else:
                passes[index] = replace(one, carried=one.carried + 1)
        elif what == "output":
            names = list(one.word.outputs)
            registers = [*one.word.outputs.values(), *one.word.inputs.values()]
            outputs = one.word.outputs | {rng.choice(names): rng.choice(registers)}
            passes[index] = replace(one, word=replace(one.word, outputs=outputs))
        else:
            passes[index] = replace(one, word=mutated(one.word, isa, rng))
        yield replace(body, passes=tuple(passes))


def mutated(program: Program, isa: Isa, rng: random.Random) -> Program:
    """One step with another instruction of its types, another operand, or operands exchanged."""
    steps = list(program.steps)
    number = rng.randrange(len(steps))
    step = steps[number]
    known = [*program.inputs.values(), *(earlier.result for earlier in steps[:number])]
    alike = [r for r in known if len(r) == len(step.operands[0])]
    operands = list(step.operands)
    if rng.random() < 0.4:
        rows = [
            row
            for row in isa.instructions()
            if len(row.operands) == len(operands)
            and [k.bytes for k in row.operands] == [k.bytes for k in step.instruction.operands]
            and row.result.bytes == step.instruction.result.bytes
            and not row.immediates
        ]
        changed = Step(rng.choice(rows), step.result, step.operands)
    elif rng.random() < 0.5:
        operands[rng.randrange(len(operands))] = rng.choice(alike)
        changed = replace(step, operands=tuple(operands))
    else:
        changed = replace(step, operands=tuple(reversed(operands)))
    steps[number] = changed
    return replace(program, steps=steps)


@cache
def operands(
    plan: TermPlan, lanes: int, step: int
) -> tuple[Array, Array, dict[str, list[ArrayLane]]]:
    """Random and extreme levels of one pixel and `lanes` channels, and the planes' registers."""
    rng = np.random.default_rng(5)
    tops = (1 << plan.activation_bits) - 1, (1 << plan.weight_bits) - 1
    a = rng.integers(0, tops[0], (TRIALS, 32 * step), np.uint8, endpoint=True)
    w = rng.integers(0, tops[1], (TRIALS, lanes, 32 * step), np.uint8, endpoint=True)
    a[0], w[0], a[1], w[1] = tops[0], tops[1], 0, tops[1]
    inputs = {}
    for plane, words in enumerate(pack_planes(a, plan.activation_planes)):
        for number in range(step):
            one = np.repeat(words[:, number : number + 1], lanes, 1)
            inputs[f"a{plane * step + number}.0"] = array_lanes(one)
    for plane, words in enumerate(pack_planes(w, plan.weight_planes)):
        for number in range(step):
            inputs[f"w{plane * step + number}.0"] = array_lanes(words[..., number])
    return a, w, inputs


def is_right(signature: KernelSignature, body: Body, isa: Isa) -> bool:
    """Whether one word's sums are the plan's, on many inputs, by running every program."""
    plan = signature.plan
    assert plan is not None
    a, w, inputs = operands(plan, isa.lanes, signature.step)
    zeros = {f"c0.{n}": _zero(body.counter(n)) for n in range(body.registers_per_flush)}
    totals = np.zeros((TRIALS, isa.lanes), np.int64)
    counters = zeros
    for one in body.passes:
        before = {name: [x.times(one.carried) for x in lanes] for name, lanes in counters.items()}
        given = {name: inputs[name] for name in one.word.inputs if name[0] != "c"}
        counters = one.word.run(given | before)
        if one.ends_chain:
            sums = body.flush.run({name.replace("0.", ""): x for name, x in counters.items()})["s0"]
            totals += one.coefficient * np.stack([lane.signed() for lane in sums], 1)
            counters = zeros
    table = plan.table()
    expected = table[a[:, None, :], w].sum(-1)
    if plan.activation_sum:
        expected = expected - np.array(plan.activation_sum)[a].sum(-1)[:, None]
    return bool(np.array_equal(totals, expected))


def _zero(kind: Vector) -> list[ArrayLane]:
    return array_lanes(np.zeros((TRIALS, kind.lanes), f"u{kind.bits // 8}"))


@pytest.mark.parametrize(("hardware", "plan"), CASES, ids=lambda x: getattr(x, "name", x))
def test_no_mutant_that_numpy_shows_wrong_is_proved(hardware: Hardware, plan: TermPlan) -> None:
    judge(popcount(hardware, plan), isa_of(hardware), MUTANTS)


@pytest.mark.parametrize(("plan", "words"), CARRY_SAVE, ids=lambda x: getattr(x, "name", x))
def test_no_mutant_of_an_adder_that_numpy_shows_wrong_is_proved(plan: TermPlan, words: int) -> None:
    judge(popcount(AVX512BW, plan, words=words), isa_of(AVX512BW), MUTANTS // 2)


def judge(signature: KernelSignature, isa: Isa, count: int) -> None:
    """Mutants of a kernel, by what a proof and what NumPy says."""
    plan = signature.plan
    assert plan is not None
    body = body_of(signature, isa)
    assert is_right(signature, body, isa)
    verdicts: Counter[tuple[bool, bool]] = Counter()
    for mutant in islice(mutants(body, isa, random.Random(plan.name)), count):
        try:
            prove(signature, isa, mutant)
            proved = True
        except ProofError:
            proved = False
        try:
            right = is_right(signature, mutant, isa)
        except (ValueError, KeyError, IndexError, AttributeError):
            right = False
        verdicts[proved, right] += 1
    assert verdicts[True, False] == 0
    # The test can fail: most mutants are wrong, and some are not wrong at all.
    assert verdicts[False, False] > count // 3
    assert sum(verdicts.values()) == count
