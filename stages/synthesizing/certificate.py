"""Proof that a kernel computes the products it stands for, for all inputs.

A body's programs are run in the exact domain (`hw.isa.exact`) with every position holding an
unknown pair of levels, the entries of LUTs being sums over four positions. What a word adds to
each counter, what flushing makes of it, and the factors of the passes give one integer vector per
lane; it must be the plan's table for the lane's own row and pixel, and nothing else. The plan's
table must be the product up to a term of the weight alone. Ranges are proved where lanes are
widened, for as many words as the signature allows.

Bits that full adders carry from step to step are unknown too. There an invariant takes the place of
addition: flushing after a step gives what it gave before and the step's products.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hw.isa import Isa
from hw.isa.exact import BitsLane
from hw.isa.fingerprint import fingerprint
from hw.isa.sum_lane import Group, InexactError, Place, SumLane, Vector, zero_lane
from stages.kernels.operand_storage import BYTE_BITS, WORD_BITS, WORD_BYTES
from stages.kernels.signature import COUPLE, KernelSignature
from stages.kinds import Table
from stages.synthesizing.body import Body
from stages.synthesizing.interaction import residual
from stages.synthesizing.proof_inputs import corners, coupled_planes, lut_inputs, planes
from stages.synthesizing.vector_program import Program
from stages.synthesizing.weight_expansion import prove_expansion

SUM_LIMIT = (1 << 31) - 1


class ProofError(AssertionError):
    """A kernel that does not compute what its signature promises."""


def certify(signature: KernelSignature, isa: Isa, body: Body, text: str) -> Table:
    """The certificate of a kernel; raises ProofError with the first thing that is wrong.

    It names what was proved: the specification, the rows of the instruction set as they were when
    it was, the text that was emitted, and the largest window for which no sum overflows.
    """
    return {
        "kernel": signature.name,
        "proved": prove(signature, isa, body),
        "instructions": fingerprint(isa, float16=signature.accumulates_float16),
        "text": digest(text),
    }


def digest(text: str) -> str:
    """SHA-256 of an emitted function."""
    return hashlib.sha256(text.encode()).hexdigest()


def prove(signature: KernelSignature, isa: Isa, body: Body) -> Table:
    """What holds for all inputs, as plain data; ProofError if the signature does not."""
    try:
        return _proved(signature, isa, body)
    except (InexactError, KeyError, AssertionError) as error:
        raise ProofError(f"{signature.name}: {error}") from error


def _proved(signature: KernelSignature, isa: Isa, body: Body) -> Table:
    plan = signature.plan
    facts: Table
    if plan is not None:
        facts = {
            "weights_alone": [int(x) for x in residual(plan)],
            "activation_sum": list(plan.activation_sum),
            "level_pairs": 1 << (plan.activation_bits + plan.weight_bits),
        }
        table = plan.table()
        if plan.activation_sum:
            table = table - np.array(plan.activation_sum)[:, None]
        if signature.coupled:
            operands, sums = coupled_planes(plan, signature, isa)
            facts["coupled"] = COUPLE
        else:
            operands, sums = planes(plan, signature, isa), table.ravel()
        totals, largest = _simulated(signature, isa, body, operands)
        chunks = WORD_BYTES * signature.step // (COUPLE if signature.coupled else 1)
        _compare(totals, sums, chunks, BYTE_BITS, isa)
    elif (lut := signature.lut) is not None:
        facts = {
            "weights_alone": [int(x) for x in lut.residual()],
            "level_pairs": 1 << (lut.activation_bits + lut.weight_bits),
        }
        totals, largest = _simulated(signature, isa, body, lut_inputs(lut, signature, isa))
        _compare(totals, lut.table().ravel(), WORD_BITS * signature.step, 1, isa)
    else:
        assert signature.products is not None
        facts = {
            "activation_bits": signature.products.activation_bits,
            "weight_limit": signature.products.weight_limit,
        }
        if signature.offset:
            facts["activations_less"] = signature.offset
        if signature.is_float:
            facts = {"rounding": "left out: sums of real numbers"}
        if signature.code is not None:
            prove_expansion(signature.code, isa)
            facts["expanded"] = signature.code.name
        numbers, products = corners(signature, isa, body)
        totals, largest = _simulated(signature, isa, body, numbers)
        if signature.is_transformed and not signature.is_float:
            facts["sums"], largest = "modulo 2^32, however many", 1
        channels = signature.channels_per_word * signature.step
        _compare(totals, products, channels, 1, isa, body.distance)
        found = {m * body.distance + n for m, _ in totals for n in range(body.pixels)}
        assert found == set(range(signature.rows)), "some pixels are left out"
    return facts | {
        "scale": signature.scale,
        "flush_period": signature.flush_period,
        "most_words": SUM_LIMIT // max(largest, 1) * signature.step,
    }


Lanes = list[Any]
Totals = dict[tuple[int, int], Lanes]
"""Lanes of registers, by pixel and number."""


def _simulated(
    signature: KernelSignature, isa: Isa, body: Body, operands: Mapping[str, Sequence[Any]]
) -> tuple[Totals, int]:
    """The sums of a window of one step, and the most that a step adds to one in size."""
    tile = body.counters(signature.rows, signature.channels, isa.lanes)
    period = signature.flush_period // signature.step or 1
    before = {(m, n): _unknown(body, m, n) for m, n in tile}
    empty = {(m, n): before[m, n] if body.is_bits(n) else _nothing(body, n) for m, n in tile}
    start = _from_nothing(body, empty)
    totals: Totals = {}
    counters = empty
    largest = 0
    for one in body.passes:
        assert not (body.carried_bits and one.carried), "carried bits are multiplied"
        added = _word_adds(one.word, operands, body, before)
        counters = {
            (m, n): lanes if body.is_bits(n) else _sums(_times(counters[m, n], one.carried), lanes)
            for (m, n), lanes in added.items()
        }
        full = {p: x if body.is_bits(p[1]) else _times(x, period) for p, x in added.items()}
        _flushed(body, full)
        gained = _gained(body, added, start)
        if one.ends_chain:
            whole = _gained(body, counters, start) if one.carried else gained
            for place, lanes in whole.items():
                scaled = _times(lanes, one.coefficient)
                totals[place] = _sums(totals[place], scaled) if place in totals else scaled
            counters = empty
        most = max(max(map(abs, lane.range())) for lanes in gained.values() for lane in lanes)
        largest += most * abs(one.coefficient)
    return totals, largest


def _unknown(body: Body, m: int, n: int) -> Lanes:
    """A register of counters of which nothing is known: its groups have rows and pixels below 0."""
    kind = body.counter(n)
    if not body.is_bits(n):
        places = [Group(-1 - n, -1 - m, lane, 1) for lane in range(kind.lanes)]
        return [SumLane(kind.bits, {place: np.ones(1, np.int64)}) for place in places]
    chunks = kind.bits // 8
    groups = [
        tuple(Group(-1 - n, -1 - m, lane * chunks + chunk, 8) for chunk in range(chunks))
        for lane in range(kind.lanes)
    ]
    return [BitsLane(places, 0b10, 2) for places in groups]


def _nothing(body: Body, n: int) -> Lanes:
    return [zero_lane(body.counter(n).bits)] * body.counter(n).lanes


def _word_adds(
    word: Program, operands: Mapping[str, Sequence[Any]], body: Body, before: Totals
) -> Totals:
    """What a step adds to each number, the same whatever it was, and what it makes of bits."""
    used = {name: lanes for name, lanes in operands.items() if name in word.inputs}
    after = word.run(used | {f"c{m}.{n}": lanes for (m, n), lanes in before.items()})
    return {
        (m, n): after[f"c{m}.{n}"]
        if body.is_bits(n)
        else [_less(lane, held) for lane, held in zip(after[f"c{m}.{n}"], lanes, strict=True)]
        for (m, n), lanes in before.items()
    }


def _less(later: SumLane, before: SumLane) -> SumLane:
    """A lane without the counter it began with, of which it must hold one, and no other."""
    assert isinstance(later, SumLane), "a count is no sum"
    (group,) = before.terms
    terms = dict(later.terms)
    held = terms.pop(group, None)
    is_one = held is not None and np.array_equal(held, [1])
    assert is_one and not any(map(_is_counter, terms)), "a count depends on the counter"
    return SumLane(later.bits, terms, later.constant)


def _is_counter(place: Place) -> bool:
    """Whether it is an unknown number, and neither operands nor carried bits."""
    return isinstance(place, Group) and place.positions == 1 and (place.row or 0) < 0


def _times(lanes: Lanes, factor: int) -> Lanes:
    return [lane.times(factor) for lane in lanes]


def _sums(x: Lanes, y: Lanes) -> Lanes:
    return [one + other for one, other in zip(x, y, strict=True)]


def _flushed(body: Body, counters: Totals) -> Totals:
    """Registers of sums, by pixel and number, of all registers of counters."""
    totals: Totals = {}
    for m, n in counters:
        if n % body.registers_per_flush == 0:
            inputs = {f"c{i}": counters[m, n + i] for i in range(body.registers_per_flush)}
            for name, lanes in body.flush.run(inputs).items():
                totals[m, n // body.registers_per_flush * body.registers + int(name[1:])] = lanes
    return totals


def _from_nothing(body: Body, empty: Totals) -> Totals:
    """What flushing gives of carried bits alone: nothing where they are 0."""
    starts = {place: [x.resolved() for x in y] for place, y in _flushed(body, empty).items()}
    for start in (lane for lanes in starts.values() for lane in lanes):
        is_nothing = not any(vector[0] for vector in start.terms.values())
        assert start.constant == 0 and is_nothing, "flushing nothing gives something"
    return starts


def _gained(body: Body, counters: Totals, start: Totals) -> Totals:
    """How much more flushing gives than it did of the bits before.

    Numbers are what was added to them, as flushing is linear in them.
    """
    return {
        place: [now.resolved() - before for now, before in zip(lanes, start[place], strict=True)]
        for place, lanes in _flushed(body, counters).items()
    }


def _compare(
    totals: Totals, expected: Vector, chunks: int, positions: int, isa: Isa, distance: int = 1
) -> None:
    """Every lane sums `expected` over the positions of its own row and pixel, and nothing else."""
    for (first, n), lanes in totals.items():
        for number, lane in enumerate(lanes):
            m = first * distance + number // isa.lanes
            row = n * isa.lanes + number % isa.lanes
            own = {Group(row, m, chunk, positions) for chunk in range(chunks)}
            assert lane.constant == 0, f"row {row}, pixel {m}: a constant is added"
            terms = lane.merged()
            for group, vector in terms.items():
                if group not in own:
                    assert not vector.any(), f"row {row}, pixel {m}: counts {group}"
            for group in own:
                found = terms.get(group)
                assert found is not None and np.array_equal(found, expected), (
                    f"row {row}, pixel {m}: not the product"
                )
