"""Names in an ONNX file: protobuf hands on what is no text as bytes, which nothing expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onnx import GraphProto, ModelProto

from stages.errors import StageError


def check_texts(model: ModelProto, graphs: Iterable[GraphProto]) -> None:
    """Raise StageError for a name in the model or in one of its graphs that is not UTF-8."""
    for name in (*_of_model(model), *(name for graph in graphs for name in _of_graph(graph))):
        if not isinstance(name, str):
            raise StageError(
                f"the name {name[:40]!r} in the file is not UTF-8 text",
                hint="check that it was downloaded whole",
            )


def _of_model(model: ModelProto) -> Iterator[Any]:
    yield from (model.producer_name, model.producer_version)
    yield from (item.domain for item in model.opset_import)


def _of_graph(graph: GraphProto) -> Iterator[Any]:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for note in graph.quantization_annotation:
        yield note.tensor_name
        for pair in note.quant_parameter_tensor_names:
            yield from (pair.key, pair.value)
