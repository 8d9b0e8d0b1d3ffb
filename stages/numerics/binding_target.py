"""Where the functions of this room put the bindings and parameters that an operator becomes."""

from __future__ import annotations

from typing import Protocol

from stages.kinds import Array
from stages.nodes import Expr, Var


class BindingTarget(Protocol):
    """Where bindings and parameters go: `ModelBuilder`, or an importer's own builder."""

    def emit(self, expr: Expr, name: str) -> Var:
        """Bind an expression to a new variable."""

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Var:
        """A new parameter."""
