"""TensorFlow Lite graphs on their way into Relax: the one walk, with what is particular to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.dialect.calls import dtype_of
from stages.importing.graph_inputs import GraphInput
from stages.importing.importer import Imported, Importer, needed_nodes
from stages.importing.relax_builder import Array, Value
from stages.importing.tflite.constant_operators import Folder
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_converters import Converter, check_count, converter_of
from stages.importing.tflite.tflite_graph import Graph, Operator, Tensor
from stages.importing.unsupported import UnsupportedError
from stages.numerics.bipolar import BIT
from stages.options import ImportOptions


def import_graph(graph: Graph, options: ImportOptions) -> Imported:
    """A graph as Relax, with everything unsupported."""
    return TfliteImporter(graph).run(options)


class TfliteImporter(Importer[TfliteBuilder, Operator, int]):
    """One graph; its tensors are known by their numbers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._folder = Folder()
        super().__init__(
            TfliteBuilder(graph),
            {index: _graph_input(graph.tensors[index]) for index in graph.inputs},
            {index: graph.tensors[index].name for index in graph.outputs},
        )

    def nodes(self) -> list[Operator]:
        """The operators that the outputs depend on."""
        return needed_nodes(
            self._graph.operators, self.outputs, lambda each: each.inputs, lambda each: each.outputs
        )

    def title(self, node: Operator) -> tuple[str, str]:
        """The operator's name in the schema, and that of its first output."""
        return node.kind, node.layer

    def operands(self, node: Operator) -> Sequence[int]:
        """Inputs by number."""
        return node.operands

    def results(self, node: Operator, count: int) -> Sequence[int]:
        """Outputs by number."""
        return node.outputs

    def converter(self, node: Operator) -> Converter:
        """By the operator's name, and whether it gives floats."""
        return converter_of(self.builder, node)

    def folded(self, node: Operator) -> Mapping[int, Array] | None:
        """What shapes are computed with is executed."""
        if not self._folder.folds(self.builder, node):
            return None
        return self._folder.fold(self.builder, node)

    def define(self, node: Operator, values: Sequence[Value]) -> None:
        """Note what an operator gives, which must be of the types that the file states."""
        check_count(node, values)
        for position, value in enumerate(values):
            self.builder.check_result(node, position, value)
        super().define(node, values)

    def check_output(self, key: int) -> None:
        """UnsupportedError also for signs that Larq packs."""
        super().check_output(key)
        if dtype_of(self.builder.variables[key].ty) == BIT:
            raise UnsupportedError("is packed bits; dequantize it")

    def attributes(self) -> dict[str, Any]:
        """The numerics, and what quantized inputs and outputs mean."""
        graph = self._graph
        meaning = {}
        for index in (*graph.inputs, *graph.outputs):
            tensor = graph.tensors[index]
            if (found := tensor.whole) is not None:
                scale, zero_point = found.stated
                meaning[tensor.name] = {"scale": scale, "zero_point": zero_point}
        return {"numerics": "tflite", "quantization": json.dumps(meaning, sort_keys=True)}


def _graph_input(tensor: Tensor) -> GraphInput:
    """An input as recorded, also where its extents are open, unless the recipe states others."""
    shape = [None if o else e for e, o in zip(tensor.shape, tensor.is_open, strict=True)]
    return GraphInput(tensor.name, tensor.dtype, tuple(shape), usual=tensor.shape)
