"""Look-up tables (LUTs) of one byte on AArch64: TBL and TBX find bytes among 64 values.

Of four such look-ups each finds the bytes that are its own: TBL gives 0 for the others, which TBX
leaves as they are. A LUT takes 16 registers, so it is loaded once for as many bytes as there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa, Operation
from stages.codegen import Text
from stages.dialect.dtypes import limits
from stages.kernels.llvm import FunctionText

ENTRIES = 64
"""Values that one look-up finds."""
AT_ONCE = 2
"""Registers that are looked up together: TBX waits for the look-up before it."""
MOST_UNROLLED = 8
"""Registers that are looked up without a loop: what was computed in others stays there."""


def has_register_lut(isa: Isa) -> bool:
    """Whether an instruction set has such look-ups."""
    return Operation.LOOKUP_FOUR_ELSE in isa


def entries_of(dtype: str, bounds: tuple[int, int]) -> tuple[int, list[int]]:
    """What to take from bytes within bounds, and where the values of every 64 of them are.

    Of all bytes nothing is taken: as unsigned numbers the positive ones come first.
    """
    smallest, largest = limits(dtype)
    count = -(-(bounds[1] - bounds[0] + 1) // ENTRIES)
    if count * ENTRIES > largest - smallest:
        positive = -smallest
        return 0, [(positive + n * ENTRIES) % 256 for n in range(count)]
    first = min(bounds[0], largest + 1 - count * ENTRIES)
    return first, [first - smallest + n * ENTRIES for n in range(count)]


def register_lut_name(dtype: str, bounds: tuple[int, int], size: int) -> str:
    """A function `(values, from, to)` of pointers to 256 values, and to so many bytes."""
    low, high = (bound - limits(dtype)[0] for bound in bounds)
    return f"bk_looked_up_{dtype}_{low}_{high}_of_{size}"


def register_lut_text(isa: Isa, dtype: str, bounds: tuple[int, int], size: int) -> Text:
    """The function `register_lut_name`, of bytes that are within bounds.

    `from` and `to` may be the same if `size`, at least a register's, is a multiple of that.
    """
    code = FunctionText()
    lut = _Lut(code, isa, dtype, bounds)
    whole, rest = divmod(size, isa.bytes)
    turns, left = divmod(whole, AT_ONCE)
    step = AT_ONCE * isa.bytes
    if whole <= MOST_UNROLLED:
        for turn in range(turns):
            lut.look_up("%from", "%to", turn * step, AT_ONCE)
    else:

        def turn_of(_: str, places: list[str]) -> list[str]:
            lut.look_up(places[0], places[1], 0, AT_ONCE)
            return [code.pointer(place, str(step)) for place in places]

        code.loop(str(turns), [("ptr", "%from"), ("ptr", "%to")], turn_of, unroll=False)
    for number in range(left):
        lut.look_up("%from", "%to", turns * step + number * isa.bytes, 1)
    if rest:  # the last register begins among bytes that are looked up already
        lut.look_up("%from", "%to", size - isa.bytes, 1)
    code.do("ret void")
    parameters = ["ptr noalias readonly %values", "ptr %from", "ptr %to"]
    return code.function(register_lut_name(dtype, bounds, size), parameters), list(
        code.declarations
    )


class _Lut:
    """The values of bytes in registers."""

    def __init__(self, code: FunctionText, isa: Isa, dtype: str, bounds: tuple[int, int]) -> None:
        self.code, self.isa = code, isa
        self.first, places = entries_of(dtype, bounds)
        self.kind = isa[Operation.LOOKUP_FOUR].result
        offsets = range(0, ENTRIES, isa.bytes)
        self.parts = [
            [code.load(self.kind.llvm, "%values", 1, place + offset) for offset in offsets]
            for place in places
        ]

    def look_up(self, source: str, target: str, offset: int, count: int) -> None:
        """So many registers of bytes, one part of the table after the other."""
        places = [offset + number * self.isa.bytes for number in range(count)]
        indices = [self.code.load(self.kind.llvm, source, 1, place) for place in places]
        found: Sequence[str] = []
        for number, part in enumerate(self.parts):
            indices = [self._less(index, ENTRIES if number else self.first) for index in indices]
            found = self._found(part, indices, found)
        for value, place in zip(found, places, strict=True):
            self.code.store(self.kind.llvm, value, target, 1, place)

    def _less(self, index: str, constant: int) -> str:
        if not constant:
            return index
        return self.code.let(f"sub {self.kind.llvm} {index}, {self.kind.splat(constant)}")

    def _found(
        self, part: Sequence[str], indices: Sequence[str], others: Sequence[str]
    ) -> list[str]:
        """What a part of the table has for indices; `others` behind its end, if there are any."""
        if not others:
            row = self.isa[Operation.LOOKUP_FOUR]
            return [self.code.apply(row, *part, index) for index in indices]
        row = self.isa[Operation.LOOKUP_FOUR_ELSE]
        pairs = zip(others, indices, strict=True)
        return [self.code.apply(row, other, *part, index) for other, index in pairs]
