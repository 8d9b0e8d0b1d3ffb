"""A TensorFlow Lite file as files of one operator each, so that each can be counted alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pipelines.emulating import layer_kinds
from pipelines.emulating.layer_kinds import LayerOfKind
from pipelines.errors import UserError

Array = np.ndarray[Any, Any]

_DENSE, _DEPTHWISE, _CONV = "FULLY_CONNECTED", "DEPTHWISE_CONV_2D", "CONV_2D"
_OF_ATTENTION = ("BATCH_MATMUL", "SOFTMAX")


@dataclass(frozen=True)
class Part:
    """One operator: the layer that it is, called as the tensor that it gives, and its file."""

    layer: LayerOfKind
    source: bytes
    inputs: tuple[Array, ...]
    """Random values of the types and shapes that it reads."""
    same_as: tuple[Any, ...]
    """Parts of which this is equal have the same shapes, types and options."""


def split(source: bytes) -> list[Part]:
    """Return the operators of a file's first graph in order.

    UserError where ai-edge-litert, whose schema is used, is not installed.
    """
    try:
        from ai_edge_litert import schema_py_generated as schema
    except ImportError as error:
        raise UserError(
            "operators one by one need LiteRT's schema; run: pip install -e '.[peers]'"
        ) from error
    return list(_Splitter(schema, source).parts())


class _Splitter:
    """A file, and the names of its operators."""

    def __init__(self, schema: Any, source: bytes) -> None:
        self.schema = schema
        self.model = schema.ModelT.InitFromPackedBuf(source, 0)
        self.graph = self.model.subgraphs[0]
        codes = vars(schema.BuiltinOperator).items()
        self.names = {value: name for name, value in codes if isinstance(value, int)}
        self.rng = np.random.default_rng(0)

    def parts(self) -> Iterator[Part]:
        is_first = True
        for operator in self.graph.operators:
            layer = self._layer(operator)
            if is_first and layer.macs:
                is_first = False
                if layer.kind not in (layer_kinds.DENSE, layer_kinds.ATTENTION):
                    layer = LayerOfKind(layer.name, layer_kinds.FIRST, layer.macs)
            read = [i for i in dict.fromkeys(operator.inputs) if i >= 0 and not self._is_stored(i)]
            same = (
                self._name(operator),
                *(self._about(i) for i in (*operator.inputs, *operator.outputs)),
                str(sorted(vars(operator.builtinOptions or object).items(), key=str)),
            )
            given = tuple(self._values(self.graph.tensors[i]) for i in read)
            yield Part(layer, self._alone(operator, read), given, same)

    def _name(self, operator: Any) -> str:
        code = self.model.operatorCodes[operator.opcodeIndex]
        return self.names[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def _about(self, index: int) -> tuple[Any, ...]:
        if index < 0:
            return ()
        tensor = self.graph.tensors[index]
        return (tensor.type, tuple(tensor.shape), self._is_stored(index))

    def _is_stored(self, index: int) -> bool:
        data = self.model.buffers[self.graph.tensors[index].buffer].data
        return data is not None and len(data) > 0

    def _layer(self, operator: Any) -> LayerOfKind:
        op = self._name(operator)
        result = self.graph.tensors[operator.outputs[0]]
        name, shape = result.name.decode(), [int(extent) for extent in result.shape]
        if op in (_CONV, _DEPTHWISE, _DENSE):
            weight = [int(extent) for extent in self.graph.tensors[operator.inputs[1]].shape]
            if op == _DENSE:
                return LayerOfKind(name, layer_kinds.DENSE, prod(shape) * weight[1])
            if op == _DEPTHWISE:
                return LayerOfKind(name, layer_kinds.DEPTHWISE, prod(shape) * weight[1] * weight[2])
            kind = layer_kinds.of_convolution(weight[1:3], shape[1] * shape[2])
            return LayerOfKind(name, kind, prod(shape) * prod(weight[1:]))
        return LayerOfKind(
            name, layer_kinds.ATTENTION if op in _OF_ATTENTION else layer_kinds.OTHER
        )

    def _alone(self, operator: Any, read: list[int]) -> bytes:
        """The file of an operator, whose activations are inputs and outputs."""
        import flatbuffers

        schema, ids = self.schema, {}
        made, graph = schema.ModelT(), schema.SubGraphT()
        made.version, made.buffers = 3, [schema.BufferT()]
        made.operatorCodes = [self.model.operatorCodes[operator.opcodeIndex]]
        graph.name, graph.tensors = b"main", []
        for index in dict.fromkeys([*operator.inputs, *operator.outputs]):
            if index < 0:
                continue
            tensor = copy.copy(self.graph.tensors[index])
            if self._is_stored(index):
                made.buffers.append(self.model.buffers[tensor.buffer])
                tensor.buffer = len(made.buffers) - 1
            else:
                tensor.buffer = 0
            ids[index] = len(graph.tensors)
            graph.tensors.append(tensor)
        alone = copy.copy(operator)
        alone.opcodeIndex = 0
        alone.inputs = [ids.get(index, -1) for index in operator.inputs]
        alone.outputs = [ids[index] for index in operator.outputs]
        graph.operators, made.subgraphs = [alone], [graph]
        graph.inputs, graph.outputs = [ids[index] for index in read], alone.outputs
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(made.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _values(self, tensor: Any) -> Array:
        dtypes = {
            self.schema.TensorType.FLOAT32: np.float32,
            self.schema.TensorType.INT8: np.int8,
            self.schema.TensorType.UINT8: np.uint8,
            self.schema.TensorType.INT16: np.int16,
            self.schema.TensorType.INT32: np.int32,
        }
        dtype: np.dtype[Any] = np.dtype(dtypes.get(tensor.type, np.float32))
        if dtype.kind == "f":
            return self.rng.random(tensor.shape).astype(dtype)
        raw = self.rng.bytes(prod(tensor.shape) * dtype.itemsize)
        return np.frombuffer(raw, dtype).reshape(tensor.shape)
