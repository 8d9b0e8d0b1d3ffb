"""Results of blocks of 32 channels, by an epilogue in LLVM IR from sums of one pixel to outputs.

`void epilogue(sums, p1 …, o1 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32 (float32 behind a float input). A float output's pointer stands at room
for 32 floats, from where the kernel copies them. Lanes are channels, all or half of the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

from tvm.script.ir_builder import tirx as T

from stages.packaging.addressing import output_offset, parameter_offset
from stages.packaging.halo import fill_halo, fills_of
from stages.packaging.integers import Value
from stages.packaging.kernel_parts import Finisher
from stages.packaging.recoding import entries, stored_words
from stages.packaging.values import Values
from stages.packaging.vectors import BYTES, HALF
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.tables import ENTRIES, GROUP


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
        for part in range(BLOCK // self.code.count):
            self.part, self.values = part, {}
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
        kind, masks = self.code.bytes, []
        lanes = "" if value.masks else self.code.integer(value, kind)
        for j in range(bits):
            if value.masks:
                chosen = value.masks[(1 << j) - 1 :: 1 << j]
                bit = chosen[0] if chosen else "zeroinitializer"
                for mask in chosen[1:]:
                    bit = self.code.let(f"xor {self.code.bits} {bit}, {mask}")
            else:
                masked = self.code.let(f"and {kind} {lanes}, {self.code.constant(kind, 1 << j)}")
                bit = self.code.nonzero(kind, masked)
            masks.append(bit)
        return masks

    def _bitpack(self, binding: Any) -> None:
        value = self.values[binding.value.args[0]]
        bits = attributes(binding.value)["bits"]
        for digit, bit in enumerate(self._level_bits(value, bits)):
            self.words.setdefault((binding.var, digit), []).append(
                self.code.mask_word(bit, self.code.count)
            )

    def _to_bytes(self, binding: Any) -> None:
        kind, per = self.code.bytes, self.code.count
        narrow = self.code.integer(self.values[binding.value.args[0]], kind)
        channels = attributes(binding.value)["channels"] * self.pixels
        count = min(per, channels - self.part * per) if channels < BLOCK else per
        if count <= 0:
            return
        if count < per:
            narrow = self.code.lanes(kind, narrow, 0, count)
            kind = f"<{count} x i8>"
        self.code.store(kind, narrow, self._pointer_of(binding.var), 1, self.part * per)

    def _to_tables(self, binding: Any) -> None:
        """Tables of this part's channels, each as wide as `HALF` bytes."""
        attrs, code = attributes(binding.value), self.code
        narrow = self.code.integer(self.values[binding.value.args[0]], code.bytes)
        place = self.part * code.count // GROUP * ENTRIES
        for first in range(0, code.count, HALF):
            levels = code.lanes(code.bytes, narrow, first, HALF) if code.count > HALF else narrow
            for table in entries(code, levels, attrs["bits"], attrs["balanced"]):
                code.store(BYTES, table, self._pointer_of(binding.var), 1, place)
                place += ENTRIES

    def _store_floats(self) -> None:
        """This part of every float output; a zero is +0 whatever the sign of what it came from."""
        kind = self.code.floats
        for number, output in enumerate(outputs_of(self.function)):
            if dtype_of(output.ty) == "float32":
                lanes = self.values[self.inner[output]].name
                zero = self.code.constant(kind, 0.0)
                lanes = self.code.let(f"fadd {kind} {lanes}, {zero}")
                place = self.part * self.code.count * 4
                self.code.store(kind, lanes, f"%o{number}", 4, place)

    def _finish(self, output: Any, variable: Any) -> None:
        """Store packed words, those of all parts."""
        pointer = self._pointer_of(variable)
        if dtype_of(output.ty) == "uint32":
            _, height, width, words = shape_of(output.ty)
            stored = stored_of(attributes(self._store_call(variable)))
            digits = [self._joined(*self.words[variable, digit]) for digit in range(stored.bits)]
            apart = stored.inner or height * width * words
            for number, word in enumerate(stored_words(self.code, stored, digits)):
                self.code.store("i32", word, pointer, 4, number * apart * 4)

    def _store_call(self, variable: Any) -> Any:
        return next(b.value for b in bindings_of(self.function) if b.var.same_as(variable))

    def _joined(self, low: str, *high: str) -> str:
        for half in high:
            moved = self.code.let(f"shl i32 {half}, {HALF}")
            low = self.code.let(f"or i32 {low}, {moved}")
        return low


class Blocks(Finisher):
    """An epilogue of whole blocks of channels."""

    @property
    def name(self) -> str:
        """The function that is the epilogue."""
        return f"{self.of.symbol}_epilogue"

    def include(self) -> None:
        """The epilogue."""
        of = self.of
        epilogue = Epilogue(
            of.composite.function,
            of.hardware.architecture,
            of.composite.reads_floats,
            of.pixels,
            of.isa.lanes,
            of.reads.begins,
        )
        of.include(*epilogue.text(self.name))

    @property
    def words(self) -> int:
        """One pixel's block of every float output."""
        return len(self._float_outputs) * BLOCK

    @property
    def stores_all(self) -> bool:
        """Whether no output is of floats, which it leaves in scratch."""
        return not self._float_outputs

    @cached_property
    def _float_outputs(self) -> list[Any]:
        return [o for o in self.of.composite.outputs if dtype_of(o.ty) == "float32"]

    @property
    def _floats(self) -> Mapping[Any, int]:
        """Float output → where its block stands in scratch."""
        first = self.of.sums.words
        return {o: first + n * BLOCK for n, o in enumerate(self._float_outputs)}

    def fill_halos(self) -> None:
        """Around every output but those of floats."""
        of = self.of
        stores = [
            (result, output, attributes(of.composite.store_of(output)))
            for result, output in zip(of.results, of.composite.outputs, strict=True)
            if dtype_of(output.ty) != "float32"
        ]
        if any(any(attrs["halo"]) for _, _, attrs in stores):
            with T.If(of.task == 0), T.Then():
                for result, output, attrs in stores:
                    shape, dtype = shape_of(output.ty), dtype_of(output.ty)
                    phases = attrs.get("phases", 1)
                    fill_halo(result, shape, dtype, attrs["halo"], fills_of(attrs), phases)

    def pixel(self, strip: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and block, then what it left for a float output."""
        of, composite, floats = self.of, self.of.composite, self._floats
        calls = list(composite.calls.values())
        pointers = [
            T.address_of(of.arguments[p.name][parameter_offset(p, calls, strip, y, x)])
            for p in composite.parameters
        ]
        for result, output in zip(of.results, composite.outputs, strict=True):
            if output in floats:
                pointers.append(T.address_of(of.scratch[floats[output]]))
            else:
                offset = output_offset(output, composite.store_of(output), strip, y, x)
                pointers.append(T.address_of(result[offset]))
        start = T.address_of(of.scratch[sums])
        T.evaluate(T.call_extern("void", self.name, start, *pointers))
        for result, output in zip(of.results, composite.outputs, strict=True):
            if output in floats:
                self._copy_floats(result, output, floats[output], strip, y, x)

    def _copy_floats(
        self, result: Any, output: Any, place: int, block: Any, y: Any, x: Any
    ) -> None:
        """Floats are written without padding, NCHW where they are turned, or NHWC."""
        of = self.of
        pixels = of.height * of.width
        channels, pixel = prod(shape_of(output.ty)) // pixels, y * of.width + x
        turn = of.composite.turn_before(of.composite.results[output])
        with T.serial(0, BLOCK) as lane:
            c = block * BLOCK + lane
            with T.If(c < channels), T.Then():
                value = T.reinterpret("float32", of.scratch[place + lane])
                index = pixel * channels + c if turn is None else c * pixels + pixel
                T.buffer_store(result, value, [index])
