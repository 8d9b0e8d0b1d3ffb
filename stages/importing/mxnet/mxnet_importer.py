"""MXNet symbols on their way into Relax: the one walk, with what is particular to MXNet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.graph_inputs import GraphInput
from stages.importing.importer import Imported, Importer
from stages.importing.mxnet.mxnet_builder import Converter, MxnetBuilder, Output
from stages.importing.mxnet.mxnet_converters import converter_of
from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.mxnet.symbol_graph import (
    graph_inputs,
    heads_of,
    needed_positions,
    output_names,
    stated_shape,
)
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]


def import_symbol(symbol: Symbol, params: Mapping[str, Array], options: ImportOptions) -> Imported:
    """A symbol with its parameters as Relax, with everything unsupported."""
    return MxnetImporter(symbol, params).run(options)


class MxnetImporter(Importer[MxnetBuilder, Node, Output]):
    """One symbol; its tensors are known by node and output."""

    def __init__(self, symbol: Symbol, params: Mapping[str, Array]) -> None:
        self._symbol = symbol
        builder = MxnetBuilder(symbol)
        inputs = graph_inputs(symbol, params)
        for position in needed_positions(symbol):
            node = symbol.nodes[position]
            if node.op == "null" and position not in inputs:
                builder.define((position, 0), params[node.name])
        heads, _ = heads_of(symbol)
        super().__init__(
            builder,
            {(position, 0): self._graph_input(position) for position in inputs},
            dict(zip(heads, output_names(symbol, heads), strict=True)),
        )

    def _graph_input(self, position: int) -> GraphInput:
        """An input; the shape that a symbol notes is a default that the recipe may replace."""
        node = self._symbol.nodes[position]
        return GraphInput(node.name, "float32", (), stated_shape(node), is_unbound=True)

    def nodes(self) -> list[Node]:
        """The operators that the outputs depend on."""
        needed = (self._symbol.nodes[position] for position in needed_positions(self._symbol))
        return [node for node in needed if node.op != "null"]

    def title(self, node: Node) -> tuple[str, str]:
        """The operator, and the node's name."""
        return node.op, node.name

    def operands(self, node: Node) -> Sequence[Output]:
        """Inputs by node and output."""
        return node.inputs

    def results(self, node: Node, count: int) -> list[Output]:
        """A symbol does not say how many outputs a node has; its converter knows."""
        return [(node.position, output) for output in range(count)]

    def converter(self, node: Node) -> Converter:
        """By the operator's name."""
        return converter_of(node)

    def prepare_outputs(self) -> None:
        """An end of a range, which MXNet gives as one float32 [1]."""
        for key, name in self.outputs.items():
            if self.builder.is_defined(key) and not self.builder.shape(key):
                end = self.builder.held(self.builder.value(key), f"{name}.end")
                self.builder.define(key, self.builder.emit(relax.op.reshape(end, (1,)), name))

    def attributes(self) -> dict[str, Any]:
        """Whose rounding holds; ranges of quantized tensors are outputs of their own."""
        return {"numerics": "mxnet", "quantization": json.dumps({})}
