"""Channels of a block as LLVM vectors: constants, exact float32 arithmetic, masks, saturation."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

from stages.qnn.llvm import FunctionText
from stages.qnn.numbers import MAGIC
from stages.qnn.rounding_modes import NEAREST
from stages.qnn.signature import BLOCK

HALF = BLOCK // 2
BYTES = f"<{HALF} x i8>"
MOST = 255
"""The largest byte."""
LONGEST_WORD = (1 << 15) - 1
"""The largest integer of 16 bits."""
MAGIC_TEXT = f"0x{pack('>d', MAGIC).hex().upper()}"
"""As LLVM writes a float."""
(MAGIC_BITS,) = unpack(">I", pack(">f", MAGIC))
DIRECTED = {"FLOOR": False, "CEIL": True}
BY_SIZE = {
    "ROUND_TO_ZERO": (0.0, False),
    "DOWN": (0.0, False),
    "UP": (0.0, True),
    "HALF_UP": (0.5, False),
    "HALF_DOWN": (-0.5, True),
}
"""Modes that round |x|: what is added to it, and whether it is then rounded up."""
ROUNDING_MODES = (*NEAREST, *DIRECTED, *BY_SIZE)


def packing(bounds: tuple[int, int]) -> str:
    """The instruction that clips words of 16 bits to bounds, or to bytes that at most have to be
    clipped from above, if there is one."""
    if bounds[0] == 0 and bounds[1] <= MOST:
        return "packuswb"
    return "packsswb" if bounds == (-128, 127) else ""


class Vectors(FunctionText):
    """LLVM IR over vectors of a block or half of one; float operations are IEEE float32, one at a
    time."""

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

    def add_constant(self, kind: str, value: str, constant: int) -> str:
        """Integers of a kind plus a constant."""
        if not constant:
            return value
        return self.let(f"add {kind} {value}, {self.constant(kind, constant)}")

    def choose(self, predicate: str, left: str, right: str) -> str:
        """Per lane, `left` where `left predicate right`, else `right` (floats)."""
        better = self.let(f"fcmp {predicate} {self.floats} {left}, {right}")
        return self.let(f"select {self.bits} {better}, {self.floats} {left}, {self.floats} {right}")

    def clip_integers(self, kind: str, value: str, low: int, high: int) -> str:
        """Integers of a kind bounded to [low, high]."""
        for predicate, bound in (("sgt", low), ("slt", high)):
            limit = self.constant(kind, bound)
            better = self.let(f"icmp {predicate} {kind} {value}, {limit}")
            value = self.let(f"select {self.bits} {better}, {kind} {value}, {kind} {limit}")
        return value

    def saturated(self, integers: str) -> str:
        """int16 of int32, what is beyond them as the one that is nearest."""
        if self.count == HALF:
            clipped = self.clip_integers(self.ints, integers, -LONGEST_WORD - 1, LONGEST_WORD)
            return self.let(f"trunc {self.ints} {clipped} to {self.words}")
        order = [8 * (n // 4) + 4 * half + n % 4 for half in (0, 1) for n in range(HALF)]
        return self._in_order(self.words, self._halves_packed(integers), order)

    @property
    def packs(self) -> bool:
        """Whether a block of channels is two registers, which instructions pack that saturate."""
        return self.count == BLOCK

    def packed(self, value: str, kind: str, bounds: tuple[int, int]) -> str:
        """Bytes of int32 or int16 clipped to bounds that have a `packing`, if it `packs`.

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

    def to_floats(self, integers: str) -> str:
        """float32 of int32."""
        return self.let(f"sitofp {self.ints} {integers} to {self.floats}")

    def arithmetic(self, op: str, left: str, right: str) -> str:
        """A float operation that is rounded on its own.

        LLVM fuses a product with a following addition unasked, so products are fenced.
        """
        result = self.let(f"{op} {self.floats} {left}, {right}")
        return self._fence(result) if op == "fmul" else result

    def _fence(self, value: str) -> str:
        """Hold a value in registers, one at a time: LLVM takes a fence around no wider vector."""
        kind = f"<{self.register_lanes} x float>"
        fence = f"@llvm.arithmetic.fence.v{self.register_lanes}f32"
        self.declarations[f"declare {kind} {fence}({kind})"] = None
        parts = self._apart(value, self.register_lanes)
        return self._together("float", [f"call {kind} {fence}({kind} {part})" for part in parts])

    def _apart(self, floats: str, count: int) -> list[str]:
        """Floats in vectors of so many lanes."""
        if count == self.count:
            return [floats]
        firsts = range(0, self.count, count)
        return [self.lanes(self.floats, floats, first, count) for first in firsts]

    def _together(self, element: str, parts: list[str]) -> str:
        """One vector of what some right-hand sides give."""
        values = [self.let(part) for part in parts]
        count = self.count // len(values)
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            kind = f"<{count} x {element}>"
            values = [self.joined(kind, low, high, count) for low, high in pairs]
            count *= 2
        return values[0]

    def clip(self, value: str, low: int, high: int) -> str:
        """Floats bounded to [low, high]."""
        value = self.choose("ogt", value, self.constant(self.floats, low))
        return self.choose("olt", value, self.constant(self.floats, high))

    def rounded(self, value: str) -> str:
        """Integers of floats below 2^22 in size, rounded half to even on every target."""
        magic = "<" + ", ".join([f"float {MAGIC_TEXT}"] * self.count) + ">"
        moved = self.let(f"fadd {self.floats} {value}, {magic}")
        bits = self.let(f"bitcast {self.floats} {moved} to {self.ints}")
        return self.let(f"sub {self.ints} {bits}, {self.constant(self.ints, MAGIC_BITS)}")

    @property
    def has_nearest(self) -> bool:
        """Whether the processor rounds floats to the nearest integers by one instruction."""
        return self.architecture in ("x86_64", "aarch64")

    def nearest(self, value: str) -> str:
        """Integers of floats below 2^31 in size, rounded half to even, if it `has_nearest`."""
        count = self.count if self.architecture == "x86_64" else 4
        ints, floats = f"<{count} x i32>", f"<{count} x float>"
        name = f"@llvm.lrint.v{count}i32.v{count}f32"
        if self.architecture == "aarch64":
            name = "@llvm.aarch64.neon.fcvtns.v4i32.v4f32"
        self.declarations[f"declare {ints} {name}({floats})"] = None
        parts = self._apart(value, count)
        return self._together("i32", [f"call {ints} {name}({floats} {part})" for part in parts])

    def directed(self, value: str, up: bool) -> str:
        """Integers of floats, rounded up or down: to nearest, and back where that went too far."""
        nearest = self.rounded(value)
        predicate, op = ("olt", "sub") if up else ("ogt", "add")
        beyond = self.let(f"fcmp {predicate} {self.floats} {self.to_floats(nearest)}, {value}")
        step = self.let(f"sext {self.bits} {beyond} to {self.ints}")
        return self.let(f"{op} {self.ints} {nearest}, {step}")

    def rounded_by(self, mode: str, value: str) -> str:
        """Integers of floats by one of ROUNDING_MODES."""
        if mode in NEAREST:
            return self.rounded(value)
        if mode in DIRECTED:
            return self.directed(value, DIRECTED[mode])
        shift, up = BY_SIZE[mode]
        fabs = f"@llvm.fabs.v{self.count}f32"
        self.declarations[f"declare {self.floats} {fabs}({self.floats})"] = None
        size = self.let(f"call {self.floats} {fabs}({self.floats} {value})")
        if shift:
            size = self.arithmetic("fadd", size, self.constant(self.floats, shift))
        integers = self.directed(size, up)
        ints = self.ints
        opposite = self.let(f"sub {ints} zeroinitializer, {integers}")
        negative = self.let(f"fcmp olt {self.floats} {value}, zeroinitializer")
        return self.let(f"select {self.bits} {negative}, {ints} {opposite}, {ints} {integers}")

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
