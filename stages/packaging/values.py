"""What an epilogue computes between sums and results, as many channels at a time as `Vectors` have.

Float arithmetic is IEEE float32, step by step: products are fenced, because LLVM would otherwise
fuse them with a following addition on its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stages.errors import StageError
from stages.packaging.integers import Integers, Value
from stages.packaging.vectors import LONGEST_WORD, MOST, ROUNDING_MODES
from stages.qnn.packed import CONVOLUTION, DEPTHWISE_CONVOLUTION, WINOGRAD
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype

FLOAT_OPS = {
    "relax.add": "fadd",
    "relax.subtract": "fsub",
    "relax.multiply": "fmul",
    "relax.divide": "fdiv",
}
CHOICES = {"relax.maximum": "ogt", "relax.minimum": "olt"}
MAX_MASKS = 7
"""Up to here the comparisons of a level are kept apart, and are its packed bits."""
ELEMENTS = {"int32": "i32", "int16": "i16", "float32": "float", "uint8": "i8"}
"""Types of tensors as LLVM names them."""


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
        self.code = Integers(architecture, lanes)
        self.part = 0
        self.values: dict[Any, Value] = {}
        self._operators: dict[str, Callable[[Any], Value]] = {
            CONVOLUTION: self._sums,
            WINOGRAD: self._sums,
            DEPTHWISE_CONVOLUTION: self._sums,
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

    def _lanes(self, variable: Any, row: int = 0) -> str:
        """This part of a tensor parameter [..., Cp], `row` rows down.

        Volatile, so that it stays in the epilogue: hoisted out of the pixel loop, a block's
        thresholds and multipliers would take the registers of the micro-kernel's accumulators.
        """
        size = storage_dtype(dtype_of(variable.ty)).itemsize
        offset = (row * shape_of(variable.ty)[-1] + self.part * self.code.count) * size
        source = self.code.pointer(f"%{variable.name}", str(offset))
        return self.code.let(f"load volatile {self._kind(variable)}, ptr {source}, align {size}")

    def _kind(self, variable: Any) -> str:
        """The vectors that a tensor is read by."""
        return f"<{self.code.count} x {ELEMENTS[dtype_of(variable.ty)]}>"

    def _load_sums(self) -> Value:
        kind = self.code.floats if self.float_input else self.code.ints
        return Value(kind, self.code.load(kind, "%sums", 4, self.part * self.code.count * 4))

    def _operand(self, variable: Any) -> Value:
        if variable in self.values:
            return self.values[variable]
        self.values[variable] = self._load_sums()
        return self.values[variable]

    # -- integers ----------------------------------------------------------------------------

    def _sums(self, call: Any) -> Value:
        """`scale * raw + bias`; the bias pointer is at the pixel's border class."""
        ints, raw = self.code.ints, self._load_sums().name
        if self.biased:
            return Value(ints, raw)
        scale = attributes(call)["scale"]
        scaled = self.code.let(f"mul {ints} {raw}, {self.code.constant(ints, scale)}")
        bias = self._lanes(call.args[2])
        return Value(ints, self.code.let(f"add {ints} {scaled}, {bias}"))

    def _from_bytes(self, call: Any) -> Value:
        code = self.code
        loaded = code.load(code.bytes, f"%{call.args[0].name}", 1, self.part * code.count)
        wide = code.let(f"zext {code.bytes} {loaded} to {code.words}")
        return Value(code.words, wide, reach=MOST)

    def _threshold(self, call: Any) -> Value:
        data, thresholds, flip = call.args
        value, kind = self._operand(data), self._kind(thresholds)
        lanes = self._comparable(value, kind)
        compare = "fcmp oge" if kind == self.code.floats else "icmp sge"
        is_rising = attributes(call).get("rising", False)
        flipped = "" if is_rising else self.code.nonzero(self.code.bytes, self._lanes(flip))

        def mask(limit: str) -> str:
            reached = self.code.let(f"{compare} {kind} {lanes}, {limit}")
            if not flipped:
                return reached
            return self.code.let(f"xor {self.code.bits} {reached}, {flipped}")

        rows = shape_of(thresholds.ty)[0]
        counted = self.code.ints if kind == self.code.floats else kind
        if rows <= MAX_MASKS:
            limits = [self._lanes(thresholds, row) for row in range(rows)]
            return Value(counted, masks=tuple(mask(limit) for limit in limits), reach=rows)
        return Value(counted, self._count(thresholds, counted, mask), reach=rows)

    def _comparable(self, value: Value, kind: str) -> str:
        """A value as what thresholds of a kind are compared with.

        Those of 16 bits are at most the longest word and above the smallest one: what is beyond
        them is on the same side of all if it is saturated.
        """
        is_long = value.kind == self.code.ints and value.reach > LONGEST_WORD
        if kind == self.code.words and is_long:
            return self.code.saturated(self.code.integer(value, self.code.ints))
        return value.name if kind == self.code.floats else self.code.integer(value, kind)

    def _count(self, thresholds: Any, kind: str, mask: Callable[[str], str]) -> str:
        """How many rows of a long table have their mask set."""
        code, own = self.code, self._kind(thresholds)
        rows, channels = shape_of(thresholds.ty)
        size = storage_dtype(dtype_of(thresholds.ty)).itemsize

        def one_row(row: str, carried: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i64 {row}, {channels * size}")
            start = code.pointer(f"%{thresholds.name}", offset)
            limit = code.load(own, start, size, self.part * code.count * size)
            reached = code.let(f"sext {code.bits} {mask(limit)} to {kind}")
            return [code.let(f"sub {kind} {carried[0]}, {reached}")]

        return code.loop(str(rows), [(kind, "zeroinitializer")], one_row)[0]

    def _keep(self, call: Any) -> Value:
        value = self._operand(call.args[0])
        kind = self.code.shortest(value.reach)
        kept = self.code.nonzero(self.code.bytes, self._lanes(call.args[1]))
        lanes = self.code.integer(value, kind)
        chosen = f"select {self.code.bits} {kept}, {kind} {lanes}, {kind} zeroinitializer"
        return Value(kind, self.code.let(chosen), reach=value.reach)

    def _add(self, call: Any) -> Value:
        attrs = attributes(call)
        values = [self._operand(argument) for argument in call.args]
        points = attrs["lhs_zero_point"] + attrs["rhs_zero_point"]
        reach = sum(value.reach for value in values) + abs(points)
        kind = self.code.shortest(reach)
        left, right = (self.code.integer(value, kind) for value in values)
        total = self.code.let(f"add {kind} {left}, {right}")
        return Value(kind, self.code.add_constant(kind, total, -points), reach=reach)

    def _saturate(self, call: Any) -> Value:
        attrs = attributes(call)
        value = self._operand(call.args[0])
        kind = self.code.shortest(value.reach + abs(attrs["offset"]))
        lanes = self.code.add_constant(kind, self.code.integer(value, kind), attrs["offset"])
        bounds = attrs["low"], attrs["high"]
        return Value(kind, lanes, reach=max(map(abs, bounds)), bounds=bounds)

    # -- floats ------------------------------------------------------------------------------

    def _requantize(self, call: Any) -> Value:
        data, multiplier, offset = call.args
        attrs, code = attributes(call), self.code
        lanes = code.to_floats(self.code.integer(self._operand(data), code.ints))
        scaled = code.arithmetic("fmul", lanes, self._lanes(multiplier))
        moved = code.arithmetic("fadd", scaled, self._lanes(offset))
        bounds = attrs["low"], attrs["high"]
        reach = max(map(abs, bounds))
        if attrs.get("fits") and code.has_nearest:
            return Value(code.ints, code.nearest(moved), reach=reach, bounds=bounds)
        return Value(code.ints, code.rounded(code.clip(moved, *bounds)), reach=reach)

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
        kind, reach = self.code.ints, max(abs(attrs["low"]), abs(attrs["high"]))
        moved = self.code.add_constant(kind, integers, attrs["shift"])
        return Value(kind, moved, reach=reach + abs(attrs["shift"]))

    def _scalar(self, variable: Any) -> str:
        loaded = self.code.load("float", f"%{variable.name}", 4)
        return self.code.splat(loaded, "float", self.code.count)

    def _dequantize(self, call: Any) -> Value:
        data, scale = call.args
        ints = self.code.ints
        integers = self.code.integer(self._operand(data), ints)
        integers = self.code.add_constant(ints, integers, -attributes(call)["zero_point"])
        lanes = self.code.to_floats(integers)
        found = self.code.arithmetic("fmul", lanes, self._lanes(scale))
        return Value(self.code.floats, found)

    def _float_operands(self, call: Any) -> list[str]:
        # What else a composite of a float input reads of pictures is that input.
        ranks = (1,) if self.float_input else (1, 4)
        return [
            self._lanes(argument)
            if argument in self.function.params
            and argument not in self.values
            and len(shape_of(argument.ty)) in ranks
            else self._operand(argument).name
            for argument in call.args
        ]

    def _arithmetic(self, call: Any) -> Value:
        left, right = self._float_operands(call)
        name = str(call.op.name)
        if name in CHOICES:
            return Value(self.code.floats, self.code.choose(CHOICES[name], left, right))
        return Value(self.code.floats, self.code.arithmetic(FLOAT_OPS[name], left, right))
