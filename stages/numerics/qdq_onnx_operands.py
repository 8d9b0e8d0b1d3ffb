"""What the rules of ONNX Runtime ask about the operands of an operator of a QDQ graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stages.nodes import Var
from stages.numerics.onnx_islands import DEFAULT, Island
from stages.numerics.qdq_rewriter import QdqRewriter
from stages.numerics.quantization import Quantization

TO_UNSIGNED = 128
"""What makes a byte of uint8 of one of int8."""


@dataclass(frozen=True)
class Bytes:
    """A tensor of bytes in the new function, and what they mean."""

    value: Var
    source: Quantization


def note(graph: QdqRewriter, layer: str, runtime: str, gives: str = DEFAULT) -> None:
    """Note that the session fuses a layer."""
    graph.islands.append(Island(layer, runtime, gives))


def offset(graph: QdqRewriter, out: Quantization, *operands: Var) -> int | None:
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


def bytes_of(graph: QdqRewriter, out: Quantization, variable: Var) -> Bytes | None:
    """What an old variable dequantizes, if that is bytes of the result's type with one scale."""
    found = graph.quantized.get(variable)
    source = None if found is None else found.grid.quantization
    if found is None or source is None or source.dtype != out.dtype:
        return None
    return Bytes(found.value, source)
