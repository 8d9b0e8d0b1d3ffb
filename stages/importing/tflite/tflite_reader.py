"""Reads a TensorFlow Lite file (schema version 3, FlatBuffers identifier TFL3) into plain data.

The file is untrusted: everything the converters rely on is checked here (schema:
tensorflow/compiler/mlir/lite/schema/schema.fbs). Constant tensors are views of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tflite

from stages.errors import StageError
from stages.importing.limits import MAX_ELEMENTS, MAX_FILE_BYTES, MAX_NODES
from stages.importing.tflite.axis_quantization import axis_quantization_of
from stages.importing.tflite.flatbuffer import Budget, damaged, int32_field, plain, reading
from stages.importing.tflite.operand_counts import OPERANDS, OPTIONS
from stages.importing.tflite.tflite_graph import ABSENT, Graph, Operator, Tensor
from stages.importing.unsupported import without_outputs

IDENTIFIER = b"TFL3"
UNKNOWN_BUILTIN = "builtin operator"
"""How an operator is called that is newer than the schema read here; its number follows."""
MAX_TENSORS = 10 * MAX_NODES
MAX_RANK = 8

NUMPY_TYPES = {
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
"""Types of the schema that NumPy holds, under the same names."""


def _names(enumeration: type) -> Mapping[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


TENSOR_TYPES = _names(tflite.TensorType)
BUILTINS = _names(tflite.BuiltinOperator)
TABLES = _names(tflite.BuiltinOptions)
_BUILTIN_CODE = 3
"""Which field of an OperatorCode holds the numbers above 127, and in newer files all numbers."""


def read(source: bytes) -> Graph:
    """The first subgraph of a file; StageError for anything the format does not allow."""
    if source[4:8] != IDENTIFIER:
        raise StageError(
            "this is no TensorFlow Lite file: bytes 4 to 8 are not TFL3",
            hint="convert the model with TensorFlow 1.9 or later",
        )
    if len(source) > MAX_FILE_BYTES:
        raise StageError(f"{len(source):,} bytes; at most {MAX_FILE_BYTES:,} are accepted")
    with reading("its contents"):
        return _Reader(source).graph()


class _Reader:
    """One file while it is read."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._budget = Budget(len(source))
        self._model = tflite.Model.GetRootAs(source)
        self._kinds = self._budget.vector(
            self._model.OperatorCodesLength(), self._kind, MAX_NODES, "operator codes"
        )

    def graph(self) -> Graph:
        """The first subgraph, checked."""
        count = self._model.SubgraphsLength()
        if count < 1:
            raise damaged("it has no subgraph")
        subgraph = self._model.Subgraphs(0)
        taken: set[str] = set()
        tensors = tuple(
            self._budget.vector(
                subgraph.TensorsLength(),
                lambda i: self._tensor(subgraph.Tensors(i), i, taken),
                MAX_TENSORS,
                "tensors",
            )
        )
        operators = self._budget.vector(
            subgraph.OperatorsLength(),
            lambda i: self._operator(subgraph.Operators(i), i, tensors),
            MAX_NODES,
            "operators",
        )
        inputs = self._indices(subgraph.InputsAsNumpy(), tensors, "the graph's inputs")
        outputs = self._indices(subgraph.OutputsAsNumpy(), tensors, "the graph's outputs")
        graph = Graph(
            tensors,
            tuple(operators),
            tuple(dict.fromkeys(inputs)),
            tuple(dict.fromkeys(outputs)),
            int(self._model.Version()),
            self._budget.text(self._model.Description(), "descriptions"),
            count,
        )
        check_order(graph)
        return graph

    def _kind(self, index: int) -> str:
        code = self._model.OperatorCodes(index)
        # The package's BuiltinCode() gives the older field below 127, whatever the newer one says.
        number = max(int32_field(code, _BUILTIN_CODE), code.DeprecatedBuiltinCode())
        name = BUILTINS.get(number, f"{UNKNOWN_BUILTIN} {number}")
        if name != "CUSTOM":
            return name
        custom = self._budget.text(code.CustomCode(), "names of operators")
        return f"custom operator {custom}" if custom in BUILTINS.values() or not custom else custom

    def _tensor(self, raw: Any, index: int, taken: set[str]) -> Tensor:
        name = self._budget.text(raw.Name(), "names") or f"tensor {index}"
        name = name if name not in taken else f"{name}#{index}"
        taken.add(name)
        dtype = TENSOR_TYPES.get(raw.Type(), f"type {raw.Type()}").lower()
        shape = tuple(self._budget.numbers(raw.ShapeAsNumpy(), "shapes").tolist())
        signature = tuple(self._budget.numbers(raw.ShapeSignatureAsNumpy(), "shapes").tolist())
        if len(shape) > MAX_RANK or min(shape, default=0) < 0 or prod(shape) > MAX_ELEMENTS:
            raise damaged(
                f"tensor '{name}' has the shape {list(shape[:MAX_RANK])}; at most {MAX_RANK} "
                f"dimensions and {MAX_ELEMENTS:,} elements are accepted"
            )
        is_open = [extent == -1 for extent in signature] if len(signature) == len(shape) else []
        trouble = ""
        if raw.Sparsity() is not None:
            trouble = "is stored as a sparse tensor"
        elif raw.IsVariable():
            trouble = "keeps its value from one run to the next"
        return Tensor(
            index,
            name,
            dtype,
            shape,
            tuple(is_open) or (False,) * len(shape),
            axis_quantization_of(raw.Quantization(), name, dtype, shape, self._budget),
            None if trouble else self._data(raw.Buffer(), name, dtype, shape),
            trouble,
        )

    def _data(self, buffer: int, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        """The tensor's constant value, None where it has none."""
        if buffer == 0:
            return None  # by the schema always empty
        if buffer >= self._model.BuffersLength():
            raise damaged(f"tensor '{name}' refers to buffer {buffer}, which does not exist")
        raw = self._buffer(self._model.Buffers(buffer))
        if raw is None or dtype not in NUMPY_TYPES:
            return raw
        wanted = prod(shape) * np.dtype(dtype).itemsize
        if raw.size != wanted:
            raise damaged(
                f"tensor '{name}' of {dtype} {list(shape)} needs {wanted:,} bytes; "
                f"its buffer has {raw.size:,}"
            )
        return raw.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)

    def _buffer(self, buffer: Any) -> Any:
        """A buffer's bytes; in files above 2 GB they lie behind the flatbuffer."""
        if buffer is None:
            return None
        if buffer.DataIsNone() and buffer.Offset() > 1:
            return self._behind(buffer.Offset(), buffer.Size(), "the bytes of a buffer")
        if buffer.DataLength() == 0:
            return None
        return buffer.DataAsNumpy()

    def _indices(self, view: Any, tensors: Sequence[Tensor], what: str) -> tuple[int, ...]:
        found = tuple(self._budget.numbers(view, "operands").tolist())
        for index in found:
            if index < ABSENT or index >= len(tensors):
                raise damaged(f"{what} refer to tensor {index}; there are {len(tensors)}")
        return found

    def _operator(self, raw: Any, index: int, tensors: Sequence[Tensor]) -> Operator:
        if raw.OpcodeIndex() >= len(self._kinds):
            raise damaged(f"operator {index} has code {raw.OpcodeIndex()}, which does not exist")
        kind = self._kinds[raw.OpcodeIndex()]
        what = f"operator {index} ({kind}): operands"
        outputs = self._indices(raw.OutputsAsNumpy(), tensors, what)
        if ABSENT in outputs:
            raise damaged(f"operator {index} ({kind}) leaves out one of its outputs")
        return Operator(
            kind,
            tensors[outputs[0]].name if outputs else f"operator {index}",
            self._indices(raw.InputsAsNumpy(), tensors, what),
            outputs,
            self._options(raw, kind),
            self._custom_options(raw),
        )

    def _options(self, raw: Any, kind: str) -> dict[str, Any]:
        table, name = raw.BuiltinOptions(), TABLES.get(raw.BuiltinOptionsType(), "")
        if table is None or name != OPTIONS.get(kind):
            return {}
        options = getattr(tflite, name)()
        options.Init(table.Bytes, table.Pos)
        return plain(options, self._budget)

    def _custom_options(self, raw: Any) -> bytes:
        """A custom operator's own bytes; in files above 2 GB they lie behind the flatbuffer."""
        if raw.CustomOptionsIsNone() and raw.LargeCustomOptionsOffset() > 1:
            offset, size = raw.LargeCustomOptionsOffset(), raw.LargeCustomOptionsSize()
            return self._behind(offset, size, "custom options").tobytes()
        return self._budget.numbers(raw.CustomOptionsAsNumpy(), "custom options").tobytes()

    def _behind(self, offset: int, size: int, what: str) -> Any:
        """Bytes of the file by their place in it."""
        if offset + size > len(self._source):
            raise damaged(f"{what} lie outside the file")
        self._budget.take(size, 1, what)
        return np.frombuffer(self._source, np.uint8, size, offset)


def check_order(graph: Graph) -> None:
    """Every operand is constant, an input, or the result of an earlier operator; none is twice.

    What operators read that are not imported, custom ones above all, is their own affair: such may
    name scratch memory as an operand.
    """
    tensors = graph.tensors
    known = {tensor.index for tensor in tensors if tensor.data is not None or tensor.trouble}
    known.update(tensor.index for tensor in tensors if 0 in tensor.shape)
    if not graph.outputs:
        raise without_outputs()
    if ABSENT in (*graph.inputs, *graph.outputs):
        raise damaged("the graph leaves out one of its inputs or outputs")
    known.update(graph.inputs)
    computed = {tensor.index for tensor in tensors if tensor.data is not None}
    for index in graph.inputs:
        if index in computed:
            raise damaged(f"the input '{tensors[index].name}' is a constant")
        computed.add(index)
    for operator in graph.operators:
        for index in operator.inputs:
            if index not in known and index != ABSENT and operator.kind in OPERANDS:
                raise damaged(
                    f"'{operator.layer}' ({operator.kind}) reads '{tensors[index].name}', "
                    "which is not constant and which no operator before it computes"
                )
        for index in operator.outputs:
            if index in computed:
                raise damaged(
                    f"'{tensors[index].name}' is computed twice, or is an input or a constant"
                )
            computed.add(index)
        known.update(operator.outputs)
    for index in graph.outputs:
        if index not in known:
            raise damaged(f"no operator computes the output '{tensors[index].name}'")
