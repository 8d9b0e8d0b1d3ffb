"""How the levels of 32 channels are packed: planes and sums of their binary digits, or LUTs.

A plane is a Boolean function of the binary digits, written as an exclusive or of products (its
algebraic normal form); a sum is a linear combination of the counts of such products. A LUT sums
the levels of four channels, those whose bit is set in an entry's number.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import Text
from stages.kernels.llvm import FunctionText
from stages.kernels.lut import ENTRIES, GROUP, additions, entry_bits
from stages.kernels.operand_storage import Stored
from stages.kernels.signature import BLOCK
from stages.packaging.epilogues.block_vectors import BYTES, HALF, BlockVectors

COUNT = "declare i32 @llvm.ctpop.i32(i32)"


def planes_text(name: str, hardware: Hardware, stored: Stored, plane_stride: int) -> Text:
    """The function `name`, from pointers to the digits of 32 channels, bytes of 0 or 1, to words
    that are stored so far apart."""
    code = BlockVectors(hardware.architecture, isa_of(hardware).lanes)
    pointers = [f"%d{digit}" for digit in range(stored.bits)]
    digits = [_digits_word(code, pointer) for pointer in pointers]
    for number, word in enumerate(stored_words(code, stored, digits)):
        code.store("i32", word, "%to", 4, number * plane_stride * 4)
    code.do("ret void")
    parameters = [*(f"ptr {pointer}" for pointer in pointers), "ptr noalias %to"]
    return code.function(name, parameters), list(code.declarations)


def _digits_word(code: BlockVectors, pointer: str) -> str:
    """The word of 32 bytes, each of them 0 or 1."""
    total = ""
    for first in range(0, BLOCK, code.count):
        digits = code.load(code.bytes, pointer, 1, first)
        word = code.mask_word(code.nonzero(code.bytes, digits), code.count)
        moved = code.let(f"shl i32 {word}, {first}") if first else word
        total = code.let(f"or i32 {total}, {moved}") if total else moved
    return total


def luts_text(name: str, hardware: Hardware, bits: int, balanced: bool) -> Text:
    """The function `name`, from a pointer to the levels of 32 channels, bytes, to their LUTs."""
    code = BlockVectors(hardware.architecture, isa_of(hardware).lanes)
    place = 0
    for first in range(0, BLOCK, HALF):
        levels = code.load(BYTES, "%levels", 1, first)
        for table in entries(code, levels, bits, balanced):
            code.store(BYTES, table, "%to", 1, place)
            place += ENTRIES
    code.do("ret void")
    return code.function(name, ["ptr %levels", "ptr noalias %to"]), list(code.declarations)


def stored_words(code: FunctionText, stored: Stored, digits: Sequence[str]) -> list[str]:
    """The i32 values to store, planes then sums, of the digits' words, lowest digit first."""
    products = _AndedDigits(code, digits)
    levels = 1 << stored.bits
    planes = [
        products.exclusive_or(_moebius([table >> level & 1 for level in range(levels)]))
        for table in stored.planes
    ]
    return planes + [products.counted(_moebius(values)) for values in stored.sums]


def entries(code: BlockVectors, levels: str, bits: int, balanced: bool) -> list[str]:
    """The LUTs of `HALF` channels, each a register of bytes, of their levels in bytes."""
    groups = range(0, HALF, GROUP)
    if code.architecture != "x86_64":
        return [_lut(code, levels, first, bits, balanced) for first in groups]
    # A comparison gives the digits of all channels as a word here, and there are sixteen LUTs.
    digits = [_digit_word(code, levels, digit) for digit in range(bits)]
    return [_looked_up(code, digits, first, balanced) for first in groups]


def _digit_word(code: BlockVectors, levels: str, digit: int) -> str:
    """A digit of every channel's level, as the bits of an i32."""
    kept = code.let(f"and {BYTES} {levels}, {code.constant(BYTES, 1 << digit)}")
    return code.mask_word(code.nonzero(BYTES, kept), HALF)


def _looked_up(code: BlockVectors, digits: Sequence[str], first: int, balanced: bool) -> str:
    """The LUT of the channels from `first`: the sum of those of their levels' digits."""
    total = ""
    for number, word in enumerate(digits):
        moved = code.let(f"lshr i32 {word}, {first}") if first else word
        nibble = code.let(f"and i32 {moved}, {(1 << GROUP) - 1}")
        place = code.let(f"shl nuw nsw i32 {nibble}, {(ENTRIES - 1).bit_length()}")
        luts = _luts(code, number, len(digits), balanced)
        table = code.load(BYTES, code.pointer(luts, place, "i32"), ENTRIES)
        total = code.let(f"add {BYTES} {total}, {table}") if total else table
    return total


def _luts(code: BlockVectors, digit: int, bits: int, balanced: bool) -> str:
    """A constant of the LUTs of every combination of one digit of four channels.

    The lowest digit's hold what does not depend on levels.
    """
    added = additions(bits, balanced)
    steps = (added[:, 1] - added[:, 0]) << digit
    rows = []
    for nibble in range(1 << GROUP):
        table = [GROUP * int(added[0, 0]) if digit == 0 else 0] * ENTRIES
        for channel in range(GROUP):
            if nibble >> channel & 1:
                table = [t + int(steps[b]) for t, b in zip(table, entry_bits(channel), strict=True)]
        values = ", ".join(f"i8 {(value + 128) % 256 - 128}" for value in table)
        rows.append(f"{BYTES} <{values}>")
    name = f"@bk_entries_{'balanced_' if balanced else ''}{bits}_{digit}"
    kind = f"[{len(rows)} x {BYTES}]"
    listed = ", ".join(rows)
    code.declarations[f"{name} = private unnamed_addr constant {kind} [{listed}], align 16"] = None
    return name


def _lut(code: BlockVectors, levels: str, first: int, bits: int, balanced: bool) -> str:
    """The LUT of the channels from `first`: a shuffle puts each channel's level where its bit is.

    Where unset bits subtract, an entry is twice what is set less all, above a constant.
    """
    total = ""
    for channel in range(GROUP):
        order = [first + channel if bit else HALF for bit in entry_bits(channel)]
        chosen = _shuffled(code, levels, order)
        total = code.let(f"add {BYTES} {total}, {chosen}") if total else chosen
    if not balanced:
        return total
    every = _shuffled(code, total, [ENTRIES - 1] * ENTRIES)
    middle = GROUP * int(additions(bits, balanced)[0, 0])
    unset = code.let(f"sub {BYTES} {code.constant(BYTES, middle)}, {every}")
    doubled = code.let(f"add {BYTES} {total}, {total}")
    return code.let(f"add {BYTES} {doubled}, {unset}")


def _shuffled(code: BlockVectors, value: str, order: Sequence[int]) -> str:
    """Bytes in another order; `HALF` means 0."""
    lanes = ", ".join(f"i32 {lane}" for lane in order)
    zeros = f"{BYTES} zeroinitializer"
    return code.let(f"shufflevector {BYTES} {value}, {zeros}, <{ENTRIES} x i32> <{lanes}>")


def _moebius(values: Sequence[int]) -> list[int]:
    """Coefficients c with `values[level] = sum of c[s] over subsets s of the level's digits`."""
    coefficients = list(values)
    step = 1
    while step < len(coefficients):
        for index in range(len(coefficients)):
            if index & step:
                coefficients[index] -= coefficients[index ^ step]
        step *= 2
    return coefficients


class _AndedDigits:
    """Ands of digits, each computed once."""

    def __init__(self, code: FunctionText, digits: Sequence[str]) -> None:
        self.code = code
        self.words = {1 << position: word for position, word in enumerate(digits)}

    def product(self, subset: int) -> str:
        """The and of the digits in a subset; of none, all ones."""
        if subset == 0:
            return "-1"
        if subset not in self.words:
            lowest = subset & -subset
            rest = self.product(subset ^ lowest)
            self.words[subset] = self.code.let(f"and i32 {rest}, {self.words[lowest]}")
        return self.words[subset]

    def exclusive_or(self, coefficients: Sequence[int]) -> str:
        """The products whose coefficient is odd, added modulo 2."""
        chosen = [self.product(s) for s, c in enumerate(coefficients) if c % 2]
        total = chosen[-1] if chosen else "0"
        for word in chosen[-2::-1]:
            total = self.code.let(f"xor i32 {total}, {word}")
        return total

    def counted(self, coefficients: Sequence[int]) -> str:
        """The counts of the products, times their coefficients, added up."""
        self.code.declarations[COUNT] = None
        total = "0"
        for subset, coefficient in enumerate(coefficients):
            if coefficient:
                word = self.product(subset)
                count = self.code.let(f"call i32 @llvm.ctpop.i32(i32 {word})")
                scaled = self.code.let(f"mul i32 {count}, {coefficient}")
                total = self.code.let(f"add i32 {total}, {scaled}")
        return total
