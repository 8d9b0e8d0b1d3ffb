"""The domains of an ONNX file: exporters disagree on QONNX's, and some forget to import it."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, helper

QONNX = "qonnx.custom_op.general"
"""The domain under which every QONNX operator is known after reading."""

QONNX_DOMAINS = frozenset({QONNX, "finn", "finn.custom_op.general", "onnx.brevitas", "qonnx"})
"""The names exporters have given that domain over the years."""


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all that stand in its nodes' attributes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs_of(attribute.g)
            for inner in attribute.graphs:
                yield from graphs_of(inner)


def domains(model: ModelProto) -> tuple[set[str], list[tuple[str, int]]]:
    """The domains of nodes, and those imported with their versions."""
    used = {node.domain for graph in graphs_of(model.graph) for node in graph.node}
    return used, sorted((item.domain, item.version) for item in model.opset_import)


def name_domains(model: ModelProto) -> None:
    """Give QONNX operators one domain and import it: exporters disagree and some forget to."""
    for graph in graphs_of(model.graph):
        for node in graph.node:
            if node.domain in QONNX_DOMAINS:
                node.domain = QONNX
            elif node.domain == "ai.onnx":
                node.domain = ""
    imports: dict[str, int] = {}
    for item in model.opset_import:
        domain = "" if item.domain == "ai.onnx" else item.domain
        imports[QONNX if domain in QONNX_DOMAINS else domain] = item.version
    for graph in graphs_of(model.graph):
        for node in graph.node:
            if node.domain:
                imports.setdefault(node.domain, 1)
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(name, imports[name]) for name in sorted(imports))
