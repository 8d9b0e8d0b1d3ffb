"""Exported programs on their way into Relax: the one walk, with what is particular to PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from stages.importing.graph_inputs import GraphInput
from stages.importing.importer import Imported, Importer, needed_nodes
from stages.importing.relax_builder import Value
from stages.importing.torch_export.exported_program import Node, Program, Ref
from stages.importing.torch_export.torch_builder import Converter, TorchBuilder
from stages.importing.torch_export.torch_converters import VIEWS, converter_of, is_in_place
from stages.importing.unsupported import NO_CONVERTER, UnsupportedError
from stages.kinds import Model
from stages.numerics import qdq
from stages.options import ImportOptions

_ACCEPTED = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")


def import_program(program: Program, options: ImportOptions) -> Imported:
    """A program as Relax, with everything unsupported."""
    return TorchImporter(program).run(options)


class TorchImporter(Importer[TorchBuilder, Node, str]):
    """One exported program; its tensors are known by their names."""

    def __init__(self, program: Program) -> None:
        self._program = program
        super().__init__(
            TorchBuilder(program),
            {
                name: GraphInput(name, meta.dtype, meta.shape)
                for name, meta in program.inputs.items()
            },
            {name: name for name in program.outputs},
            _ACCEPTED,
        )

    def nodes(self) -> list[Node]:
        """The nodes that the outputs depend on, and those that write into an operand."""
        return program_nodes(self._program)

    def title(self, node: Node) -> tuple[str, str]:
        """The operator with its overload, and the node's name."""
        return node.op, node.name

    def operands(self, node: Node) -> Iterator[str]:
        """Tensors and numbers by name."""
        return _names(node)

    def results(self, node: Node, count: int) -> Sequence[str]:
        """Outputs by name."""
        return node.outputs

    def converter(self, node: Node) -> Converter:
        """By the operator's name, whatever its overload."""
        found = converter_of(node.op)
        if found is None:
            raise UnsupportedError(NO_CONVERTER)
        return found[0]

    def define(self, node: Node, values: Sequence[Value]) -> None:
        """Note what a node gives, also as its operand where it writes into that."""
        super().define(node, values)
        viewed = self.builder.viewed
        is_view = self.converter(node) in VIEWS
        source = getattr(node.arguments.get("self"), "name", "")
        if is_view:
            viewed.update((source, *node.outputs))
        if is_in_place(node):
            if source in viewed and not is_view:
                raise UnsupportedError(
                    "writes into memory that is seen by several names; export the program with "
                    "run_decompositions()"
                )
            self.builder.define(source, values[0])

    def attributes(self) -> dict[str, Any]:
        """Whose rounding holds; inputs and outputs are as the program has them."""
        return {"numerics": "torch", "quantization": json.dumps({})}

    def completed(self, model: Model) -> Model:
        """Quantized operators between quantizers become operators on integers."""
        return qdq.to_integers(model, "torch")


def program_nodes(program: Program) -> list[Node]:
    """The nodes that the outputs depend on, and those that write into an operand."""
    return needed_nodes(
        program.nodes, program.outputs, _names, lambda node: node.outputs, is_in_place
    )


def _names(node: Node) -> Iterator[str]:
    """What a node reads."""
    for value in node.arguments.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Ref):
                yield each.name
