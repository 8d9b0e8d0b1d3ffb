"""ONNX graphs on their way into Relax: the one walk, with what is particular to ONNX."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stages.importing.closeness import note_close_layers
from stages.importing.importer import Imported, Importer, needed_nodes
from stages.importing.onnx.constant_subgraphs import fold
from stages.importing.onnx.double_quantizers import join_double_quantizers
from stages.importing.onnx.onnx_builder import Converter, OnnxBuilder
from stages.importing.onnx.onnx_converters import ONNX_SET, QONNX_SET, REASONS, operator_set_of
from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.importing.onnx.operand_checks import check_operands
from stages.importing.onnx.runtime_session import islands, session_of
from stages.importing.unsupported import NO_CONVERTER, UnsupportedError
from stages.kinds import Model
from stages.numerics.onnx_islands import ATTRIBUTE, written
from stages.numerics.qdq import to_integers
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]

POSTPROCESSING = frozenset({"TopK", "ArgMax", "Softmax", "LogSoftmax"})
"""Operators that, at the very end of a graph, are left to the caller of the package."""


def import_graph(graph: SourceGraph, options: ImportOptions) -> Imported:
    """A source graph as Relax, with everything unsupported."""
    return OnnxImporter(graph).run(options)


class OnnxImporter(Importer[OnnxBuilder, Node, str]):
    """One ONNX graph; its tensors are known by their names."""

    def __init__(self, graph: SourceGraph) -> None:
        self._set = operator_set_of(graph)
        self._graph = join_double_quantizers(graph) if self._set is ONNX_SET else graph
        self._protos = dict(
            zip((node.layer for node in graph.nodes), graph.model.graph.node, strict=True)
        )
        builder = OnnxBuilder(self._set.accepts, graph.opset)
        builder.constants.update(self._graph.constants)
        outputs, _ = package_outputs(self._graph)
        super().__init__(
            builder,
            {item.name: item for item in graph.inputs},
            {name: name for name in outputs},
            self._set.accepts,
        )

    def nodes(self) -> list[Node]:
        """The nodes that the outputs depend on."""
        return needed_nodes(
            self._graph.nodes, self.outputs, lambda node: node.inputs, lambda node: node.outputs
        )

    def title(self, node: Node) -> tuple[str, str]:
        """The operator with its domain, and the node's name."""
        return node.kind, node.layer

    def operands(self, node: Node) -> Iterator[str]:
        """Inputs by name; an empty one is left out."""
        return (name for name in node.inputs if name)

    def results(self, node: Node, count: int) -> Sequence[str]:
        """Outputs by name."""
        return node.outputs

    def converter(self, node: Node) -> Converter:
        """By domain and name; `Shape` is an array whatever the arithmetic."""
        key = (node.domain, node.op)
        if key == ("", "Shape"):
            return _shape
        if key not in self._set.converters:
            raise UnsupportedError(REASONS.get(node.op, NO_CONVERTER))
        return self._set.converters[key]

    def folded(self, node: Node) -> Mapping[str, Array] | None:
        """The small constant subgraphs that exporters leave behind are evaluated."""
        check_operands(node, self.builder.constants)
        values = fold(self._graph, node, self._protos[node.layer], self.builder.constants)
        return None if values is None else dict(zip(node.outputs, values, strict=True))

    def attributes(self) -> dict[str, Any]:
        """Whose rounding holds; datatypes of FINN, or what quantizes inputs and outputs."""
        if self._set is QONNX_SET:
            kinds = self._graph.datatypes.items()
            datatypes = {name: kind for name, kind in kinds if kind != "FLOAT32"}
            return {"numerics": self._set.numerics, "finn_datatypes": datatypes}
        meaning = json.dumps(quantization(self._graph))
        attributes = {"numerics": self._set.numerics, "quantization": meaning}
        found = tuple(islands(self._graph))
        return attributes | ({ATTRIBUTE: written(found)} if found else {})

    def completed(self, model: Model) -> Model:
        """Quantized operators between quantizers become operators on integers."""
        if self._set is QONNX_SET:
            return model
        integers = to_integers(model, self._set.numerics, session_of(self._graph))
        return note_close_layers(integers)


def _shape(builder: OnnxBuilder, node: Node) -> Array:
    extents = np.array(builder.shape(node.inputs[0]), np.int64)
    return extents[node.attributes.get("start", 0) : node.attributes.get("end")]


def package_outputs(graph: SourceGraph) -> tuple[tuple[str, ...], tuple[Node, ...]]:
    """The tensors a package computes, and the final nodes it leaves to its caller.

    A ranking or softmax at the very end is cut off where operators are QONNX's, or it is unknown:
    its input becomes the output, if anything computes that.
    """
    operators = operator_set_of(graph)
    known = () if operators is QONNX_SET else operators.converters
    producers = {name: node for node in graph.nodes for name in node.outputs}
    outputs: list[str] = []
    cut: list[Node] = []
    for name in graph.outputs:
        node = producers.get(name)
        if node is not None and node.op in POSTPROCESSING and (node.domain, node.op) not in known:
            before = next(iter(node.inputs), "")
            if before in producers:
                name = before
                cut += [node] if node not in cut else []
        if name not in outputs:
            outputs.append(name)
    return tuple(outputs), tuple(cut)


def quantization(graph: SourceGraph) -> dict[str, dict[str, float]]:
    """Scale and zero point of graph inputs and outputs whose quantizer stands right beside them."""
    found: dict[str, dict[str, float]] = {}
    for node in graph.nodes:
        tensor = {"DequantizeLinear": node.inputs[:1], "QuantizeLinear": node.outputs[:1]}
        for name in tensor.get(node.op, ()):
            is_end = name in graph.outputs or any(item.name == name for item in graph.inputs)
            values = [graph.constants.get(each) for each in node.inputs[1:3]]
            if is_end and values and values[0] is not None and values[0].size == 1:
                stated = values[1] if len(values) > 1 else None
                zero_point = 0 if stated is None else int(stated.item())
                found[name] = {"scale": float(values[0].item()), "zero_point": zero_point}
    return found
