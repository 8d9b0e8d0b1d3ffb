"""What a proof lets a kernel read: unknown levels of activations and weights, at known places.

What stands where is laid out anew here, and not by what packs data and weights.
"""

from __future__ import annotations

import numpy as np

from hw.isa import Isa
from hw.isa.exact import BitsLane
from hw.isa.sum_lane import Group, Place, SumLane, Vector
from hw.isa.tile_registers import COLUMNS
from stages.kernels.families import BytePairs
from stages.kernels.lut import ENTRIES, GROUP, Lut, additions, entry_bits
from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, WORD_BYTES, WORD_LIMIT
from stages.kernels.signature import COUPLE, KernelSignature
from stages.kernels.terms import TermPlan, plane_bits
from stages.synthesizing.body import Body
from stages.synthesizing.counter_flush import registers_of


def planes(plan: TermPlan, signature: KernelSignature, isa: Isa) -> dict[str, list[BitsLane]]:
    """Every plane of the words of a step, as bits of unknown levels.

    Activations are those of pixel `m`, weights those of rows `n * isa.lanes` and the following.
    """
    n_levels, m_levels = 1 << plan.activation_bits, 1 << plan.weight_bits
    pairs = np.arange(n_levels * m_levels)
    result: dict[str, list[BitsLane]] = {}
    step = signature.words_per_step
    for number in range(step):
        for plane, table in enumerate(plan.activation_planes):
            bits = packed_table(plane_bits(table, n_levels)[pairs // m_levels])
            for m in range(signature.rows):
                lanes = _lanes(signature, isa, number, bits, len(pairs), pixel=m)
                result[f"a{plane * step + number}.{m}"] = lanes
        for plane, table in enumerate(plan.weight_planes):
            bits = packed_table(plane_bits(table, m_levels)[pairs % m_levels])
            for n in range(registers_of(signature.channels, signature.word_bits, isa)):
                lanes = _lanes(signature, isa, number, bits, len(pairs), register=n)
                result[f"w{plane * step + number}.{n}"] = lanes
    return result


def coupled_planes(
    plan: TermPlan, signature: KernelSignature, isa: Isa
) -> tuple[dict[str, list[BitsLane]], Vector]:
    """Every plane of the words of a step, two of which are at the same positions, and their sums.

    What is unknown of a position are two levels and two weights. Weights are the plane of the first
    word and where those of both are alike (`stages.kernels.coupling`).
    """
    n, m = plan.activation_bits, plan.weight_bits
    case = np.arange(1 << COUPLE * (n + m))
    levels = [case >> COUPLE * m + n * word & (1 << n) - 1 for word in range(COUPLE)]
    weights = [case >> m * word & (1 << m) - 1 for word in range(COUPLE)]
    result: dict[str, list[BitsLane]] = {}
    step = signature.words_per_step
    for number in range(step):
        couple, word = divmod(number, COUPLE)
        for plane, table in enumerate(plan.activation_planes):
            bits = packed_table(plane_bits(table, 1 << n)[levels[word]])
            for pixel in range(signature.rows):
                lanes = _lanes(signature, isa, couple, bits, len(case), pixel=pixel)
                result[f"a{plane * step + number}.{pixel}"] = lanes
        for plane, table in enumerate(plan.weight_planes):
            first, second = (plane_bits(table, 1 << m)[weight] for weight in weights)
            bits = packed_table(1 - (first ^ second) if word else first)
            for register in range(registers_of(signature.channels, signature.word_bits, isa)):
                lanes = _lanes(signature, isa, couple, bits, len(case), register=register)
                result[f"w{plane * step + number}.{register}"] = lanes
    sums = sum(plan.table()[a, w] for a, w in zip(levels, weights, strict=True))
    for term in plan.terms:
        own = plane_bits(plan.weight_planes[term.weights[0]], 1 << m)
        sums = sums - term.coefficient * (own[weights[0]] ^ own[weights[1]])
    return result, np.asarray(sums)


def lut_inputs(
    lut: Lut, signature: KernelSignature, isa: Isa
) -> dict[str, list[BitsLane] | list[SumLane]]:
    """Lut of unknown levels of pixel `m`, and indices, two a byte, of unknown bits of a row.

    What stands where is laid out anew here, as flushing orders it, and not by what packs weights.
    """
    n_levels, m_levels = 1 << lut.activation_bits, 1 << lut.weight_bits
    pairs = np.arange(n_levels * m_levels)
    added = additions(lut.activation_bits, lut.is_balanced)[:, pairs // m_levels]
    lookups = lut.words * lut.lookups
    result: dict[str, list[BitsLane] | list[SumLane]] = {}
    for number in range(lookups):
        for m in range(signature.rows):
            result[f"a{number}.{m}"] = [
                _entry(added, m, GROUP * _group(lut, number, byte), byte % ENTRIES)
                for byte in range(isa.bytes)
            ]
    for digit in range(lut.weight_bits):
        bits = packed_table(pairs % m_levels >> digit & 1)
        for number in range(0, lookups, 2):
            for n in range(signature.channels // lut.channels):
                lanes = []
                for byte in range(isa.bytes):
                    row = n * lut.channels + _row(lut, byte)
                    first = [GROUP * _group(lut, number + half, byte) for half in (0, 1)]
                    places = [start + channel for start in first for channel in range(GROUP)]
                    groups = tuple(Group(row, None, place, 1) for place in places)
                    lanes.append(BitsLane(groups, bits, len(pairs)))
                result[f"w{(digit * lookups + number) // 2}.{n}"] = lanes
    return result


def _group(lut: Lut, number: int, byte: int) -> int:
    """The group of channels that a byte of a register looks up."""
    return number * lut.groups + byte // ENTRIES % lut.groups


def _row(lut: Lut, byte: int) -> int:
    """The output channel of a byte of a register."""
    place = byte // (ENTRIES * lut.groups) * ENTRIES + byte % ENTRIES
    apart, position = lut.channels // lut.interleave, divmod(place, lut.interleave)
    return position[1] * apart + position[0]


def _entry(added: Vector, pixel: int, first: int, number: int) -> SumLane:
    """An entry of a table: what each of four channels adds, whose bit in its number is known."""
    terms: dict[Place, Vector] = {
        Group(None, pixel, first + channel, 1): added[entry_bits(channel)[number]]
        for channel in range(GROUP)
    }
    return SumLane(8, terms)


def corners(
    signature: KernelSignature, isa: Isa, body: Body
) -> tuple[dict[str, list[SumLane]], Vector]:
    """Levels of the bytes of a step, at the corners of their ranges, and their products.

    What the domain makes of two levels is a multiple of their product, which its corners tell. Of
    floats, as real numbers, any four pairs that are no multiples of one another tell it. Levels of
    16 bits are signed.
    """
    products = signature.products
    assert products is not None
    top, limit = (1 << products.activation_bits) - 1, products.weight_limit
    least = 0
    if signature.is_float:
        top = limit = 1
    elif signature.is_transformed:
        least, top = -limit, limit - 1
    else:
        least, top = -products.offset, top - products.offset
    a = np.array([least, least, top, top], np.int64)
    w = np.array([-limit, limit - (limit in (BYTE_LIMIT, WORD_LIMIT))] * 2, np.int64)
    word = body.passes[0].word
    operands: dict[str, list[SumLane]] = {}
    for name, kind in word.types.items():
        if name[0] == "c":
            continue
        part, place = (int(x) for x in name[1:].split("."))
        if signature.is_tiled:
            groups = _in_tile(name[0], place, kind.lanes, signature, body.distance)
        else:
            lanes = kind.bytes // WORD_BYTES if isinstance(products, BytePairs) else isa.lanes
            if signature.is_float and signature.multiplies_by_lane:
                lanes = kind.lanes  # each an output channel
            if products.pixels > 1:  # a pixel's own channels, or those of as many rows
                lanes = 1 if name[0] == "a" else products.pixels
            groups = _in_vector(name[0], part, place, kind.lanes // lanes, lanes)
        operands[name] = [SumLane(kind.bits, {g: a if name[0] == "a" else w}) for g in groups]
    return operands, a * w


def _in_vector(operand: str, part: int, place: int, per_lane: int, lanes: int) -> list[Group]:
    """Bytes of a register: a lane of 32 bits is an output channel, and the pixel is in all."""
    groups = []
    for lane in range(lanes):
        row = place * lanes + lane if operand == "w" else None
        pixel = place if operand == "a" else None
        groups += [Group(row, pixel, part * per_lane + byte, 1) for byte in range(per_lane)]
    return groups


def _in_tile(
    operand: str, place: int, size: int, signature: KernelSignature, distance: int
) -> list[Group]:
    """Channels of a tile: a row of data is a pixel, one of weights a word of output channels."""
    per_word, groups = signature.channels_per_word, []
    in_row = per_word * (signature.step if operand == "a" else COLUMNS)
    for number in range(size):
        row, rest = divmod(number, in_row)
        if operand == "a":
            groups.append(Group(None, place * distance + row, rest, 1))
        else:
            channel, part = divmod(rest, per_word)
            groups.append(Group(place * COLUMNS + channel, None, per_word * row + part, 1))
    return groups


def packed_table(bits: Vector) -> int:
    """A truth table as an int: bit `i` is entry `i`."""
    return sum(1 << position for position, bit in enumerate(bits) if bit)


def _lanes(
    signature: KernelSignature,
    isa: Isa,
    number: int,
    bits: int,
    size: int,
    *,
    register: int | None = None,
    pixel: int | None = None,
) -> list[BitsLane]:
    """A register of packed words, the one of a `pixel` in all, or those of neighbouring rows."""
    word = signature.word_bits // BYTE_BITS
    groups = []
    for byte in range(isa.bytes):
        row = None if register is None else (register * isa.bytes + byte) // word
        groups.append(Group(row, pixel, number * word + byte % word, BYTE_BITS))
    by_lane = zip(*[iter(groups)] * WORD_BYTES, strict=True)
    return [BitsLane(tuple(lane), bits, size) for lane in by_lane]
