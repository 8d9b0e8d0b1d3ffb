"""Writing TensorFlow Lite files: one subgraph of builtin and custom operators.

The tables are those of TensorFlow Lite's `schema.fbs`; Larq's options are flexbuffers in an
operator's `custom_options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite
from flatbuffers import flexbuffers

Array = np.ndarray[Any, Any]

DTYPES = {
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "float16": "FLOAT16",
    "int4": "INT4",
    "int8": "INT8",
    "uint8": "UINT8",
    "int16": "INT16",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "bool": "BOOL",
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a file; with `data` it is constant. Scales of a list are per `axis`."""

    shape: Sequence[int]
    dtype: str
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    data: Array | None = None
    axis: int = 0
    name: str = ""
    signature: Sequence[int] | None = None
    """The shape with -1 for each extent that is left open."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operator: its name as in the schema (`CONV_2D`), or a custom operator's own name.

    `options` are fields of the schema's table `table` in snake case, such as `stride_h`.
    """

    op: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    table: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    custom_options: bytes = b""
    version: int = 1


def constant(data: Any, dtype: str | None = None, **quantization: Any) -> Tensor:
    """A constant tensor."""
    array = np.asarray(data, dtype)
    return Tensor(array.shape, str(array.dtype), data=array, **quantization)


def build(
    operations: Sequence[Operation],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    metadata: bytes | None = None,
) -> bytes:
    """The bytes of a file whose only subgraph runs `operations` in order.

    `metadata` is a flatbuffer of tflite-support (see `stages.importing.tflite.metadata`).
    """
    b = flatbuffers.Builder(1024)
    tensors = _all_tensors(operations, inputs, outputs)
    index = {id(tensor): i for i, tensor in enumerate(tensors)}
    constants = [tensor for tensor in tensors if tensor.data is not None]
    buffer_of = {id(tensor): i + 1 for i, tensor in enumerate(constants)}
    buffers = [_buffer(b, None), *(_buffer(b, tensor) for tensor in constants)]
    tensor_tables = [
        _tensor(b, tensor, i, buffer_of.get(id(tensor), 0)) for i, tensor in enumerate(tensors)
    ]
    codes = list(dict.fromkeys((o.op, o.version) for o in operations))
    operators = [_operator(b, o, codes.index((o.op, o.version)), index) for o in operations]
    code_tables = [_operator_code(b, op, version) for op, version in codes]
    members = [
        ("Tensors", _offsets(b, tensor_tables)),
        ("Inputs", _int32s(b, [index[id(tensor)] for tensor in inputs])),
        ("Outputs", _int32s(b, [index[id(tensor)] for tensor in outputs])),
        ("Operators", _offsets(b, operators)),
        ("Name", b.CreateString("main")),
    ]
    subgraph = _table(b, "SubGraph", members)
    told = []
    if metadata is not None:
        told.append(_metadata(b, len(buffers)))
        content = b.CreateByteVector(metadata)
        buffers.append(_table(b, "Buffer", [("Data", content)]))
    members = [
        ("Version", 3),
        ("OperatorCodes", _offsets(b, code_tables)),
        ("Subgraphs", _offsets(b, [subgraph])),
        ("Description", b.CreateString("bitkiln")),
        ("Buffers", _offsets(b, buffers)),
        *([("Metadata", _offsets(b, told))] if told else []),
    ]
    b.Finish(_table(b, "Model", members), file_identifier=b"TFL3")
    return bytes(b.Output())


def _metadata(b: Any, buffer: int) -> Any:
    members = [("Name", b.CreateString("TFLITE_METADATA")), ("Buffer", buffer)]
    return _table(b, "Metadata", members)


def flexible(**values: int) -> bytes:
    """Options of a custom operator: a flexbuffer's map."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Int(name, value)
    return bytes(builder.Finish())


def _all_tensors(
    operations: Sequence[Operation], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> list[Tensor]:
    found = [*inputs]
    for operation in operations:
        found += [tensor for tensor in operation.inputs if tensor is not None]
        found += operation.outputs
    return list(dict.fromkeys([*found, *outputs]))


def _table(b: Any, name: str, members: Sequence[tuple[str, Any]]) -> Any:
    getattr(tflite, f"{name}Start")(b)
    for member, value in members:
        getattr(tflite, f"{name}Add{member}")(b, value)
    return getattr(tflite, f"{name}End")(b)


def _offsets(b: Any, items: Sequence[Any]) -> Any:
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return b.EndVector()


def _int32s(b: Any, values: Sequence[int]) -> Any:
    return b.CreateNumpyVector(np.asarray(values, np.int32))


def _buffer(b: Any, tensor: Tensor | None) -> Any:
    if tensor is None or tensor.data is None:
        return _table(b, "Buffer", [])
    payload = np.ascontiguousarray(tensor.data)
    if tensor.dtype == "int4":
        nibbles = np.append(payload.ravel(), [0] * (payload.size % 2)).astype(np.uint8) & 15
        payload = nibbles[0::2] | (nibbles[1::2] << 4)
    raw = np.frombuffer(payload.tobytes(), np.uint8)
    b.StartVector(1, raw.size, 16)
    b.head -= raw.size
    b.Bytes[b.head : b.head + raw.size] = raw.tobytes()
    return _table(b, "Buffer", [("Data", b.EndVector())])


def _quantization(b: Any, tensor: Tensor) -> Any:
    scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
    zero_points = np.broadcast_to(np.asarray(tensor.zero_point, np.int64), scales.shape)
    members = [
        ("Scale", b.CreateNumpyVector(scales)),
        ("ZeroPoint", b.CreateNumpyVector(np.ascontiguousarray(zero_points))),
    ]
    if scales.size > 1:
        members.append(("QuantizedDimension", tensor.axis))
    return _table(b, "QuantizationParameters", members)


def _tensor(b: Any, tensor: Tensor, index: int, buffer: int) -> Any:
    members = [
        ("Shape", _int32s(b, tensor.shape)),
        ("Type", getattr(tflite.TensorType, DTYPES[tensor.dtype])),
        ("Buffer", buffer),
        ("Name", b.CreateString(tensor.name or f"t{index}")),
    ]
    if tensor.signature is not None:
        members.append(("ShapeSignature", _int32s(b, tensor.signature)))
    if tensor.scale is not None:
        members.append(("Quantization", _quantization(b, tensor)))
    return _table(b, "Tensor", members)


def _operator_code(b: Any, op: str, version: int) -> Any:
    builtin = getattr(tflite.BuiltinOperator, op, None)
    members: list[tuple[str, Any]] = [("Version", version)]
    if builtin is None:
        members.append(("CustomCode", b.CreateString(op)))
        builtin = tflite.BuiltinOperator.CUSTOM
    members += [("DeprecatedBuiltinCode", min(builtin, 127)), ("BuiltinCode", builtin)]
    return _table(b, "OperatorCode", members)


def _operator(b: Any, operation: Operation, code: int, index: dict[int, int]) -> Any:
    numbers = [-1 if tensor is None else index[id(tensor)] for tensor in operation.inputs]
    members = [
        ("OpcodeIndex", code),
        ("Inputs", _int32s(b, numbers)),
        ("Outputs", _int32s(b, [index[id(tensor)] for tensor in operation.outputs])),
    ]
    if operation.table is not None:
        options = [
            (_camel(name), _int32s(b, value) if isinstance(value, (list, tuple)) else value)
            for name, value in operation.options.items()
        ]
        members.append(("BuiltinOptions", _table(b, operation.table, options)))
        members.append(("BuiltinOptionsType", getattr(tflite.BuiltinOptions, operation.table)))
    if operation.custom_options:
        raw = np.frombuffer(operation.custom_options, np.uint8)
        members.append(("CustomOptions", b.CreateNumpyVector(raw)))
    return _table(b, "Operator", members)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
