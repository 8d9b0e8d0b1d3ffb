"""What an epilogue computes between sums and results, one half of a block of channels at a time.

Float arithmetic is IEEE float32, step by step: products are fenced, because LLVM would otherwise
fuse them with a following addition on its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages.errors import StageError
from stages.packaging.vectors import BITS, BYTES, FLOATS, HALF, INTS, ROUNDING_MODES, Vectors
from stages.qnn.packed import CONVOLUTION, WINOGRAD
from stages.qnn.registry import attributes, shape_of

FLOAT_OPS = {
    "relax.add": "fadd",
    "relax.subtract": "fsub",
    "relax.multiply": "fmul",
    "relax.divide": "fdiv",
}
CHOICES = {"relax.maximum": "ogt", "relax.minimum": "olt"}
MAX_MASKS = 7
"""Up to here the comparisons of a level are kept apart, and are its packed bits."""


@dataclass
class Value:
    """One half of a tensor: integers, floats, or the comparison masks of a level."""

    kind: str
    name: str = ""
    masks: tuple[str, ...] = ()


class Values:
    """The values of a composite's operators in LLVM IR.

    `float_input` says what `%sums` points at, `lanes` how many of 32 bits a register has, and
    `biased` whether a convolution's bias is in its sums already.
    """

    def __init__(
        self, function: Any, architecture: str, float_input: bool, lanes: int, biased: bool
    ) -> None:
        self.function = function
        self.float_input, self.biased = float_input, biased
        self.code = Vectors(architecture, lanes)
        self.half = 0
        self.values: dict[Any, Value] = {}
        self._operators: dict[str, Callable[[Any], Value]] = {
            CONVOLUTION: self._sums,
            WINOGRAD: self._sums,
            "relax.qnn.max_pool2d": lambda _: self._load_sums(),
            "relax.qnn.sum_pool2d": lambda _: self._load_sums(),
            "relax.qnn.from_bytes": self._from_bytes,
            "relax.qnn.threshold": self._threshold,
            "relax.qnn.requantize": self._requantize,
            "relax.qnn.saturate": self._saturate,
            "relax.qnn.quantize": self._quantize,
            "relax.qnn.dequantize": self._dequantize,
            "relax.qnn.add": self._add,
            "relax.maximum": self._arithmetic,
            "relax.minimum": self._arithmetic,
            "relax.qnn.take_channels": lambda call: self._operand(call.args[0]),
            "relax.permute_dims": lambda call: self._operand(call.args[0]),
            "relax.reshape": lambda call: self._operand(call.args[0]),
            "relax.qnn.pad_channels": lambda call: self._operand(call.args[0]),
            "relax.qnn.keep_channels": self._keep,
            **{name: self._arithmetic for name in FLOAT_OPS},
        }

    def emit(self, binding: Any) -> None:
        """Compute what an operator gives; StageError for one that has no form here."""
        op = str(binding.value.op.name)
        if op not in self._operators:
            raise StageError(f"operator {op} has no epilogue form")
        self.values[binding.var] = self._operators[op](binding.value)

    def _lanes(self, variable: Any, kind: str, row: int = 0) -> str:
        """This half of a tensor parameter [..., Cp], `row` rows down.

        Volatile, so that it stays in the epilogue: hoisted out of the pixel loop, a block's
        thresholds and multipliers would take the registers of the micro-kernel's accumulators.
        """
        size = 1 if kind == BYTES else 4
        stride = shape_of(variable.ty)[-1] * size
        offset = row * stride + self.half * HALF * size
        source = self.code.pointer(f"%{variable.name}", str(offset))
        return self.code.let(f"load volatile {kind}, ptr {source}, align {size}")

    def _load_sums(self) -> Value:
        kind = FLOATS if self.float_input else INTS
        name = self.code.load(kind, "%sums", 4, self.half * HALF * 4)
        return Value("float" if self.float_input else "int", name)

    def _operand(self, variable: Any) -> Value:
        if variable in self.values:
            return self.values[variable]
        self.values[variable] = self._load_sums()
        return self.values[variable]

    # -- integers ----------------------------------------------------------------------------

    def _sums(self, call: Any) -> Value:
        """`scale * raw + bias`; the bias pointer is at the pixel's border class."""
        raw = self._load_sums().name
        if self.biased:
            return Value("int", raw)
        scale = attributes(call)["scale"]
        scaled = self.code.let(f"mul {INTS} {raw}, {self.code.constant(INTS, scale)}")
        bias = self._lanes(call.args[2], INTS)
        return Value("int", self.code.let(f"add {INTS} {scaled}, {bias}"))

    def _from_bytes(self, call: Any) -> Value:
        loaded = self.code.load(BYTES, f"%{call.args[0].name}", 1, self.half * HALF)
        return Value("int", self.code.let(f"zext {BYTES} {loaded} to {INTS}"))

    def integer(self, value: Value) -> str:
        """The lanes of a value as integers; a level is the number of its set masks.

        They are set from the first to the last, so that the last set one tells: where masks have
        registers of their own, a move under a mask is cheaper than to make a number of it.
        """
        if value.kind != "level":
            return value.name
        total = "zeroinitializer"
        for number, mask in enumerate(value.masks, 1):
            if self.code.register_lanes == HALF:
                level = self.code.constant(INTS, number)
                total = self.code.let(f"select {BITS} {mask}, {INTS} {level}, {INTS} {total}")
            else:
                one = self.code.let(f"zext {BITS} {mask} to {INTS}")
                total = self.code.let(f"add {INTS} {total}, {one}")
        return total

    def _threshold(self, call: Any) -> Value:
        data, thresholds, flip = call.args
        value = self._operand(data)
        kind, compare = (FLOATS, "fcmp oge") if value.kind == "float" else (INTS, "icmp sge")
        lanes = self.integer(value)
        is_rising = attributes(call).get("rising", False)
        flipped = "" if is_rising else self.code.nonzero(BYTES, self._lanes(flip, BYTES))

        def mask(limit: str) -> str:
            reached = self.code.let(f"{compare} {kind} {lanes}, {limit}")
            return self.code.let(f"xor {BITS} {reached}, {flipped}") if flipped else reached

        rows = shape_of(thresholds.ty)[0]
        if rows <= MAX_MASKS:
            limits = [self._lanes(thresholds, kind, row) for row in range(rows)]
            return Value("level", masks=tuple(mask(limit) for limit in limits))
        return Value("int", self._count(thresholds, kind, mask))

    def _count(self, thresholds: Any, kind: str, mask: Callable[[str], str]) -> str:
        """How many rows of a long table have their mask set."""
        code = self.code
        rows, channels = shape_of(thresholds.ty)

        def one_row(row: str, carried: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i64 {row}, {channels * 4}")
            limit = code.load(
                kind, code.pointer(f"%{thresholds.name}", offset), 4, self.half * HALF * 4
            )
            reached = code.let(f"sext {BITS} {mask(limit)} to {INTS}")
            return [code.let(f"sub {INTS} {carried[0]}, {reached}")]

        return code.loop(str(rows), [(INTS, "zeroinitializer")], one_row)[0]

    def _keep(self, call: Any) -> Value:
        value = self.integer(self._operand(call.args[0]))
        keep = self._lanes(call.args[1], BYTES)
        kept = self.code.nonzero(BYTES, keep)
        zero = f"{INTS} zeroinitializer"
        return Value("int", self.code.let(f"select {BITS} {kept}, {INTS} {value}, {zero}"))

    def _add(self, call: Any) -> Value:
        attrs = attributes(call)
        left, right = (self.integer(self._operand(argument)) for argument in call.args)
        total = self.code.let(f"add {INTS} {left}, {right}")
        points = attrs["lhs_zero_point"] + attrs["rhs_zero_point"]
        return Value("int", self.code.add_constant(total, -points))

    def _saturate(self, call: Any) -> Value:
        attrs = attributes(call)
        value = self.integer(self._operand(call.args[0]))
        value = self.code.add_constant(value, attrs["offset"])
        value = self.code.choose_integers("sgt", value, attrs["low"])
        return Value("int", self.code.choose_integers("slt", value, attrs["high"]))

    # -- floats ------------------------------------------------------------------------------

    def _requantize(self, call: Any) -> Value:
        data, multiplier, offset = call.args
        attrs = attributes(call)
        lanes = self.code.to_floats(self.integer(self._operand(data)))
        scaled = self.code.arithmetic("fmul", lanes, self._lanes(multiplier, FLOATS))
        moved = self.code.arithmetic("fadd", scaled, self._lanes(offset, FLOATS))
        clipped = self.code.clip(moved, attrs["low"], attrs["high"])
        return Value("int", self.code.rounded(clipped))

    def _quantize(self, call: Any) -> Value:
        x, scale, zero_point = call.args
        attrs = attributes(call)
        mode = str(attrs["rounding"])
        if mode not in ROUNDING_MODES:
            raise StageError(
                f"rounding mode {mode} of a float input",
                hint=f"supported: {', '.join(ROUNDING_MODES)}",
            )
        value = self._operand(x).name
        divided = self.code.arithmetic("fdiv", value, self._scalar(scale))
        moved = self.code.arithmetic("fadd", divided, self._scalar(zero_point))
        clipped = self.code.clip(moved, attrs["low"], attrs["high"])
        integers = self.code.rounded_by(mode, clipped)
        return Value("int", self.code.add_constant(integers, attrs["shift"]))

    def _scalar(self, variable: Any) -> str:
        return self.code.splat(self.code.load("float", f"%{variable.name}", 4), "float", HALF)

    def _dequantize(self, call: Any) -> Value:
        data, scale = call.args
        integers = self.integer(self._operand(data))
        integers = self.code.add_constant(integers, -attributes(call)["zero_point"])
        lanes = self.code.to_floats(integers)
        return Value("float", self.code.arithmetic("fmul", lanes, self._lanes(scale, FLOATS)))

    def _float_operands(self, call: Any) -> list[str]:
        return [
            self._lanes(argument, FLOATS)
            if argument in self.function.params
            and argument not in self.values
            and len(shape_of(argument.ty)) == 1
            else self._operand(argument).name
            for argument in call.args
        ]

    def _arithmetic(self, call: Any) -> Value:
        left, right = self._float_operands(call)
        name = str(call.op.name)
        if name in CHOICES:
            return Value("float", self.code.choose(CHOICES[name], left, right))
        return Value("float", self.code.arithmetic(FLOAT_OPS[name], left, right))
