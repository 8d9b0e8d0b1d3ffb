"""What exporters do not agree on in an ONNX file: domains, their imports, the order of nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, defs, helper

NEWEST_OPSET = defs.onnx_opset_version()

QONNX = "qonnx.custom_op.general"
"""The domain under which every QONNX operator is known after reading."""

QONNX_DOMAINS = frozenset({QONNX, "finn", "finn.custom_op.general", "onnx.brevitas", "qonnx"})
"""The names exporters have given that domain over the years."""

QONNX_OPERATORS = frozenset({"Quant", "IntQuant", "BipolarQuant", "MultiThreshold", "Trunc"})
"""Operators that are QONNX's even where a file states no domain: ONNX has none of these names."""


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
            is_known_by_name = not node.domain and node.op_type in QONNX_OPERATORS
            if is_known_by_name or node.domain in QONNX_DOMAINS:
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
    if all(node.domain for graph in graphs_of(model.graph) for node in graph.node):
        imports.setdefault("", NEWEST_OPSET)  # no node depends on it, yet every file must state it
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(name, imports[name]) for name in sorted(imports))


def sort_nodes(model: ModelProto) -> bool:
    """Put the nodes of every graph in an order in which they can run; whether that moved any.

    Nodes keep their order wherever they can. Those of a cycle stay where they are.
    """
    moved = [_sort(graph) for graph in list(graphs_of(model.graph))]
    return any(moved)


def _sort(graph: GraphProto) -> bool:
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producers[name] for name in _read_by(n) if name in producers} for n in graph.node]
    if all(max(each, default=-1) < index for index, each in enumerate(needs)):
        return False
    readers: dict[int, list[int]] = {}
    for index, each in enumerate(needs):
        for producer in each:
            readers.setdefault(producer, []).append(index)
    missing = [len(each) for each in needs]
    ready = [index for index, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers.get(order[-1], ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(needs):
        return False
    sorted_graph = GraphProto(node=[graph.node[index] for index in order])
    del graph.node[:]
    graph.node.extend(sorted_graph.node)
    return True


def _read_by(node: NodeProto) -> Iterator[str]:
    """What a node reads, and what graphs in its attributes read from around it."""
    yield from node.input
    for attribute in node.attribute:
        inner = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in inner:
            for each in graph.node:
                yield from _read_by(each)
