"""By which instructions code multiplies, told from the machine code of A64 that was executed.

Encodings are those of the Arm Architecture Reference Manual (DDI 0487, C7.2), of 128 bits, by
vectors and by elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pipelines.modelling.code_blocks import Block

_BY_VECTOR, _BY_ELEMENT = 0xFFE0FC00, 0xFFC0F400
_LONG, _LONG_BY_ELEMENT = 0xBF20FC00, 0xBF00F400
_FORMS: tuple[tuple[int, int, str], ...] = (
    (_BY_VECTOR, 0x4E80A400, "SMMLA"),
    (_BY_VECTOR, 0x6E80A400, "UMMLA"),
    (_BY_VECTOR, 0x4E80AC00, "USMMLA"),
    (_BY_VECTOR, 0x4E809400, "SDOT"),
    (_BY_ELEMENT, 0x4F80E000, "SDOT"),
    (_BY_VECTOR, 0x6E809400, "UDOT"),
    (_BY_ELEMENT, 0x6F80E000, "UDOT"),
    (_BY_VECTOR, 0x4E809C00, "USDOT"),
    (_BY_ELEMENT, 0x4F80F000, "USDOT"),
    (_BY_ELEMENT, 0x4F00F000, "SUDOT"),
    (_LONG, 0x0E208000, "SMLAL"),
    (_LONG_BY_ELEMENT, 0x0F002000, "SMLAL"),
    (_LONG, 0x2E208000, "UMLAL"),
    (_LONG_BY_ELEMENT, 0x2F002000, "UMLAL"),
    (_LONG, 0x0E20C000, "SMULL"),
    (_BY_VECTOR, 0x4E20CC00, "FMLA"),
    (_BY_ELEMENT, 0x4F801000, "FMLA"),
    (_BY_VECTOR, 0x4E400C00, "FMLA of float16"),
    (_BY_ELEMENT, 0x4F001000, "FMLA of float16"),
)
"""Mask, bits and name."""
LEAST = 0.1
"""The part of all products' instructions, at least, of one that is named."""


def multiplying(blocks: Iterable[Block]) -> Counter[str]:
    """Return how often each instruction that multiplies was executed, by its name."""
    found: Counter[str] = Counter()
    for block in blocks:
        for at in range(0, len(block.code) - 3, 4):
            word = int.from_bytes(block.code[at : at + 4], "little")
            name = next((name for mask, bits, name in _FORMS if word & mask == bits), None)
            if name is not None:
                found[name] += block.count
    return found


def named(found: Mapping[str, int]) -> str:
    """Return the names of those that are no small part, the most frequent first."""
    total = sum(found.values())
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(name for name, count in ordered if count >= LEAST * total)
