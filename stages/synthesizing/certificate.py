"""Proof that a kernel computes the products it stands for, for all inputs.

A body's programs are run in the exact domain (`hw.isa.exact`) with every position holding an
unknown pair of levels, the entries of tables being sums over four positions. What a word adds to
each counter, what emptying makes of it, and the factors of the passes give one integer vector per
lane; it must be the plan's table for the lane's own row and pixel, and nothing else. The plan's
table must be the product up to a term of the weight alone. Ranges are proved where lanes are
widened, for as many words as the signature allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hw.isa import Isa
from hw.isa.exact import BitsLane, Group, InexactError, SumLane, Vector, zero_lane
from hw.isa.fingerprint import fingerprint
from stages.kinds import Table
from stages.qnn.signature import WORD_BITS, WORD_BYTES, KernelSignature
from stages.qnn.tables import ENTRIES, GROUP, Tables, additions, entry_bits
from stages.qnn.terms import TermPlan, plane_bits
from stages.synthesizing.body import Body
from stages.synthesizing.program import Program
from stages.synthesizing.quotient import residual

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
        "instructions": fingerprint(isa),
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
        totals, largest = _simulated(signature, isa, body, _planes(plan, signature, isa))
        _compare(totals, table.ravel(), WORD_BYTES, 8, isa)
    elif (tables := signature.tables) is not None:
        facts = {
            "weights_alone": [int(x) for x in tables.residual()],
            "level_pairs": 1 << (tables.activation_bits + tables.weight_bits),
        }
        totals, largest = _simulated(signature, isa, body, _looked_up(tables, signature, isa))
        _compare(totals, tables.table().ravel(), WORD_BITS, 1, isa)
    else:
        assert signature.products is not None
        facts = {
            "activation_bits": signature.products.activation_bits,
            "weight_limit": signature.products.weight_limit,
        }
        operands, corners = _corners(signature, isa, body)
        totals, largest = _simulated(signature, isa, body, operands)
        _compare(totals, corners, WORD_BYTES, 1, isa)
    return facts | {
        "scale": signature.scale,
        "flush_period": signature.flush_period,
        "most_words": SUM_LIMIT // max(largest, 1),
    }


Totals = dict[tuple[int, int], list[SumLane]]


def _simulated(
    signature: KernelSignature, isa: Isa, body: Body, operands: Mapping[str, Sequence[Any]]
) -> tuple[Totals, int]:
    """The sums of a window of one word, and the most that a word adds to one in size."""
    tile = body.counters(signature.rows, signature.channels, isa.lanes)
    period = signature.flush_period or 1
    kind = body.counter
    zeros = [zero_lane(kind.bits)] * kind.lanes
    totals: Totals = {}
    counters: Totals = {place: zeros for place in tile}
    largest = 0
    for one in body.passes:
        added = _word_adds(one.word, operands, body, tile)
        for place in tile:
            before = [lane.times(one.carried) for lane in counters[place]]
            counters[place] = _sums(before, added[place])
        _emptied(body, {place: [x.times(period) for x in added[place]] for place in tile})
        if one.ends_chain:
            for place, lanes in _emptied(body, counters).items():
                scaled = [lane.times(one.coefficient) for lane in lanes]
                totals[place] = _sums(totals[place], scaled) if place in totals else scaled
            counters = {place: zeros for place in tile}
        most = (max(map(abs, lane.range())) for x in _emptied(body, added).values() for lane in x)
        largest += max(most) * abs(one.coefficient)
    return totals, largest


def _planes(plan: TermPlan, signature: KernelSignature, isa: Isa) -> dict[str, list[BitsLane]]:
    """Every plane as bits of unknown levels: activations of pixel `m`, weights of row `n`."""
    n_levels, m_levels = 1 << plan.activation_bits, 1 << plan.weight_bits
    pairs = np.arange(n_levels * m_levels)
    result: dict[str, list[BitsLane]] = {}
    for plane, table in enumerate(plan.activation_planes):
        bits = packed_table(plane_bits(table, n_levels)[pairs // m_levels])
        for m in range(signature.rows):
            lane = BitsLane(_groups(None, m), bits, len(pairs))
            result[f"a{plane}.{m}"] = [lane] * isa.lanes
    for plane, table in enumerate(plan.weight_planes):
        bits = packed_table(plane_bits(table, m_levels)[pairs % m_levels])
        for n in range(signature.channels // isa.lanes):
            result[f"w{plane}.{n}"] = [
                BitsLane(_groups(n * isa.lanes + lane, None), bits, len(pairs))
                for lane in range(isa.lanes)
            ]
    return result


def _looked_up(
    tables: Tables, signature: KernelSignature, isa: Isa
) -> dict[str, list[BitsLane] | list[SumLane]]:
    """Tables of unknown levels of pixel `m`, and indices, two a byte, of unknown bits of a row.

    What stands where is laid out anew here, as emptying orders it, and not by what packs weights.
    """
    n_levels, m_levels = 1 << tables.activation_bits, 1 << tables.weight_bits
    pairs = np.arange(n_levels * m_levels)
    added = additions(tables.activation_bits, tables.is_balanced)[:, pairs // m_levels]
    lookups = WORD_BITS // GROUP // tables.groups
    result: dict[str, list[BitsLane] | list[SumLane]] = {}
    for number in range(lookups):
        for m in range(signature.rows):
            result[f"a{number}.{m}"] = [
                _entry(added, m, GROUP * _group(tables, number, byte), byte % ENTRIES)
                for byte in range(isa.bytes)
            ]
    for digit in range(tables.weight_bits):
        bits = packed_table(pairs % m_levels >> digit & 1)
        for number in range(0, lookups, 2):
            for n in range(signature.channels // tables.channels):
                lanes = []
                for byte in range(isa.bytes):
                    row = n * tables.channels + _row(tables, byte)
                    first = [GROUP * _group(tables, number + half, byte) for half in (0, 1)]
                    places = [start + channel for start in first for channel in range(GROUP)]
                    groups = tuple(Group(row, None, place, 1) for place in places)
                    lanes.append(BitsLane(groups, bits, len(pairs)))
                result[f"w{(digit * lookups + number) // 2}.{n}"] = lanes
    return result


def _group(tables: Tables, number: int, byte: int) -> int:
    """The group of channels that a byte of a register looks up."""
    return number * tables.groups + byte // ENTRIES % tables.groups


def _row(tables: Tables, byte: int) -> int:
    """The output channel of a byte of a register."""
    place = byte // (ENTRIES * tables.groups) * ENTRIES + byte % ENTRIES
    apart, position = tables.channels // tables.interleave, divmod(place, tables.interleave)
    return position[1] * apart + position[0]


def _entry(added: Vector, pixel: int, first: int, number: int) -> SumLane:
    """An entry of a table: what each of four channels adds, whose bit in its number is known."""
    terms = {
        Group(None, pixel, first + channel, 1): added[entry_bits(channel)[number]]
        for channel in range(GROUP)
    }
    return SumLane(8, terms)


def _corners(
    signature: KernelSignature, isa: Isa, body: Body
) -> tuple[dict[str, list[SumLane]], Vector]:
    """Levels of the four bytes of a word, at the corners of their ranges, and their products.

    What the domain makes of two levels is a multiple of their product, which its corners tell.
    """
    products = signature.products
    assert products is not None
    top, limit = (1 << products.activation_bits) - 1, products.weight_limit
    a = np.array([0, 0, top, top], np.int64)
    w = np.array([-limit, limit - (limit == 128), -limit, limit - (limit == 128)], np.int64)
    word = body.passes[0].word
    operands: dict[str, list[SumLane]] = {}
    for name, kind in word.types.items():
        if name[0] == "c":
            continue
        part, place = (int(x) for x in name[1:].split("."))
        per_lane = kind.lanes // isa.lanes
        lanes = []
        for lane in range(kind.lanes):
            channel, byte = lane // per_lane, part * per_lane + lane % per_lane
            group = Group(None, place, byte, 1)
            if name[0] == "w":
                group = Group(place * isa.lanes + channel, None, byte, 1)
            lanes.append(SumLane(kind.bits, {group: a if name[0] == "a" else w}))
        operands[name] = lanes
    return operands, a * w


def packed_table(bits: Vector) -> int:
    """A truth table as an int: bit `i` is entry `i`."""
    return sum(1 << position for position, bit in enumerate(bits) if bit)


def _groups(row: int | None, pixel: int | None) -> tuple[Group, ...]:
    """The four bytes of a word."""
    return tuple(Group(row, pixel, chunk, 8) for chunk in range(WORD_BYTES))


def _word_adds(
    word: Program,
    operands: Mapping[str, Sequence[Any]],
    body: Body,
    tile: Sequence[tuple[int, int]],
) -> Totals:
    """What a word adds to each counter; the same whatever the counter held before."""
    kind = body.counter
    zeros = [zero_lane(kind.bits)] * kind.lanes
    unknown = [
        SumLane(kind.bits, {Group(-1, -1, -1 - lane, 1): np.ones(1, np.int64)})
        for lane in range(kind.lanes)
    ]
    used = {name: lanes for name, lanes in operands.items() if name in word.inputs}
    first = word.run(used | {f"c{m}.{n}": zeros for m, n in tile})
    again = word.run(used | {f"c{m}.{n}": unknown for m, n in tile})
    for m, n in tile:
        name = f"c{m}.{n}"
        for lane, start, later in zip(first[name], unknown, again[name], strict=True):
            assert (later - start - lane).is_zero(), "a word's count depends on the counter"
    return {(m, n): first[f"c{m}.{n}"] for m, n in tile}


def _sums(x: Sequence[SumLane], y: Sequence[SumLane]) -> list[SumLane]:
    return [one + other for one, other in zip(x, y, strict=True)]


def _emptied(body: Body, counters: Totals) -> Totals:
    """Registers of sums, by pixel and number, of all registers of counters."""
    totals: Totals = {}
    for m, n in counters:
        if n % body.together == 0:
            inputs = {f"c{i}": counters[m, n + i] for i in range(body.together)}
            for name, lanes in body.empty.run(inputs).items():
                totals[m, n // body.together * body.registers + int(name[1:])] = lanes
    return totals


def _compare(totals: Totals, expected: Vector, chunks: int, positions: int, isa: Isa) -> None:
    """Every lane sums `expected` over the positions of its own row and pixel, and nothing else."""
    for (m, n), lanes in totals.items():
        for number, lane in enumerate(lanes):
            row = n * isa.lanes + number
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
