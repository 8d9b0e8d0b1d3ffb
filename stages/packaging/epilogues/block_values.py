"""What an epilogue in LLVM IR computes between sums of matrix tiles and levels.

A block of channels at once. It is the older form of `stages.packaging.epilogues.elements`, kept
behind matrix tiles (AMX) until the newer one was timed on a processor that has them. Float
arithmetic is IEEE float32, step by step: products are fenced, because LLVM would otherwise fuse
them with a following addition on its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import pack, unpack
from typing import Any

from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, shape_of, storage_dtype
from stages.dialect.numbers import MAGIC
from stages.dialect.numbers_fused import LONGEST_WORD
from stages.errors import StageError
from stages.kernels import operator_names
from stages.nodes import Call, Var, VarBinding
from stages.packaging.epilogues.block_vectors import HALF, MOST, BlockVectors, packing
from stages.packaging.epilogues.outputs import SAME
from stages.packaging.epilogues.threshold_counts import FEW

ELEMENTS = {"int32": "i32", "int16": "i16", "float32": "float", "uint8": "i8"}
"""Types of tensors as LLVM names them."""
MAGIC_TEXT = f"0x{pack('>d', MAGIC).hex().upper()}"
"""As LLVM writes a float."""
(MAGIC_BITS,) = unpack(">I", pack(">f", MAGIC))


@dataclass
class BlockValue:
    """Channels of a tensor: integers or floats, or the masks of a level."""

    kind: str
    """Type of the channels in LLVM IR; of a level, the type of what was compared."""
    name: str = ""
    masks: tuple[str, ...] = ()
    reach: int = 1 << 31
    """No integer is larger in size."""
    bounds: tuple[int, int] | None = None
    """What integers are yet to be clipped to: narrowing may do that on the way."""


class BlockValues(BlockVectors):
    """The values of a composite's operators; `biased` says that a bias is in the sums already."""

    def __init__(self, biased: bool) -> None:
        super().__init__("x86_64", HALF)
        self.biased = biased
        self.values: dict[Any, BlockValue] = {}
        self._operators: dict[str, Callable[[Any], BlockValue]] = {
            operator_names.QNN_PACKED_CONV2D: self._sums,
            operator_names.QNN_FROM_BYTES: self._from_bytes,
            names.QNN_THRESHOLD: self._threshold,
            names.QNN_REQUANTIZE: self._requantize,
            names.QNN_SATURATE: self._saturate,
            names.QNN_ADD: self._add,
            **dict.fromkeys(SAME, lambda call: self._operand(call.args[0])),
        }

    def emit(self, binding: VarBinding) -> None:
        """Compute what an operator gives; StageError for one that has no form here."""
        op = str(binding.value.op.name)
        if op not in self._operators:
            raise StageError(f"operator {op} has no epilogue form")
        self.values[binding.var] = self._operators[op](binding.value)

    def _lanes(self, variable: Var, row: int = 0) -> str:
        """A tensor parameter [..., C], `row` rows down.

        Volatile, so that it stays in the epilogue: hoisted out of the pixel loop, a block's
        thresholds and multipliers would take registers.
        """
        size = storage_dtype(dtype_of(variable.ty)).itemsize
        source = self.pointer(f"%{variable.name}", str(row * shape_of(variable.ty)[-1] * size))
        return self.let(f"load volatile {self._kind(variable)}, ptr {source}, align {size}")

    def _kind(self, variable: Var) -> str:
        """The vectors that a tensor is read by."""
        return f"<{self.count} x {ELEMENTS[dtype_of(variable.ty)]}>"

    def _operand(self, variable: Var) -> BlockValue:
        if variable not in self.values:
            self.values[variable] = BlockValue(self.ints, self.load(self.ints, "%sums", 4))
        return self.values[variable]

    # -- integers ----------------------------------------------------------------------------

    def _level(self, value: BlockValue) -> BlockValue:
        """A level as integers: the number of its set masks, which the last set one tells.

        A move under a mask is cheaper than to make a number of it.
        """
        total = "zeroinitializer"
        for number, mask in enumerate(value.masks, 1):
            level = self.constant(self.bytes, number)
            moved = f"select {self.bits} {mask}, {self.bytes} {level}, {self.bytes} {total}"
            total = self.let(moved)
        return BlockValue(self.bytes, total)

    def integer(self, value: BlockValue, wanted: str) -> str:
        """A value as integers of a kind, which hold it."""
        found = self._level(value) if value.masks else value
        kind, name, bounds = found.kind, found.name, found.bounds
        if bounds is not None:
            if wanted == self.bytes and packing(bounds):
                return self.packed(name, kind, bounds)
            if kind == self.ints and self._shortest(value.reach) == self.words:
                kind, name = self.words, self.saturated(name)
            name = self._clipped(kind, name, *bounds)
        if kind == wanted:
            return name
        sizes = {self.bytes: 8, self.words: 16, self.ints: 32}
        longer = "zext" if kind == self.bytes else "sext"
        op = longer if sizes[kind] < sizes[wanted] else "trunc"
        return self.let(f"{op} {kind} {name} to {wanted}")

    def _clipped(self, kind: str, value: str, low: int, high: int) -> str:
        """Integers of a kind bounded to [low, high]."""
        for predicate, bound in (("sgt", low), ("slt", high)):
            limit = self.constant(kind, bound)
            better = self.let(f"icmp {predicate} {kind} {value}, {limit}")
            value = self.let(f"select {self.bits} {better}, {kind} {value}, {kind} {limit}")
        return value

    def _shortest(self, reach: int) -> str:
        """The kind of words if they hold integers of at most this size, else int32."""
        return self.words if reach <= LONGEST_WORD else self.ints

    def _plus(self, kind: str, value: str, constant: int) -> str:
        """Integers of a kind plus a constant."""
        if not constant:
            return value
        return self.let(f"add {kind} {value}, {self.constant(kind, constant)}")

    def _sums(self, call: Call) -> BlockValue:
        """`scale * raw + bias`; the bias pointer is at the pixel's border class."""
        ints, raw = self.ints, self.load(self.ints, "%sums", 4)
        if self.biased:
            return BlockValue(ints, raw)
        scaled = self.let(f"mul {ints} {raw}, {self.constant(ints, attributes(call)['scale'])}")
        return BlockValue(ints, self.let(f"add {ints} {scaled}, {self._lanes(call.args[2])}"))

    def _from_bytes(self, call: Call) -> BlockValue:
        loaded = self.load(self.bytes, f"%{call.args[0].name}", 1)
        wide = self.let(f"zext {self.bytes} {loaded} to {self.words}")
        return BlockValue(self.words, wide, reach=MOST)

    def _threshold(self, call: Call) -> BlockValue:
        data, thresholds, falling = call.args
        value, kind = self._operand(data), self._kind(thresholds)
        lanes = self._comparable(value, kind)
        compare = "fcmp oge" if kind == self.floats else "icmp sge"
        is_rising = attributes(call).get("rising", False)
        flipped = "" if is_rising else self.nonzero(self.bytes, self._lanes(falling))

        def mask(limit: str) -> str:
            reached = self.let(f"{compare} {kind} {lanes}, {limit}")
            return self.let(f"xor {self.bits} {reached}, {flipped}") if flipped else reached

        rows = shape_of(thresholds.ty)[0]
        counted = self.ints if kind == self.floats else kind
        if rows <= FEW:
            limits = [self._lanes(thresholds, row) for row in range(rows)]
            return BlockValue(counted, masks=tuple(mask(limit) for limit in limits), reach=rows)
        return BlockValue(counted, self._reached(thresholds, counted, mask), reach=rows)

    def _comparable(self, value: BlockValue, kind: str) -> str:
        """A value as what thresholds of a kind are compared with; for words it is saturated."""
        is_long = value.kind == self.ints and value.reach > LONGEST_WORD
        if kind == self.words and is_long:
            return self.saturated(self.integer(value, self.ints))
        return value.name if kind == self.floats else self.integer(value, kind)

    def _reached(self, thresholds: Var, kind: str, mask: Callable[[str], str]) -> str:
        """How many rows of a long table have their mask set."""
        rows, channels = shape_of(thresholds.ty)
        size = storage_dtype(dtype_of(thresholds.ty)).itemsize

        def one_row(row: str, carried: list[str]) -> list[str]:
            offset = self.let(f"mul nuw nsw i64 {row}, {channels * size}")
            start = self.pointer(f"%{thresholds.name}", offset)
            limit = self.load(self._kind(thresholds), start, size)
            reached = self.let(f"sext {self.bits} {mask(limit)} to {kind}")
            return [self.let(f"sub {kind} {carried[0]}, {reached}")]

        return self.loop(str(rows), [(kind, "zeroinitializer")], one_row)[0]

    def _add(self, call: Call) -> BlockValue:
        attrs = attributes(call)
        values = [self._operand(argument) for argument in call.args]
        offset = attrs["lhs_zero_point"].whole + attrs["rhs_zero_point"].whole
        reach = sum(value.reach for value in values) + abs(offset)
        kind = self._shortest(reach)
        left, right = (self.integer(value, kind) for value in values)
        total = self.let(f"add {kind} {left}, {right}")
        return BlockValue(kind, self._plus(kind, total, -offset), reach=reach)

    def _saturate(self, call: Call) -> BlockValue:
        attrs = attributes(call)
        value = self._operand(call.args[0])
        kind = self._shortest(value.reach + abs(attrs["offset"]))
        lanes = self._plus(kind, self.integer(value, kind), attrs["offset"])
        bounds = attrs["low"], attrs["high"]
        return BlockValue(kind, lanes, reach=max(map(abs, bounds)), bounds=bounds)

    # -- floats ------------------------------------------------------------------------------

    def _float(self, op: str, left: str, right: str) -> str:
        """A float operation that is rounded on its own."""
        result = self.let(f"{op} {self.floats} {left}, {right}")
        return self._fence(result) if op == "fmul" else result

    def _fence(self, value: str) -> str:
        """Hold a value in registers, one at a time: LLVM takes a fence around no wider vector."""
        kind, fence = f"<{HALF} x float>", f"@llvm.arithmetic.fence.v{HALF}f32"
        self.declarations[f"declare {kind} {fence}({kind})"] = None
        halves = [self.lanes(self.floats, value, first, HALF) for first in (0, HALF)]
        low, high = [self.let(f"call {kind} {fence}({kind} {half})") for half in halves]
        return self.joined(kind, low, high, HALF)

    def _chosen(self, predicate: str, left: str, right: str) -> str:
        """Per lane, `left` where `left predicate right`, else `right` (floats)."""
        better = self.let(f"fcmp {predicate} {self.floats} {left}, {right}")
        return self.let(f"select {self.bits} {better}, {self.floats} {left}, {self.floats} {right}")

    def _nearest(self, value: str) -> str:
        """Integers of floats below 2^31 in size, rounded half to even."""
        name = f"@llvm.lrint.v{self.count}i32.v{self.count}f32"
        self.declarations[f"declare {self.ints} {name}({self.floats})"] = None
        return self.let(f"call {self.ints} {name}({self.floats} {value})")

    def _rounded(self, value: str) -> str:
        """Integers of floats below 2^22 in size, rounded half to even."""
        magic = "<" + ", ".join([f"float {MAGIC_TEXT}"] * self.count) + ">"
        moved = self.let(f"fadd {self.floats} {value}, {magic}")
        bits = self.let(f"bitcast {self.floats} {moved} to {self.ints}")
        return self.let(f"sub {self.ints} {bits}, {self.constant(self.ints, MAGIC_BITS)}")

    def _requantize(self, call: Call) -> BlockValue:
        data, multiplier, offset = call.args
        attrs, integers = attributes(call), self.integer(self._operand(data), self.ints)
        lanes = self.let(f"sitofp {self.ints} {integers} to {self.floats}")
        scaled = self._float("fmul", lanes, self._lanes(multiplier))
        moved = self._float("fadd", scaled, self._lanes(offset))
        low, high = attrs["low"], attrs["high"]
        reach = max(abs(low), abs(high))
        if attrs.get("fits"):
            return BlockValue(self.ints, self._nearest(moved), reach=reach, bounds=(low, high))
        moved = self._chosen("ogt", moved, self.constant(self.floats, low))
        moved = self._chosen("olt", moved, self.constant(self.floats, high))
        return BlockValue(self.ints, self._rounded(moved), reach=reach)
