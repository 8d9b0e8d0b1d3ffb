"""Levels of sums of matrix tiles (AMX), by an epilogue in LLVM IR from one pixel's sums to outputs.

The older form of `stages.packaging.epilogues.channel_vectors`, kept until that was timed on a
processor with tiles.

`void epilogue(sums, p0 …, o0 …)`: every pointer is already moved to the pixel and the block of
channels; `sums` is int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.dialect.calls import attributes, is_op, shape_of
from stages.graph.bindings import bindings_of, outputs_of
from stages.kernels import operator_names
from stages.kernels.lut import ENTRIES
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.packed_edges import stored_of
from stages.kernels.signature import BLOCK
from stages.nodes import Call, Index, Var, VarBinding
from stages.packaging.emitting.addressing import border_class, output_offset
from stages.packaging.emitting.composite import Composite
from stages.packaging.epilogues.block_values import BlockValue, BlockValues
from stages.packaging.epilogues.block_vectors import BYTES, HALF
from stages.packaging.epilogues.level_packing import entries, stored_words
from stages.packaging.epilogues.outputs import fill_halos
from stages.packaging.sums.parts import Finisher


class Epilogue(BlockValues):
    """Emits the epilogue of one packed composite."""

    def __init__(self, composite: Composite, biased: bool) -> None:
        super().__init__(biased)
        self.composite = composite
        self.stores = {
            operator_names.QNN_BITPACK: self._bitpack,
            operator_names.QNN_TO_BYTES: self._to_bytes,
            operator_names.QNN_TO_TABLES: self._to_tables,
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
        for binding, digits in words:
            self._store_words(binding, digits)
        self.do("ret void")
        reads = [f"%{parameter.name}" for parameter in self.composite.parameters]
        writes = [f"%o{number}" for number in range(len(outputs))]
        function = self.function(name, [f"ptr noalias {p}" for p in ("%sums", *reads, *writes)])
        return function, list(self.declarations)

    def _inner(self, output: Var) -> Var:
        return self.composite.results[output]

    def _pointer_of(self, variable: Var) -> tuple[str, Any]:
        """Where what a variable holds is stored, and as which output."""
        for number, output in enumerate(self.composite.outputs):
            if self._inner(output).same_as(variable):
                return f"%o{number}", output
        raise AssertionError(f"{variable.name} is not an output")

    def _level_bits(self, value: BlockValue, bits: int) -> list[str]:
        """Masks of the bits of a level (`stages.packaging.epilogues.threshold_counts`)."""
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

    def _bitpack(self, binding: VarBinding) -> list[str]:
        value = self.values[binding.value.args[0]]
        bits = self._level_bits(value, attributes(binding.value)["bits"])
        return [self.mask_word(bit, self.count) for bit in bits]

    def _to_bytes(self, binding: VarBinding) -> list[str]:
        narrow = self.integer(self.values[binding.value.args[0]], self.bytes)
        self.store(self.bytes, narrow, self._pointer_of(binding.var)[0], 1, 0)
        return []

    def _to_tables(self, binding: VarBinding) -> list[str]:
        """Tables of the channels, each as wide as `HALF` bytes."""
        attrs, place = attributes(binding.value), 0
        narrow = self.integer(self.values[binding.value.args[0]], self.bytes)
        for first in (0, HALF):
            levels = self.lanes(self.bytes, narrow, first, HALF)
            for table in entries(self, levels, attrs["bits"], attrs["balanced"]):
                self.store(BYTES, table, self._pointer_of(binding.var)[0], 1, place)
                place += ENTRIES
        return []

    def _store_words(self, binding: VarBinding, digits: list[str]) -> None:
        if not digits:
            return
        pointer, output = self._pointer_of(binding.var)
        _, height, width, words = shape_of(output.ty)
        stored = stored_of(attributes(binding.value))
        plane_stride = stored.inner or height * width * words
        for number, word in enumerate(stored_words(self, stored, digits)):
            self.store("i32", word, pointer, 4, number * plane_stride * 4)


class ChannelBlocks(Finisher):
    """An epilogue of whole blocks of channels."""

    @property
    def name(self) -> str:
        """The function that is the epilogue."""
        return f"{self.kernel.symbol}_epilogue"

    def include(self) -> None:
        """Include the text of the epilogue."""
        self.kernel.include(
            *Epilogue(self.kernel.composite, self.kernel.reads.preloads_bias).epilogue(self.name)
        )

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output."""
        fill_halos(self.kernel)

    def finish_pixel(self, strip: Index, y: Index, x: Index, sums: Index) -> None:
        """The epilogue of one pixel and block."""
        kernel, composite = self.kernel, self.kernel.composite
        calls = list(composite.calls.values())
        pointers = [
            T.address_of(kernel.arguments[p.name][parameter_offset(p, calls, strip, y, x)])
            for p in composite.parameters
        ]
        for result, output in zip(kernel.results, composite.outputs, strict=True):
            offset = output_offset(output, composite.store_of(output), strip, y, x)
            pointers.append(T.address_of(result[offset]))
        T.evaluate(T.call_extern("void", self.name, T.address_of(kernel.scratch[sums]), *pointers))


def parameter_offset(
    parameter: Var, calls: Sequence[Call], block: Index, y: Index, x: Index
) -> Index:
    """Element of a parameter that an epilogue's pointer stands at.

    `calls` are the composite's operator calls. Operands of the main operator that the epilogue
    does not read stay at 0; tensors per channel move by blocks. An edge may be both, the data of
    the main operator and an addend of the epilogue.
    """
    readers = [c for c in calls if any(parameter.same_as(argument) for argument in c.args)]
    for call in readers:
        if is_op(call, operator_names.QNN_FROM_BYTES):
            top, left = attributes(call)["origin"]
            _, width, channels = shape_of(parameter.ty)
            return ((top + y) * width + left + x) * channels + block * BLOCK
    for call in readers:
        if is_convolution(call):
            if not parameter.same_as(call.args[2]):
                return 0
            return border_class(call, y, x) * shape_of(parameter.ty)[1] + block * BLOCK
    shape = shape_of(parameter.ty)
    is_per_channel = 0 < len(shape) <= 2 and shape[-1] % BLOCK == 0
    return block * BLOCK if is_per_channel else 0
