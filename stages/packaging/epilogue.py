"""The epilogue of a composite in LLVM IR: from sums of one pixel and 32 channels to its outputs.

`void epilogue(sums, p1 …, o1 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32 (float32 behind a float input). A float output's pointer stands at room
for 32 floats, from where the kernel copies them. Lanes are channels, in two halves of 16.
"""

from __future__ import annotations

from typing import Any

from stages.packaging.recoding import entries, stored_words
from stages.packaging.values import Value, Values
from stages.packaging.vectors import BITS, BYTES, FLOATS, HALF, INTS
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.tables import ENTRIES


class Epilogue(Values):
    """Emits the epilogue of one packed composite.

    `pixels` says how many neighbours' channels fill its lanes; the rest is as in `Values`.
    """

    def __init__(
        self,
        function: Any,
        architecture: str,
        float_input: bool,
        pixels: int = 1,
        lanes: int = 4,
        biased: bool = False,
    ) -> None:
        super().__init__(function, architecture, float_input, lanes, biased)
        self.pixels = pixels
        self.words: dict[tuple[Any, int], list[str]] = {}
        self.inner = {
            b.var: b.value for b in bindings_of(function) if b.var in outputs_of(function)
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
                else:
                    self.emit(binding)
            self._store_floats()
        for output, value in self.inner.items():
            self._finish(output, value)
        self.code.do("ret void")
        pointers = ["%sums", *self._parameter_names(), *self._output_names()]
        function = self.code.function(name, [f"ptr noalias {p}" for p in pointers])
        return function, list(self.code.declarations)

    def _parameter_names(self) -> list[str]:
        return [f"%{parameter.name}" for parameter in self.function.params]

    def _output_names(self) -> list[str]:
        return [f"%o{number}" for number in range(len(outputs_of(self.function)))]

    def _pointer_of(self, variable: Any) -> str:
        for number, output in enumerate(outputs_of(self.function)):
            if self.inner[output].same_as(variable):
                return f"%o{number}"
        raise AssertionError(f"{variable.name} is not an output")

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
        value = self.integer(self.values[binding.value.args[0]])
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
        value = self.integer(self.values[binding.value.args[0]])
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
