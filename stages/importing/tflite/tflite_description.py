"""What a TensorFlow Lite file contains, for `doit import`."""

from __future__ import annotations

from collections.abc import Mapping

from stages.dialect.dtypes import is_integer, limits, parse
from stages.importing.description import attempted, description
from stages.importing.tflite import metadata
from stages.importing.tflite.tflite_graph import Graph, Tensor
from stages.importing.tflite.tflite_importer import import_graph
from stages.importing.tflite.tflite_reader import read
from stages.kinds import Table
from stages.options import ImportOptions

_LAYERS = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 0,
    "FULLY_CONNECTED": 0,
    "TRANSPOSE_CONV": 2,
    "BATCH_MATMUL": 0,
    "LceBconv2d": 0,
}
"""Operators with weights (operand 1), and which operand their activations are."""


def describe_graph(source: bytes, options: ImportOptions) -> Table:
    """The table of `stages.importing.description`, of a TensorFlow Lite file.

    `smallest` and `largest` of an input are stored values where it is stored as integers; what
    those mean are then its `scale` and `zero_point`. What the metadata tell of inputs and outputs
    stands there, too.
    """
    graph, stated = read(source), metadata.read(source)
    imported = attempted(lambda: import_graph(graph, options))
    inputs = [_input(graph, graph.tensors[index]) for index in graph.inputs]
    outputs = [_output(graph.tensors[index], imported.shapes) for index in graph.outputs]
    return description(
        form="TensorFlow Lite",
        source=source,
        opset=graph.schema_version,
        producer=graph.description,
        inputs=_with(inputs, stated[0]),
        outputs=_with(outputs, stated[1]),
        operators=(each.kind for each in graph.operators),
        parameters=(int(t.data.size) for t in graph.tensors if t.data is not None),
        layers=_layers(graph),
        unsupported=imported.unsupported,
    )


def _with(items: list[Table], stated: list[Table]) -> list[Table]:
    """Inputs or outputs with what the metadata say of them, if it is of as many."""
    if len(stated) != len(items):
        return items
    return [item | more for item, more in zip(items, stated, strict=True)]


def _input(graph: Graph, tensor: Tensor) -> Table:
    smallest, largest = _range(graph, tensor)
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": [None if o else e for e, o in zip(tensor.shape, tensor.is_open, strict=True)],
        "smallest": smallest,
        "largest": largest,
        **_affine(tensor),
    }


def _output(tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> Table:
    shape = list(shapes[tensor.name]) if tensor.name in shapes else None
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": shape, **_affine(tensor)}


def _affine(tensor: Tensor) -> Table:
    if tensor.whole is None:
        return {}
    return dict(zip(("scale", "zero_point"), tensor.whole.stated, strict=True))


def _range(graph: Graph, tensor: Tensor) -> tuple[float, float]:
    """Between which values an input lies: those that a QUANTIZE behind it can represent."""
    if is_integer(tensor.dtype):
        low, high = limits(tensor.dtype)
        return float(low), float(high)
    for operator in graph.operators:
        if operator.kind == "QUANTIZE" and operator.inputs == (tensor.index,):
            found = graph.tensors[operator.outputs[0]].whole
            if found is not None:
                low, high = found.levels.numerators
                return float(found.scale) * low, float(found.scale) * high
    return -1.0, 1.0


def _layers(graph: Graph) -> list[Table]:
    return [
        {
            "layer": operator.layer,
            "op": operator.kind,
            "weight_shape": list(graph.tensors[operator.inputs[1]].shape),
            "activations": _precision(graph.tensors[operator.inputs[_LAYERS[operator.kind]]]),
            "weights": _precision(graph.tensors[operator.inputs[1]]),
        }
        for operator in graph.operators
        if operator.kind in _LAYERS and operator.has(1) and operator.has(_LAYERS[operator.kind])
    ]


def _precision(tensor: Tensor) -> Table | None:
    """Bits and encoding of a quantized tensor."""
    found = tensor.quantization
    if found is None:
        return None
    bits = parse(tensor.dtype).bits
    return {"bits": bits, "encoding": "asymmetric" if found.zero_point.any() else "signed"}
