"""Channels of a block as LLVM vectors: constants, masks, and integers that saturate."""

from __future__ import annotations

from collections.abc import Sequence

from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK

HALF = BLOCK // 2
BYTES = f"<{HALF} x i8>"
MOST = 255
"""The largest byte."""


def packing(bounds: tuple[int, int]) -> str:
    """The instruction that clips words of 16 bits to bounds, or to bytes that at most have to be
    clipped from above, if there is one."""
    if bounds[0] == 0 and bounds[1] <= MOST:
        return "packuswb"
    return "packsswb" if bounds == (-128, 127) else ""


class BlockVectors(FunctionText):
    """LLVM IR over vectors of a block or half of one."""

    def __init__(self, architecture: str, lanes: int = 4) -> None:
        """`lanes` is how many of 32 bits a register of the target has."""
        super().__init__()
        self.architecture, self.register_lanes = architecture, lanes
        self.count = BLOCK if lanes == HALF else HALF
        """Channels at a time: with registers of 16 lanes, two make one of words of 16 bits."""
        kinds = (f"<{self.count} x {element}>" for element in ("i32", "i16", "i8", "i1", "float"))
        self.ints, self.words, self.bytes, self.bits, self.floats = kinds

    def constant(self, kind: str, value: float) -> str:
        """A number in every lane; floats are multiples of 1/2."""
        count, element = kind.strip("<>").split(" x ")
        number = float(value) if element == "float" else value
        return "<" + ", ".join([f"{element} {number}"] * int(count)) + ">"

    def saturated(self, integers: str) -> str:
        """int16 of int32, saturated; only if it `has_saturating_pack`."""
        order = [8 * (n // 4) + 4 * half + n % 4 for half in (0, 1) for n in range(HALF)]
        return self._in_order(self.words, self._halves_packed(integers), order)

    @property
    def has_saturating_pack(self) -> bool:
        """Whether a block of channels is two registers, which instructions pack that saturate."""
        return self.count == BLOCK

    def packed(self, value: str, kind: str, bounds: tuple[int, int]) -> str:
        """Bytes of int32 or int16 clipped to bounds that have a `packing`.

        Only if it `has_saturating_pack`.

        VPMOVUSDB and its like take more micro-operations for two registers than this does.
        """
        words = self._halves_packed(value) if kind == self.ints else value
        twice = f"<{2 * self.count} x i8>"
        name = f"@llvm.x86.avx512.{packing(bounds)}.512"
        self.declarations[f"declare {twice} {name}({self.words}, {self.words})"] = None
        found = self.let(f"call {twice} {name}({self.words} {words}, {self.words} {words})")
        # Of every 128 bits the second half is like the first one.
        order = [16 * (n // 8) + n % 8 for n in range(self.count)]
        if kind == self.ints:
            order = [16 * (n // 4) + 4 * half + n % 4 for half in (0, 1) for n in range(HALF)]
        found = self._in_order(twice, found, order)
        if bounds in ((0, MOST), (-128, 127)):
            return found
        limit = self.constant(self.bytes, bounds[1])
        smaller = self.let(f"icmp ult {self.bytes} {found}, {limit}")
        return self.let(f"select {self.bits} {smaller}, {self.bytes} {found}, {self.bytes} {limit}")

    def _halves_packed(self, integers: str) -> str:
        """int16 of int32: each 128 bits hold four lanes of one half, then four of the other."""
        half = f"<{HALF} x i32>"
        name = "@llvm.x86.avx512.packssdw.512"
        self.declarations[f"declare {self.words} {name}({half}, {half})"] = None
        halves = [f"{half} {self.lanes(self.ints, integers, first, HALF)}" for first in (0, HALF)]
        return self.let(f"call {self.words} {name}({', '.join(halves)})")

    def _in_order(self, kind: str, value: str, order: Sequence[int]) -> str:
        mask = ", ".join(f"i32 {lane}" for lane in order)
        moved = f"shufflevector {kind} {value}, {kind} poison, <{len(order)} x i32> <{mask}>"
        return self.let(moved)

    def nonzero(self, kind: str, value: str) -> str:
        """Mask of the lanes that are not 0."""
        return self.let(f"icmp ne {kind} {value}, zeroinitializer")

    def mask_word(self, mask: str, count: int) -> str:
        """The bits of a mask of so many lanes, a block's or half of it, as an i32."""
        if count == BLOCK:
            return self.let(f"bitcast {self.bits} {mask} to i32")
        if self.architecture != "armv7":
            return self.let(f"zext i16 {self.let(f'bitcast <{HALF} x i1> {mask} to i16')} to i32")
        # No instruction gathers a mask: keep one bit a byte and merge the bytes of each half.
        wide = self.let(f"sext {self.bits} {mask} to {BYTES}")
        powers = ", ".join(f"i8 {_signed_byte(1 << (lane % 8))}" for lane in range(HALF))
        kept = self.let(f"and {BYTES} {wide}, <{powers}>")
        name, half = "@llvm.arm.neon.vpadd.v8i8", "<8 x i8>"
        self.declarations[f"declare {half} {name}({half}, {half})"] = None
        pairs = self.lanes(BYTES, kept, 0, 8), self.lanes(BYTES, kept, 8, 8)
        for _ in range(3):  # neighbours are added up, until each half is one byte
            added = self.let(f"call {half} {name}({half} {pairs[0]}, {half} {pairs[1]})")
            pairs = added, added
        words = self.bitcast(pairs[0], half, "<4 x i16>")
        return self.let(f"zext i16 {self.let(f'extractelement <4 x i16> {words}, i64 0')} to i32")


def _signed_byte(value: int) -> int:
    """A byte as LLVM prints it."""
    return value - 256 if value > 127 else value
