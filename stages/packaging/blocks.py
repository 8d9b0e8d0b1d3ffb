"""Levels of sums of matrix tiles (AMX), by an epilogue in LLVM IR from one pixel's sums to outputs.

The older form of `stages.packaging.lanes`, kept until that was timed on a processor with tiles.

`void epilogue(sums, p1 …, o1 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32. A float output's pointer stands at room for 32 floats, from where the
kernel copies them.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.packaging.addressing import output_offset, parameter_offset
from stages.packaging.block_values import Value, Values
from stages.packaging.finishing import fill_halos
from stages.packaging.kernel_parts import Finisher
from stages.packaging.recoding import entries, stored_words
from stages.packaging.vectors import BYTES, HALF
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.tables import ENTRIES


class Epilogue(Values):
    """Emits the epilogue of one packed composite."""

    def __init__(self, composite: Any, biased: bool) -> None:
        super().__init__(composite.parameters, biased)
        self.composite = composite
        self.stores = {
            "relax.qnn.bitpack": self._bitpack,
            "relax.qnn.to_bytes": self._to_bytes,
            "relax.qnn.to_tables": self._to_tables,
        }

    def epilogue(self, name: str) -> Text:
        """The function and the declarations it needs."""
        outputs = outputs_of(self.composite.function)
        words = []
        for binding in bindings_of(self.composite.function):
            if binding.var in outputs:
                continue
            store = self.stores.get(str(binding.value.op.name))
            if store is None:
                self.emit(binding)
            else:
                words.append((binding, store(binding)))
        for number, output in enumerate(outputs):
            if dtype_of(output.ty) == "float32":  # a zero is +0 whatever it came from
                lanes, zero = self.values[self._inner(output)].name, self.constant(self.floats, 0.0)
                lanes = self.let(f"fadd {self.floats} {lanes}, {zero}")
                self.store(self.floats, lanes, f"%o{number}", 4, 0)
        for binding, digits in words:
            self._store_words(binding, digits)
        self.do("ret void")
        reads = [f"%{parameter.name}" for parameter in self.parameters]
        writes = [f"%o{number}" for number in range(len(outputs))]
        function = self.function(name, [f"ptr noalias {p}" for p in ("%sums", *reads, *writes)])
        return function, list(self.declarations)

    def _inner(self, output: Any) -> Any:
        return self.composite.results[output]

    def _pointer_of(self, variable: Any) -> tuple[str, Any]:
        """Where what a variable holds is stored, and as which output."""
        for number, output in enumerate(self.composite.outputs):
            if self._inner(output).same_as(variable):
                return f"%o{number}", output
        raise AssertionError(f"{variable.name} is not an output")

    def _level_bits(self, value: Value, bits: int) -> list[str]:
        """Masks of the bits of a level (`stages.packaging.thresholds`)."""
        masks = []
        lanes = "" if value.masks else self.integer(value, self.bytes)
        for j in range(bits):
            if value.masks:
                chosen = value.masks[(1 << j) - 1 :: 1 << j]
                bit = chosen[0] if chosen else "zeroinitializer"
                for mask in chosen[1:]:
                    bit = self.let(f"xor {self.bits} {bit}, {mask}")
            else:
                one = self.constant(self.bytes, 1 << j)
                bit = self.nonzero(self.bytes, self.let(f"and {self.bytes} {lanes}, {one}"))
            masks.append(bit)
        return masks

    def _bitpack(self, binding: Any) -> list[str]:
        value = self.values[binding.value.args[0]]
        bits = self._level_bits(value, attributes(binding.value)["bits"])
        return [self.mask_word(bit, self.count) for bit in bits]

    def _to_bytes(self, binding: Any) -> list[str]:
        narrow = self.integer(self.values[binding.value.args[0]], self.bytes)
        self.store(self.bytes, narrow, self._pointer_of(binding.var)[0], 1, 0)
        return []

    def _to_tables(self, binding: Any) -> list[str]:
        """Tables of the channels, each as wide as `HALF` bytes."""
        attrs, place = attributes(binding.value), 0
        narrow = self.integer(self.values[binding.value.args[0]], self.bytes)
        for first in (0, HALF):
            levels = self.lanes(self.bytes, narrow, first, HALF)
            for table in entries(self, levels, attrs["bits"], attrs["balanced"]):
                self.store(BYTES, table, self._pointer_of(binding.var)[0], 1, place)
                place += ENTRIES
        return []

    def _store_words(self, binding: Any, digits: list[str]) -> None:
        if not digits:
            return
        pointer, output = self._pointer_of(binding.var)
        _, height, width, words = shape_of(output.ty)
        stored = stored_of(attributes(binding.value))
        apart = stored.inner or height * width * words
        for number, word in enumerate(stored_words(self, stored, digits)):
            self.store("i32", word, pointer, 4, number * apart * 4)


class Blocks(Finisher):
    """An epilogue of whole blocks of channels."""

    @property
    def name(self) -> str:
        """The function that is the epilogue."""
        return f"{self.of.symbol}_epilogue"

    def include(self) -> None:
        """The epilogue."""
        self.of.include(*Epilogue(self.of.composite, self.of.reads.begins).epilogue(self.name))

    @property
    def words(self) -> int:
        """One pixel's block of every float output."""
        return len(self._floats) * BLOCK

    @cached_property
    def _floats(self) -> dict[Any, int]:
        """Float output → which of their blocks in scratch is its own."""
        outputs = [o for o in self.of.composite.outputs if dtype_of(o.ty) == "float32"]
        return {output: number for number, output in enumerate(outputs)}

    def _place(self, output: Any) -> int:
        return self.of.sums.words + self._floats[output] * BLOCK

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output."""
        fill_halos(self.of)

    def pixel(self, strip: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and block, then what it left for a float output."""
        of, composite = self.of, self.of.composite
        calls = list(composite.calls.values())
        pointers = [
            T.address_of(of.arguments[p.name][parameter_offset(p, calls, strip, y, x)])
            for p in composite.parameters
        ]
        for result, output in zip(of.results, composite.outputs, strict=True):
            if output in self._floats:
                pointers.append(T.address_of(of.scratch[self._place(output)]))
            else:
                offset = output_offset(output, composite.store_of(output), strip, y, x)
                pointers.append(T.address_of(result[offset]))
        start = T.address_of(of.scratch[sums])
        T.evaluate(T.call_extern("void", self.name, start, *pointers))
        for result, output in zip(of.results, composite.outputs, strict=True):
            if output in self._floats:
                self._copy(result, output, strip, y, x)

    def _copy(self, result: Any, output: Any, block: Any, y: Any, x: Any) -> None:
        """Floats are written without padding, NCHW where they are turned, or NHWC."""
        of = self.of
        pixels = of.height * of.width
        channels, pixel = prod(shape_of(output.ty)) // pixels, y * of.width + x
        turn = of.composite.turn_before(of.composite.results[output])
        with T.serial(0, BLOCK) as lane:
            c = block * BLOCK + lane
            with T.If(c < channels), T.Then():
                value = T.reinterpret("float32", of.scratch[self._place(output) + lane])
                index = pixel * channels + c if turn is None else c * pixels + pixel
                T.buffer_store(result, value, [index])
