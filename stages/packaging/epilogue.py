"""The epilogue of a composite in LLVM IR: from sums of one pixel and 32 channels to its outputs.

`void epilogue(sums, p1 …, o1 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32 (float32 behind a float input). A float output's pointer stands at room
for 32 floats, from where the kernel copies them. Lanes are channels, in two halves of 16. Float
arithmetic is IEEE float32, step by step: products are fenced, because LLVM would otherwise fuse
them with a following addition on its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages.errors import StageError
from stages.packaging.recoding import entries, stored_words
from stages.packaging.vectors import BITS, BYTES, FLOATS, HALF, INTS, ROUNDING_MODES, Vectors
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.tables import ENTRIES

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


class Epilogue:
    """Emits the epilogue of one packed composite.

    `float_input` says what `sums` holds, `pixels` how many neighbours' channels fill its lanes,
    and `lanes` how many of 32 bits a register has.
    """

    def __init__(
        self, function: Any, architecture: str, float_input: bool, pixels: int = 1, lanes: int = 4
    ) -> None:
        self.function = function
        self.pixels = pixels
        self.float_input = float_input
        self.code = Vectors(architecture, lanes)
        self.half = 0
        self.values: dict[Any, Value] = {}
        self.words: dict[tuple[Any, int], list[str]] = {}
        self.inner = {
            b.var: b.value for b in bindings_of(function) if b.var in outputs_of(function)
        }
        self._operators: dict[str, Callable[[Any], Value]] = {
            "relax.qnn.packed_conv2d": self._sums,
            "relax.qnn.max_pool2d": lambda _: self._load_sums(),
            "relax.qnn.sum_pool2d": lambda _: self._load_sums(),
            "relax.qnn.from_bytes": self._from_bytes,
            "relax.qnn.threshold": self._threshold,
            "relax.qnn.requantize": self._requantize,
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

    def text(self, name: str) -> tuple[str, list[str]]:
        """The function and the declarations it needs."""
        for self.half in (0, 1):
            self.values = {}
            for binding in bindings_of(self.function):
                if binding.var in self.inner:
                    continue
                op = str(binding.value.op.name)
                if op == "relax.qnn.bitpack":
                    self._bitpack(binding)
                elif op == "relax.qnn.to_bytes":
                    self._to_bytes(binding)
                elif op == "relax.qnn.to_tables":
                    self._to_tables(binding)
                elif op in self._operators:
                    self.values[binding.var] = self._operators[op](binding.value)
                else:
                    raise StageError(f"operator {op} has no epilogue form")
            self._store_floats()
        for output, value in self.inner.items():
            self._finish(output, value)
        self.code.do("ret void")
        pointers = ["%sums", *self._parameter_names(), *self._output_names()]
        function = self.code.function(name, [f"ptr noalias {p}" for p in pointers])
        return function, list(self.code.declarations)

    # -- names and memory --------------------------------------------------------------------

    def _parameter_names(self) -> list[str]:
        return [f"%{parameter.name}" for parameter in self.function.params]

    def _output_names(self) -> list[str]:
        return [f"%o{number}" for number in range(len(outputs_of(self.function)))]

    def _pointer_of(self, variable: Any) -> str:
        for number, output in enumerate(outputs_of(self.function)):
            if self.inner[output].same_as(variable):
                return f"%o{number}"
        raise AssertionError(f"{variable.name} is not an output")

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
        scale = attributes(call)["scale"]
        scaled = self.code.let(f"mul {INTS} {raw}, {self.code.constant(INTS, scale)}")
        bias = self._lanes(call.args[2], INTS)
        return Value("int", self.code.let(f"add {INTS} {scaled}, {bias}"))

    def _from_bytes(self, call: Any) -> Value:
        loaded = self.code.load(BYTES, f"%{call.args[0].name}", 1, self.half * HALF)
        return Value("int", self.code.let(f"zext {BYTES} {loaded} to {INTS}"))

    def _integer(self, value: Value) -> str:
        """The lanes of a value as integers; a level is the number of its set masks."""
        if value.kind != "level":
            return value.name
        total = ""
        for mask in value.masks:
            one = self.code.let(f"zext {BITS} {mask} to {INTS}")
            total = self.code.let(f"add {INTS} {total}, {one}") if total else one
        return total

    def _threshold(self, call: Any) -> Value:
        data, thresholds, flip = call.args
        value = self._operand(data)
        kind, compare = (FLOATS, "fcmp oge") if value.kind == "float" else (INTS, "icmp sge")
        lanes = self._integer(value)
        flipped = self.code.nonzero(BYTES, self._lanes(flip, BYTES))

        def mask(limit: str) -> str:
            reached = self.code.let(f"{compare} {kind} {lanes}, {limit}")
            return self.code.let(f"xor {BITS} {reached}, {flipped}")

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
        value = self._integer(self._operand(call.args[0]))
        keep = self._lanes(call.args[1], BYTES)
        kept = self.code.nonzero(BYTES, keep)
        zero = f"{INTS} zeroinitializer"
        return Value("int", self.code.let(f"select {BITS} {kept}, {INTS} {value}, {zero}"))

    def _add(self, call: Any) -> Value:
        attrs = attributes(call)
        left, right = (self._integer(self._operand(argument)) for argument in call.args)
        total = self.code.let(f"add {INTS} {left}, {right}")
        points = attrs["lhs_zero_point"] + attrs["rhs_zero_point"]
        return Value("int", self.code.add_constant(total, -points))

    # -- floats ------------------------------------------------------------------------------

    def _requantize(self, call: Any) -> Value:
        data, multiplier, offset = call.args
        attrs = attributes(call)
        lanes = self.code.to_floats(self._integer(self._operand(data)))
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
        integers = self._integer(self._operand(data))
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

    # -- results -----------------------------------------------------------------------------

    def _level_bits(self, value: Value, bits: int) -> list[str]:
        """Masks of the bits of a level.

        Comparisons with rising thresholds are a thermometer c_1 >= c_2 >= …; bit j of the level is
        the exclusive or of the c_k whose k is a multiple of 2^j.
        """
        masks = []
        for j in range(bits):
            if value.kind == "level":
                chosen = value.masks[(1 << j) - 1 :: 1 << j]
                bit = chosen[0] if chosen else "zeroinitializer"
                for mask in chosen[1:]:
                    bit = self.code.let(f"xor {BITS} {bit}, {mask}")
            else:
                single = self.code.constant(INTS, 1 << j)
                masked = self.code.let(f"and {INTS} {value.name}, {single}")
                bit = self.code.nonzero(INTS, masked)
            masks.append(bit)
        return masks

    def _bitpack(self, binding: Any) -> None:
        value = self.values[binding.value.args[0]]
        bits = attributes(binding.value)["bits"]
        for digit, bit in enumerate(self._level_bits(value, bits)):
            self.words.setdefault((binding.var, digit), []).append(self.code.mask_word(bit))

    def _to_bytes(self, binding: Any) -> None:
        value = self._integer(self.values[binding.value.args[0]])
        narrow = self.code.let(f"trunc {INTS} {value} to {BYTES}")
        channels = attributes(binding.value)["channels"] * self.pixels
        count = min(HALF, channels - self.half * HALF) if channels < 2 * HALF else HALF
        if count <= 0:
            return
        kind = BYTES
        if count < HALF:
            kind = f"<{count} x i8>"
            narrow = self.code.lanes(BYTES, narrow, 0, count)
        self.code.store(kind, narrow, self._pointer_of(binding.var), 1, self.half * HALF)

    def _to_tables(self, binding: Any) -> None:
        """Tables of this half's channels, each as wide as `HALF` bytes."""
        attrs = attributes(binding.value)
        value = self._integer(self.values[binding.value.args[0]])
        narrow = self.code.let(f"trunc {INTS} {value} to {BYTES}")
        tables = entries(self.code, narrow, attrs["bits"], attrs["balanced"])
        for number, table in enumerate(tables):
            place = (self.half * len(tables) + number) * ENTRIES
            self.code.store(BYTES, table, self._pointer_of(binding.var), 1, place)

    def _store_floats(self) -> None:
        """This half of every float output; a zero is +0 whatever the sign of what it came from."""
        for number, output in enumerate(outputs_of(self.function)):
            if dtype_of(output.ty) == "float32":
                lanes = self.values[self.inner[output]].name
                zero = self.code.constant(FLOATS, 0.0)
                lanes = self.code.let(f"fadd {FLOATS} {lanes}, {zero}")
                self.code.store(FLOATS, lanes, f"%o{number}", 4, self.half * HALF * 4)

    def _finish(self, output: Any, variable: Any) -> None:
        """Store packed words, both halves together."""
        pointer = self._pointer_of(variable)
        if dtype_of(output.ty) == "uint32":
            _, height, width, words = shape_of(output.ty)
            stored = stored_of(attributes(self._store_call(variable)))
            digits = [
                self._joined_halves(*self.words[variable, digit]) for digit in range(stored.bits)
            ]
            for number, word in enumerate(stored_words(self.code, stored, digits)):
                self.code.store("i32", word, pointer, 4, number * height * width * words * 4)

    def _store_call(self, variable: Any) -> Any:
        return next(b.value for b in bindings_of(self.function) if b.var.same_as(variable))

    def _joined_halves(self, low: str, high: str) -> str:
        return self.code.let(f"or i32 {low}, {self.code.let(f'shl i32 {high}, 16')}")
