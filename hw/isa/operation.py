"""Operations that kernels are made of: what each one does, whichever instruction does it."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Operation(StrEnum):
    """What kernels are made of, with the width of a lane behind the dot, and a sentence each."""

    meaning: str
    """What it does."""

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """A name and its sentence."""
        operation = str.__new__(cls, value)
        operation._value_ = value
        operation.meaning = meaning
        return operation

    AND = "and", "Bits set in both."
    OR = "or", "Bits set in either."
    XOR = "xor", "Bits set in one of two."
    SELECT = "select", "Bits of the second where the first is set, of the third elsewhere."
    BIT_SUM = "bit_sum", "The sum bits of a full adder at every bit position."
    BIT_CARRY = "bit_carry", "The carry bits of a full adder at every bit position."
    COUNT = "count", "How many bits of a lane are set."

    ADD_8 = "add.8", "Sums of bytes."
    ADD_16 = "add.16", "Sums of 16 bits."
    ADD_32 = "add.32", "Sums of 32 bits."
    SCALE_ADD_8 = "scale_add.8", "Bytes increased by a constant times others."
    SCALE_ADD_16 = "scale_add.16", "16 bits increased by a constant times others."
    SCALE_ADD_32 = "scale_add.32", "32 bits increased by a constant times others."
    PAIR_ADD_8 = "pair_add.8", "Sums of neighbouring bytes of two registers."
    PAIR_ADD_32 = "pair_add.32", "Sums of neighbouring 32 bits of two registers."
    PAIR_ADD_16 = "pair_add.16", "Sums of neighbouring 16 bits of two registers."
    ADD_QUARTERS_32 = "add_quarters.32", "Sums of neighbouring quarters of two registers."

    PAIR_WIDEN_8 = "pair_widen.8", "Sums of neighbouring bytes, in 16 bits."
    PAIR_WIDEN_16 = "pair_widen.16", "Sums of neighbouring 16 bits, in 32."
    PAIR_WIDEN_SIGNED_8 = "pair_widen_signed.8", "Sums of neighbouring signed bytes, in 16 bits."
    PAIR_WIDEN_SIGNED_16 = "pair_widen_signed.16", "Sums of neighbouring signed 16 bits, in 32."
    PAIR_WIDEN_ADD_SIGNED_16 = (
        "pair_widen_add_signed.16",
        "32 bits increased by two neighbouring signed 16 bits.",
    )
    PAIR_WIDEN_ADD_8 = "pair_widen_add.8", "16 bits increased by two neighbouring bytes."
    PAIR_WIDEN_ADD_16 = "pair_widen_add.16", "32 bits increased by two neighbouring 16 bits."
    WIDEN_ADD_8 = "widen_add.8", "16 bits increased by bytes."
    WIDEN_ADD_16 = "widen_add.16", "32 bits increased by 16."
    WIDEN_SCALE_ADD_8 = "widen_scale_add.8", "16 bits increased by a constant times bytes."
    WIDEN_SCALE_ADD_16 = "widen_scale_add.16", "32 bits increased by a constant times 16."
    WIDEN_8 = "widen.8", "Bytes as 16 bits."
    WIDEN_16 = "widen.16", "16 bits as 32."
    WEIGHED_8 = "weighed.8", "32 bits increased by a constant times each of their four bytes."
    ODD_8 = "odd.8", "The upper byte of every 16 bits."
    LESS_ODD_8 = "less_odd.8", "16 bits without the upper bytes that were added to them."
    EVEN_16 = "even.16", "The lower half of every 32 bits."
    ODD_16 = "odd.16", "The upper half of every 32 bits."

    LOOKUP = "lookup", "Bytes of a table of 16."
    LOOKUP_PAIR = "lookup.pair", "Bytes of a table of two registers."
    LOOKUP_FOUR = "lookup.four", "Bytes of a table of four registers, 0 behind its end."
    LOOKUP_FOUR_ELSE = "lookup.four_else", "The same, but behind its end what was there before."
    LOW_NIBBLE = "low_nibble", "The lower half of every byte."
    HIGH_NIBBLE = "high_nibble", "The upper half of every byte."
    COLUMNS_0 = "columns.0", "Of four rows of bytes the first columns, each in one lane."
    COLUMNS_1 = "columns.1", "Of four rows of bytes the last columns, each in one lane."
    LOW_HALVES_8 = "low_halves.8", "The lower halves of two registers of bytes."
    HIGH_HALVES_8 = "high_halves.8", "The upper halves of two registers of bytes."
    LOW_HALVES_32 = "low_halves.32", "The lower halves of two registers of 32 bits."
    HIGH_HALVES_32 = "high_halves.32", "The upper halves of two registers of 32 bits."
    EXPAND_SIGNED1 = "expand.signed1", "Bytes of signed numbers of one bit."
    EXPAND_SIGNED2 = "expand.signed2", "Bytes of signed numbers of two bits."
    EXPAND_SIGNED4 = "expand.signed4", "Bytes of signed numbers of four bits."
    EXPAND_ODD1 = "expand.odd1", "Bytes of odd numbers stored in one bit."
    EXPAND_ODD2 = "expand.odd2", "Bytes of odd numbers stored in two bits."
    EXPAND_ODD4 = "expand.odd4", "Bytes of odd numbers stored in four bits."

    MAC_8 = "mac.8", "Bytes increased by products of bytes."
    MULTIPLY_8 = "multiply.8", "Products of signed bytes, in 16 bits."
    MAC_16 = "mac.16", "16 bits increased by products of signed bytes."
    PRODUCTS_8 = "products.8", "Sums of two products u8 x s8, in 16 bits."
    PRODUCTS_16 = "products.16", "Sums of two products of signed 16 bits, in 32."
    DOT = "dot", "32 bits increased by products u8 x s8, of bytes or of 16 bits made of them."
    DOT_MIXED = "dot.mixed", "32 bits increased by four products u8 x s8, where `dot` has fewer."
    DOT_SIGNED = "dot.signed", "32 bits increased by four products s8 x s8."
    MATRIX_MIXED = "matrix.mixed", "Sums of products u8 x s8 of every two halves, eight each."
    MATRIX_SIGNED = "matrix.signed", "Sums of products s8 x s8 of every two halves, eight each."
    DOT_16 = "dot.16", "32 bits increased by products of signed 16 bits."
    FLOAT_MAC = "float_mac", "Floats increased by products of floats."
    BFLOAT16_DOT = "bfloat16_dot", "Floats increased by two products of bfloat16."
    FLOAT16_MAC = "half_mac", "Floats of 16 bits increased by products of such."
    FLOAT16_ADD = "half_add", "Sums of floats of 16 bits."
    FLOAT16_PAIR_ADD = "half_pair_add", "Sums of neighbours of two registers of floats of 16 bits."
    FLOAT16_WIDEN_LOW = (
        "half_widen_low",
        "The first half of a register of 16 bits, as floats of 32.",
    )
    FLOAT16_WIDEN_HIGH = (
        "half_widen_high",
        "The last half of a register of 16 bits, as floats of 32.",
    )

    def for_lanes(self, bits: int) -> Operation:
        """The operation for lanes of so many bits; ValueError if there is none."""
        return Operation(f"{self.value.partition('.')[0]}.{bits}")


REQUIRED = frozenset(
    (
        *(Operation.AND, Operation.OR, Operation.XOR, Operation.SELECT, Operation.COUNT),
        *(Operation.ADD_8, Operation.ADD_16, Operation.ADD_32, Operation.SCALE_ADD_32),
        *(Operation.PAIR_WIDEN_8, Operation.PAIR_WIDEN_16),
        *(Operation.DOT, Operation.DOT_16, Operation.FLOAT_MAC, Operation.BFLOAT16_DOT),
    )
)
"""Operations that every instruction set has; each other one adds the kernels that use it."""
