"""What ONNX Runtime's default session knows of a graph when it decides what to fuse."""

from __future__ import annotations

from stages.importing.onnx_reader import SourceGraph
from stages.qnn.qdq_rewriting import Session

_REDUCTIONS = ("ReduceMean", "ReduceSum")


def session_of(graph: SourceGraph) -> Session:
    """The facts about a graph, by the layers of its nodes."""
    reductions = (node.layer for node in graph.nodes if node.op in _REDUCTIONS)
    return Session(reductions=frozenset(reductions))
