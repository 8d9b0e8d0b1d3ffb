"""What the rules of ONNX Runtime ask about the operands of an operator of a QDQ graph."""

from __future__ import annotations

from collections.abc import Iterable

from stages.nodes import Var
from stages.numerics.onnx_islands import DEFAULT, Island
from stages.numerics.qdq_graph import Quantized
from stages.numerics.qdq_rewriter import QdqRewriter
from stages.numerics.quantization_grid import Grid

TO_UNSIGNED = 128
"""What makes a byte of uint8 of one of int8."""


def note(graph: QdqRewriter, layer: str, runtime: str, gives: str = DEFAULT) -> None:
    """Note that the session fuses a layer."""
    graph.islands.append(Island(layer, runtime, gives))


def offset(graph: QdqRewriter, out: Grid, *operands: Var) -> int | None:
    """What ONNX Runtime on x86 adds to the integers of an operator and its zero points.

    It makes uint8 of int8 activations that one node reads, and fuses operators whose operands and
    results are of one type then: None if they are not.
    """
    if out.dtype != "int8":
        return 0
    kept = {graph.stays_signed(each) for each in operands}
    kept.add(graph.target in graph.session.signed)
    return None if len(kept) > 1 else 0 if kept.pop() else TO_UNSIGNED


def ints(values: Iterable[int] | None) -> list[int]:
    """An attribute of several integers; none where it is missing."""
    return [int(value) for value in values or ()]


def are_bytes(out: Grid, *operands: Quantized) -> bool:
    """Whether operands are bytes of the result's type, one scale and zero point each."""
    return all(each.grid.is_byte and each.grid.dtype == out.dtype for each in operands)
