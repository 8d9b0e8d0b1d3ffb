"""Two kinds of composite: packed ones, around a synthesized micro-kernel, and plain ones.

A plain composite computes on tensors as the user sees them and is compiled from the tensor
expressions of its operators. A model that comes with integer operators is plain as a whole.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Call

PLAIN = "plain"
"""The attribute `composite` of a plain composite's function."""
FLOAT_SOURCES = ("qonnx",)
"""Numerics whose models are float graphs, quantized by the stage that carries the name."""

RESHAPES = frozenset(f"relax.{name}" for name in ("reshape", "squeeze", "expand_dims", "flatten"))


def is_plain(model: Any) -> bool:
    """Whether a model's operators are integer ones from the start."""
    numerics = model.module["main"].attrs.get("numerics")
    return numerics is not None and str(numerics) not in FLOAT_SOURCES


def is_reshape(expr: Any) -> bool:
    """Whether an expression names the memory of another tensor anew."""
    return isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in RESHAPES
