"""Half a block of channels as an LLVM vector: constants, exact float32 arithmetic, masks."""

from __future__ import annotations

from struct import pack, unpack

from stages.qnn.llvm import FunctionText
from stages.qnn.numbers import MAGIC

HALF = 16
INTS, FLOATS, BYTES, BITS = "<16 x i32>", "<16 x float>", "<16 x i8>", "<16 x i1>"
MAGIC_TEXT = f"0x{pack('>d', MAGIC).hex().upper()}"
"""As LLVM writes a float."""
(MAGIC_BITS,) = unpack(">I", pack(">f", MAGIC))
NEAREST = ("ROUND", "ROUND_HALF_EVEN", "HALF_EVEN")
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


class Vectors(FunctionText):
    """LLVM IR over vectors of 16 lanes; float operations are IEEE float32, one at a time."""

    def __init__(self, architecture: str, lanes: int = 4) -> None:
        """`lanes` is how many of 32 bits a register of the target has."""
        super().__init__()
        self.architecture, self.register_lanes = architecture, lanes

    def constant(self, kind: str, value: float) -> str:
        """A number in every lane; floats are multiples of 1/2."""
        element = kind.split(" x ")[1].rstrip(">")
        number = float(value) if kind == FLOATS else value
        return "<" + ", ".join([f"{element} {number}"] * HALF) + ">"

    def add_constant(self, value: str, constant: int) -> str:
        """Integers plus a constant."""
        return (
            self.let(f"add {INTS} {value}, {self.constant(INTS, constant)}") if constant else value
        )

    def choose(self, predicate: str, left: str, right: str) -> str:
        """Per lane, `left` where `left predicate right`, else `right` (floats)."""
        better = self.let(f"fcmp {predicate} {FLOATS} {left}, {right}")
        return self.let(f"select {BITS} {better}, {FLOATS} {left}, {FLOATS} {right}")

    def choose_integers(self, predicate: str, value: str, bound: int) -> str:
        """Per lane, `value` where `value predicate bound`, else `bound` (integers)."""
        limit = self.constant(INTS, bound)
        better = self.let(f"icmp {predicate} {INTS} {value}, {limit}")
        return self.let(f"select {BITS} {better}, {INTS} {value}, {INTS} {limit}")

    def to_floats(self, integers: str) -> str:
        """float32 of int32."""
        return self.let(f"sitofp {INTS} {integers} to {FLOATS}")

    def arithmetic(self, op: str, left: str, right: str) -> str:
        """A float operation that is rounded on its own.

        LLVM fuses a product with a following addition unasked, so products are fenced.
        """
        result = self.let(f"{op} {FLOATS} {left}, {right}")
        return self._fence(result) if op == "fmul" else result

    def _fence(self, value: str) -> str:
        """Hold a value in registers, one at a time: LLVM takes a fence around no wider vector."""
        count = self.register_lanes
        kind = f"<{count} x float>"
        fence = f"@llvm.arithmetic.fence.v{count}f32"
        self.declarations[f"declare {kind} {fence}({kind})"] = None
        parts = [
            self.lanes(FLOATS, value, first, count) if count < HALF else value
            for first in range(0, HALF, count)
        ]
        parts = [self.let(f"call {kind} {fence}({kind} {part})") for part in parts]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.joined(f"<{count} x float>", low, high, count) for low, high in pairs]
            count *= 2
        return parts[0]

    def clip(self, value: str, low: int, high: int) -> str:
        """Floats bounded to [low, high]."""
        value = self.choose("ogt", value, self.constant(FLOATS, low))
        return self.choose("olt", value, self.constant(FLOATS, high))

    def rounded(self, value: str) -> str:
        """Integers of floats below 2^22 in size, rounded half to even on every target."""
        magic = "<" + ", ".join([f"float {MAGIC_TEXT}"] * HALF) + ">"
        moved = self.let(f"fadd {FLOATS} {value}, {magic}")
        bits = self.let(f"bitcast {FLOATS} {moved} to {INTS}")
        return self.let(f"sub {INTS} {bits}, {self.constant(INTS, MAGIC_BITS)}")

    def directed(self, value: str, up: bool) -> str:
        """Integers of floats, rounded up or down: to nearest, and back where that went too far."""
        nearest = self.rounded(value)
        predicate, op = ("olt", "sub") if up else ("ogt", "add")
        beyond = self.let(f"fcmp {predicate} {FLOATS} {self.to_floats(nearest)}, {value}")
        step = self.let(f"sext {BITS} {beyond} to {INTS}")
        return self.let(f"{op} {INTS} {nearest}, {step}")

    def rounded_by(self, mode: str, value: str) -> str:
        """Integers of floats by one of ROUNDING_MODES."""
        if mode in NEAREST:
            return self.rounded(value)
        if mode in DIRECTED:
            return self.directed(value, DIRECTED[mode])
        shift, up = BY_SIZE[mode]
        fabs = f"@llvm.fabs.v{HALF}f32"
        self.declarations[f"declare {FLOATS} {fabs}({FLOATS})"] = None
        size = self.let(f"call {FLOATS} {fabs}({FLOATS} {value})")
        if shift:
            size = self.arithmetic("fadd", size, self.constant(FLOATS, shift))
        integers = self.directed(size, up)
        opposite = self.let(f"sub {INTS} zeroinitializer, {integers}")
        negative = self.let(f"fcmp olt {FLOATS} {value}, zeroinitializer")
        return self.let(f"select {BITS} {negative}, {INTS} {opposite}, {INTS} {integers}")

    def nonzero(self, kind: str, value: str) -> str:
        """Mask of the lanes that are not 0."""
        return self.let(f"icmp ne {kind} {value}, zeroinitializer")

    def mask_word(self, mask: str) -> str:
        """The 16 bits of a mask in the low half of an i32."""
        if self.architecture != "armv7":
            return self.let(f"zext i16 {self.let(f'bitcast {BITS} {mask} to i16')} to i32")
        # No instruction gathers a mask: keep one bit a byte and merge the bytes of each half.
        wide = self.let(f"sext {BITS} {mask} to {BYTES}")
        powers = ", ".join(f"i8 {_signed_byte(1 << (lane % 8))}" for lane in range(HALF))
        kept = self.let(f"and {BYTES} {wide}, <{powers}>")
        self.declarations["declare i8 @llvm.vector.reduce.or.v8i8(<8 x i8>)"] = None
        parts = []
        for first in (0, 8):
            half = self.lanes(BYTES, kept, first, 8)
            byte = self.let(f"call i8 @llvm.vector.reduce.or.v8i8(<8 x i8> {half})")
            parts.append(self.let(f"zext i8 {byte} to i32"))
        return self.let(f"or i32 {parts[0]}, {self.let(f'shl i32 {parts[1]}, 8')}")


def _signed_byte(value: int) -> int:
    """A byte as LLVM prints it."""
    return value - 256 if value > 127 else value
