"""Bytes of integers of 32 bits, a block of channels at a time, by instructions that saturate."""

from __future__ import annotations

from hw.isa.instruction_set import Isa
from stages.codegen import Text
from stages.dialect.dtypes import limits
from stages.packaging.epilogues.block_vectors import BlockVectors

SATURATED = "bk_saturated_"
"""Functions `(from, to)` of pointers to int32 [32] and to bytes [32], by the type of these."""

WORDS = "bk_words"
"""A function `(from, to)` of pointers to int32 [32] and to the nearest int16 [32]."""


def has_saturating_pack(isa: Isa) -> bool:
    """Whether there are such functions for an instruction set."""
    return BlockVectors("", isa.lanes).has_saturating_pack


def saturating_text(dtype: str) -> Text:
    """The function `SATURATED + dtype` as LLVM IR."""
    code = BlockVectors("x86_64", 16)
    found = code.packed(code.load(code.ints, "%from", 4), code.ints, limits(dtype))
    code.store(code.bytes, found, "%to", 1)
    code.do("ret void")
    return code.function(SATURATED + dtype, ["ptr %from", "ptr %to"]), list(code.declarations)


def words_text() -> Text:
    """The function WORDS as LLVM IR."""
    code = BlockVectors("x86_64", 16)
    code.store(code.words, code.saturated(code.load(code.ints, "%from", 4)), "%to", 2)
    code.do("ret void")
    return code.function(WORDS, ["ptr %from", "ptr %to"]), list(code.declarations)
