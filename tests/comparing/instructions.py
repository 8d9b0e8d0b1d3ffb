"""Where one machine instruction ends and the next begins: x86-64, and both states of ARM.

Instructions are counted, not understood. x86-64 needs prefixes, the opcode's map and the length of
its operands for that, so the newest vector instructions need no newer table than those of 2013:
all of AVX-512, VNNI and AMX has the VEX or EVEX form.
"""

from __future__ import annotations

from collections.abc import Sequence

_LEGACY_PREFIXES = frozenset(b"\x66\xf2\xf3\x2e\x36\x3e\x26\x64\x65\x67\xf0")


def _set(text: str) -> frozenset[int]:
    """Opcodes of a text like "70-7f 9a"."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found |= set(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(found)


_MODRM = _set("63 69 6b 80 81 83-8f c0 c1 c4-c7 d0-d3 d8-df f6 f7 fe ff") | {
    high + low for high in range(0, 0x40, 8) for low in range(4)
}
_BYTE = _set("6a 6b 70-80 83 a8 b0-b7 c0 c1 c6 cd e0-e7 eb") | {*range(4, 0x40, 8)}
_WORD = _set("68 69 81 a9 b8-bf c7 e8 e9") | {*range(5, 0x40, 8)}
"""Opcodes with an immediate of 32 bits, 16 behind the prefix 66."""
_TWO_WITHOUT_MODRM = _set("05-09 0b 30-37 77 80-8f a0-a2 a8-aa c8-cf")
_TWO_BYTE = _set("70-73 a4 ac ba c2 c4-c6")
_VECTOR_BYTE = _set("70-73 c2 c4-c6")


class UnknownCodeError(ValueError):
    """Bytes that are no instructions this module can tell apart."""


def split(architecture: str, code: bytes, data: Sequence[tuple[int, int]] = ()) -> list[bytes]:
    """The instructions of a function, in order; `data` are the (begin, end) between them.

    UnknownCodeError where they do not end where the function does.
    """
    if architecture == "x86_64":
        parts = _x86(code, data)
    elif len(code) % 4:
        raise UnknownCodeError(f"{len(code)} bytes are no whole instructions")
    else:
        parts = [code[at : at + 4] for at in range(0, len(code), 4) if not _inside(at, data)]
    return parts


def _inside(at: int, data: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= at < end for begin, end in data)


def _x86(code: bytes, data: Sequence[tuple[int, int]]) -> list[bytes]:
    parts, at = [], 0
    skip = dict(data)
    while at < len(code):
        if at in skip:
            at = skip[at]
            continue
        try:
            end = at + length(code[at : at + 24])
        except IndexError as error:
            raise UnknownCodeError(f"an instruction at {at:#x} is cut off") from error
        if end > len(code):
            raise UnknownCodeError(f"an instruction at {at:#x} goes beyond its function")
        parts.append(code[at:end])
        at = end
    return parts


def length(code: bytes) -> int:
    """How many bytes the x86-64 instruction at the beginning of `code` has."""
    at = 0
    prefixes = set()
    while code[at] in _LEGACY_PREFIXES:
        prefixes.add(code[at])
        at += 1
    if code[at] == 0xC5:
        return _vector(code, at + 2, 1)
    if code[at] == 0xC4:
        return _vector(code, at + 3, code[at + 1] & 0x1F)
    if code[at] == 0x62:
        return _vector(code, at + 4, code[at + 1] & 0x07)
    is_wide = False
    if 0x40 <= code[at] <= 0x4F:
        is_wide = bool(code[at] & 8)
        at += 1
    if code[at] == 0x0F:
        return _escaped(code, at + 1)
    return _one_byte(code, at, prefixes, is_wide)


def _vector(code: bytes, at: int, opcode_map: int) -> int:
    """VEX and EVEX: the opcode at `at`, always with operands but for VZEROUPPER."""
    opcode = code[at]
    if opcode_map == 1 and opcode == 0x77:
        return at + 1
    has_byte = opcode_map == 3 or (opcode_map == 1 and opcode in _VECTOR_BYTE)
    return _operand(code, at + 1) + has_byte


def _escaped(code: bytes, at: int) -> int:
    """Opcodes behind 0F, 0F 38 and 0F 3A."""
    opcode = code[at]
    if opcode == 0x38:
        return _operand(code, at + 2)
    if opcode == 0x3A:
        return _operand(code, at + 2) + 1
    if opcode in _TWO_WITHOUT_MODRM:
        return at + 1 + 4 * (0x80 <= opcode <= 0x8F)
    return _operand(code, at + 1) + (opcode in _TWO_BYTE)


def _one_byte(code: bytes, at: int, prefixes: set[int], is_wide: bool) -> int:
    opcode = code[at]
    word = 2 if 0x66 in prefixes else 4
    if 0xA0 <= opcode <= 0xA3:
        return at + 1 + (4 if 0x67 in prefixes else 8)
    if opcode == 0xC2 or opcode == 0xC8:
        return at + (3 if opcode == 0xC2 else 4)
    end = _operand(code, at + 1) if opcode in _MODRM else at + 1
    if opcode in (0xF6, 0xF7) and code[at + 1] >> 3 & 7 < 2:
        return end + (1 if opcode == 0xF6 else word)
    if 0xB8 <= opcode <= 0xBF and is_wide:
        return end + 8
    if opcode in (0xE8, 0xE9):
        return end + 4
    return end + (1 if opcode in _BYTE else word if opcode in _WORD else 0)


def _operand(code: bytes, at: int) -> int:
    """Where ModRM, SIB and the displacement behind them end."""
    mode, rm = code[at] >> 6, code[at] & 7
    at += 1
    if mode == 3:
        return at
    base = rm
    if rm == 4:
        base = code[at] & 7
        at += 1
    if mode == 0:
        return at + (4 if base == 5 else 0)
    return at + (1 if mode == 1 else 4)
