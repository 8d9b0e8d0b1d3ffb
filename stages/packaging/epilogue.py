"""The epilogue of a composite in LLVM IR: from sums of one pixel and 32 channels to its outputs.

`void epilogue(sums, p1 …, o1 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32 (float32 behind a float input) and receives a float output. Lanes are
channels, in two halves of 16. Float arithmetic is IEEE float32, step by step: products are fenced,
because LLVM would otherwise fuse them with a following addition on its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages.errors import StageError
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.llvm import FunctionText
from stages.qnn.registry import attributes, dtype_of, shape_of

HALF = 16
INTS, FLOATS, BYTES, BITS = "<16 x i32>", "<16 x float>", "<16 x i8>", "<16 x i1>"
MAGIC = "0x4168000000000000"
"""1.5 * 2^23 as LLVM writes a float: adding it rounds half to even, to an integer."""
MAGIC_BITS = 0x4B400000
FLOAT_OPS = {
    "relax.add": "fadd",
    "relax.subtract": "fsub",
    "relax.multiply": "fmul",
    "relax.divide": "fdiv",
}


@dataclass
class Value:
    """One half of a tensor: integers, floats, or the comparison masks of a level."""

    kind: str
    name: str = ""
    masks: tuple[str, ...] = ()


class Epilogue:
    """Emits the epilogue of one packed composite; `float_input` says what `sums` holds."""

    def __init__(self, function: Any, architecture: str, float_input: bool) -> None:
        self.function = function
        self.architecture = architecture
        self.float_input = float_input
        self.code = FunctionText()
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
            "relax.maximum": lambda call: self._choose(call, "ogt"),
            "relax.minimum": lambda call: self._choose(call, "olt"),
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
        """This half of a tensor parameter [..., Cp], `row` rows down."""
        size = 1 if kind == BYTES else 4
        stride = shape_of(variable.ty)[-1] * size
        offset = row * stride + self.half * HALF * size
        return self.code.load(kind, f"%{variable.name}", size, offset)

    def _constant(self, kind: str, value: int | str) -> str:
        element = "float" if kind == FLOATS else kind.split(" x ")[1].rstrip(">")
        return "<" + ", ".join([f"{element} {value}"] * HALF) + ">"

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
        scaled = self.code.let(f"mul {INTS} {raw}, {self._constant(INTS, scale)}")
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
        is_float = value.kind == "float"
        lanes = value.name if is_float else self._integer(value)
        flips = self._lanes(flip, BYTES)
        flipped = self.code.let(f"icmp ne {BYTES} {flips}, zeroinitializer")
        masks = []
        for row in range(shape_of(thresholds.ty)[0]):
            if is_float:
                limit = self._lanes(thresholds, FLOATS, row)
                mask = self.code.let(f"fcmp oge {FLOATS} {lanes}, {limit}")
            else:
                limit = self._lanes(thresholds, INTS, row)
                mask = self.code.let(f"icmp sge {INTS} {lanes}, {limit}")
            masks.append(self.code.let(f"xor {BITS} {mask}, {flipped}"))
        return Value("level", masks=tuple(masks))

    def _keep(self, call: Any) -> Value:
        value = self._integer(self._operand(call.args[0]))
        keep = self._lanes(call.args[1], BYTES)
        kept = self.code.let(f"icmp ne {BYTES} {keep}, zeroinitializer")
        zero = f"{INTS} zeroinitializer"
        return Value("int", self.code.let(f"select {BITS} {kept}, {INTS} {value}, {zero}"))

    def _add(self, call: Any) -> Value:
        attrs = attributes(call)
        left, right = (self._integer(self._operand(argument)) for argument in call.args)
        total = self.code.let(f"add {INTS} {left}, {right}")
        points = attrs["lhs_zero_point"] + attrs["rhs_zero_point"]
        if points:
            total = self.code.let(f"sub {INTS} {total}, {self._constant(INTS, points)}")
        return Value("int", total)

    # -- floats ------------------------------------------------------------------------------

    def _fenced(self, op: str, left: str, right: str) -> str:
        """A float operation that no later one is fused with."""
        raw = self.code.let(f"{op} {FLOATS} {left}, {right}")
        return self._fence(raw) if op == "fmul" else raw

    def _fence(self, value: str) -> str:
        """Hold a value in registers: 4 lanes at a time, which every target has as one vector."""
        code, quarter = self.code, "<4 x float>"
        code.declarations[f"declare {quarter} @llvm.arithmetic.fence.v4f32({quarter})"] = None
        parts = []
        for first in range(0, HALF, 4):
            order = ", ".join(f"i32 {lane}" for lane in range(first, first + 4))
            part = code.let(f"shufflevector {FLOATS} {value}, {FLOATS} poison, <4 x i32> <{order}>")
            parts.append(code.let(f"call {quarter} @llvm.arithmetic.fence.v4f32({quarter} {part})"))
        low, high = (self._joined(quarter, parts[i], parts[i + 1], 4) for i in (0, 2))
        return self._joined("<8 x float>", low, high, 8)

    def _joined(self, kind: str, low: str, high: str, count: int) -> str:
        order = ", ".join(f"i32 {lane}" for lane in range(2 * count))
        return self.code.let(
            f"shufflevector {kind} {low}, {kind} {high}, <{2 * count} x i32> <{order}>"
        )

    def _clip(self, value: str, low: int, high: int) -> str:
        for bound, predicate in ((low, "olt"), (high, "ogt")):
            limit = self._constant(FLOATS, float_text(bound))
            outside = self.code.let(f"fcmp {predicate} {FLOATS} {value}, {limit}")
            value = self.code.let(f"select {BITS} {outside}, {FLOATS} {limit}, {FLOATS} {value}")
        return value

    def _rounded(self, value: str) -> str:
        """Integers of floats below 2^22 in size, rounded half to even."""
        moved = self.code.let(f"fadd {FLOATS} {value}, {self._constant(FLOATS, MAGIC)}")
        bits = self.code.let(f"bitcast {FLOATS} {moved} to {INTS}")
        return self.code.let(f"sub {INTS} {bits}, {self._constant(INTS, MAGIC_BITS)}")

    def _requantize(self, call: Any) -> Value:
        data, multiplier, offset = call.args
        attrs = attributes(call)
        integers = self._integer(self._operand(data))
        lanes = self.code.let(f"sitofp {INTS} {integers} to {FLOATS}")
        scaled = self._fenced("fmul", lanes, self._lanes(multiplier, FLOATS))
        moved = self.code.let(f"fadd {FLOATS} {scaled}, {self._lanes(offset, FLOATS)}")
        return Value("int", self._rounded(self._clip(moved, attrs["low"], attrs["high"])))

    def _quantize(self, call: Any) -> Value:
        x, scale, zero_point = call.args
        attrs = attributes(call)
        value = self._operand(x).name
        divided = self.code.let(f"fdiv {FLOATS} {value}, {self._scalar(scale)}")
        moved = self.code.let(f"fadd {FLOATS} {divided}, {self._scalar(zero_point)}")
        clipped = self._clip(moved, attrs["low"], attrs["high"])
        rounded = self._directed(clipped, str(attrs["rounding"]))
        shift = self._constant(INTS, attrs["shift"])
        return Value("int", self.code.let(f"add {INTS} {rounded}, {shift}"))

    def _directed(self, value: str, mode: str) -> str:
        """Integers by a QONNX rounding mode: to nearest, then one back where that went too far."""
        nearest = self._rounded(value)
        if mode in ("ROUND", "ROUND_HALF_EVEN", "HALF_EVEN"):
            return nearest
        if mode not in ("FLOOR", "CEIL"):
            raise StageError(
                f"rounding mode {mode} of a float input", hint="ROUND, FLOOR and CEIL are supported"
            )
        back = self.code.let(f"sitofp {INTS} {nearest} to {FLOATS}")
        predicate, op = ("ogt", "add") if mode == "FLOOR" else ("olt", "sub")
        beyond = self.code.let(f"fcmp {predicate} {FLOATS} {back}, {value}")
        return self.code.let(
            f"{op} {INTS} {nearest}, {self.code.let(f'sext {BITS} {beyond} to {INTS}')}"
        )

    def _scalar(self, variable: Any) -> str:
        return self.code.splat(self.code.load("float", f"%{variable.name}", 4), "float", HALF)

    def _dequantize(self, call: Any) -> Value:
        data, scale = call.args
        integers = self._integer(self._operand(data))
        point = attributes(call)["zero_point"]
        if point:
            integers = self.code.let(f"sub {INTS} {integers}, {self._constant(INTS, point)}")
        lanes = self.code.let(f"sitofp {INTS} {integers} to {FLOATS}")
        return Value("float", self._fenced("fmul", lanes, self._lanes(scale, FLOATS)))

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
        return Value("float", self._fenced(FLOAT_OPS[call.op.name], left, right))

    def _choose(self, call: Any, predicate: str) -> Value:
        left, right = self._float_operands(call)
        better = self.code.let(f"fcmp {predicate} {FLOATS} {left}, {right}")
        return Value(
            "float", self.code.let(f"select {BITS} {better}, {FLOATS} {left}, {FLOATS} {right}")
        )

    # -- results -----------------------------------------------------------------------------

    def _level_bits(self, value: Value, planes: int) -> list[str]:
        """Masks of the bits of a level.

        Comparisons with rising thresholds are a thermometer c_1 >= c_2 >= …; bit j of the level is
        the exclusive or of the c_k whose k is a multiple of 2^j.
        """
        bits = []
        for j in range(planes):
            if value.kind == "level":
                chosen = value.masks[(1 << j) - 1 :: 1 << j]
                bit = chosen[0] if chosen else "zeroinitializer"
                for mask in chosen[1:]:
                    bit = self.code.let(f"xor {BITS} {bit}, {mask}")
            else:
                single = self._constant(INTS, 1 << j)
                masked = self.code.let(f"and {INTS} {value.name}, {single}")
                bit = self.code.let(f"icmp ne {INTS} {masked}, zeroinitializer")
            bits.append(bit)
        return bits

    def _bitpack(self, binding: Any) -> None:
        value = self.values[binding.value.args[0]]
        planes = attributes(binding.value)["planes"]
        for plane, bit in enumerate(self._level_bits(value, planes)):
            self.words.setdefault((binding.var, plane), []).append(self._mask_word(bit))

    def _mask_word(self, mask: str) -> str:
        """The 16 mask bits in the low half of an i32."""
        code = self.code
        if self.architecture != "armv7":
            return code.let(f"zext i16 {code.let(f'bitcast {BITS} {mask} to i16')} to i32")
        # No instruction gathers a mask: keep one bit a byte and merge the bytes of each half.
        wide = code.let(f"sext {BITS} {mask} to {BYTES}")
        powers = ", ".join(f"i8 {signed_byte(1 << (lane % 8))}" for lane in range(HALF))
        kept = code.let(f"and {BYTES} {wide}, <{powers}>")
        reduce_or = "declare i8 @llvm.vector.reduce.or.v8i8(<8 x i8>)"
        code.declarations[reduce_or] = None
        parts = []
        for first in (0, 8):
            order = ", ".join(f"i32 {lane}" for lane in range(first, first + 8))
            half = code.let(f"shufflevector {BYTES} {kept}, {BYTES} poison, <8 x i32> <{order}>")
            byte = code.let(f"call i8 @llvm.vector.reduce.or.v8i8(<8 x i8> {half})")
            parts.append(code.let(f"zext i8 {byte} to i32"))
        return code.let(f"or i32 {parts[0]}, {code.let(f'shl i32 {parts[1]}, 8')}")

    def _to_bytes(self, binding: Any) -> None:
        value = self._integer(self.values[binding.value.args[0]])
        narrow = self.code.let(f"trunc {INTS} {value} to {BYTES}")
        channels = attributes(binding.value)["channels"]
        count = min(HALF, channels - self.half * HALF) if channels < 2 * HALF else HALF
        if count <= 0:
            return
        kind = BYTES
        if count < HALF:
            kind = f"<{count} x i8>"
            order = ", ".join(f"i32 {lane}" for lane in range(count))
            narrow = self.code.let(
                f"shufflevector {BYTES} {narrow}, {BYTES} poison, <{count} x i32> <{order}>"
            )
        self.code.store(kind, narrow, self._pointer_of(binding.var), 1, self.half * HALF)

    def _store_floats(self) -> None:
        """This half of a float output goes back into `sums`, from where the kernel copies it."""
        for output, variable in self.inner.items():
            if dtype_of(output.ty) == "float32":
                lanes = self.values[variable].name
                self.code.store(FLOATS, lanes, "%sums", 4, self.half * HALF * 4)

    def _finish(self, output: Any, variable: Any) -> None:
        """Store packed words, both halves together."""
        pointer = self._pointer_of(variable)
        if dtype_of(output.ty) == "uint32":
            planes, height, width, words = shape_of(output.ty)
            for plane in range(planes):
                low, high = self.words[variable, plane]
                word = self.code.let(f"or i32 {low}, {self.code.let(f'shl i32 {high}, 16')}")
                self.code.store("i32", word, pointer, 4, plane * height * width * words * 4)


def float_text(value: int) -> str:
    """An integer as an LLVM float constant."""
    return f"{value}.0"


def signed_byte(value: int) -> int:
    """A byte as LLVM prints it."""
    return value - 256 if value > 127 else value
