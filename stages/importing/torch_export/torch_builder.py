"""The walk over an exported program: what each value of its graph is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of
from stages.importing.emitter import Emitter
from stages.importing.torch_export.exported_program import Node, Program, Ref
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]
Value = Any
"""A NumPy array or whole number known at import, or a Relax variable."""
_MISSING = object()


class Walk:
    """A program under conversion; constants become parameters when an operator reads them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.emitter = Emitter()
        self.values: dict[str, Value] = dict(program.constants)
        self.viewed: set[str] = set()
        """Names that may share memory with others."""

    def argument(self, node: Node, name: str, default: Any = _MISSING) -> Any:
        """An argument with references to whole numbers resolved, or the schema's default."""
        value = node.arguments.get(name, default)
        if value is _MISSING:
            raise UnsupportedError(f"lacks the argument '{name}'")
        if isinstance(value, list):
            return [self._number(each) for each in value]
        return self._number(value)

    def _number(self, value: Any) -> Any:
        if isinstance(value, Ref) and isinstance(self.values.get(value.name), int):
            return self.values[value.name]
        return value

    def integers(self, node: Node, name: str, default: Any = _MISSING) -> list[int]:
        """A list of whole numbers."""
        value = self.argument(node, name, default)
        values = value if isinstance(value, list) else [value]
        if not all(type(each) is int for each in values):
            raise UnsupportedError(
                f"has {name} = {value}; whole numbers known at export are needed"
            )
        return values

    def number(self, node: Node, name: str, default: Any = _MISSING) -> float:
        """A number."""
        value = self.argument(node, name, default)
        if not isinstance(value, (int, float)):
            raise UnsupportedError(f"has {name} = {value!r}; a number is expected")
        return value

    def is_number(self, node: Node, name: str) -> bool:
        """Whether an argument is a number, not a tensor."""
        return isinstance(self.argument(node, name, None), (int, float))

    def whole(self, node: Node, name: str, default: Any = _MISSING) -> int:
        """One whole number."""
        return self.integers(node, name, default)[0]

    def value(self, node: Node, name: str) -> Value:
        """The value of a tensor argument."""
        value = self.argument(node, name)
        if not isinstance(value, Ref) or value.name not in self.values:
            raise UnsupportedError(f"has no tensor '{name}'")
        return self.values[value.name]

    def has(self, node: Node, name: str) -> bool:
        """Whether an argument is given and not None."""
        return node.arguments.get(name) is not None

    def constant(self, node: Node, name: str) -> Array:
        """A tensor argument that must be known at import."""
        value = self.value(node, name)
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"needs '{name}' to be a parameter; the graph computes it")
        return value

    def read(self, node: Node, name: str) -> Any:
        """A tensor argument as a Relax expression; a number as a float32 parameter."""
        value = self.argument(node, name)
        if isinstance(value, Ref):
            return self.variable(value.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.emitter.tensor(f"{node.name}.{name}", np.asarray(value, np.float32))
        raise UnsupportedError(f"has {name} = {value!r}; a tensor is expected")

    def channels(self, node: Node, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor argument in another shape, a parameter already reshaped."""
        value = self.value(node, name)
        if isinstance(value, np.ndarray):
            if value.size != np.prod(shape):
                raise UnsupportedError(f"has {name} of shape {list(value.shape)}")
            return self.tensor(value.astype(np.float32).reshape(shape), f"{node.name}.{name}_view")
        return self.reshape(value, shape, f"{node.name}.{name}_view")

    def variable(self, name: str) -> Any:
        """A named value as a Relax expression."""
        value = self.values[name]
        if isinstance(value, np.ndarray):
            if value.dtype == np.float64:
                value = value.astype(np.float32)
            return self.emitter.tensor(name, value)
        return value

    def tensors(self, node: Node, name: str) -> list[Any]:
        """A list of tensors."""
        value = self.argument(node, name)
        if not isinstance(value, list) or not all(isinstance(each, Ref) for each in value):
            raise UnsupportedError(f"has {name} that is no list of tensors")
        return [self.variable(each.name) for each in value]

    def shape(self, value: Value) -> tuple[int, ...]:
        """A value's shape."""
        return value.shape if isinstance(value, np.ndarray) else shape_of(value.ty)

    def dtype(self, value: Value) -> str:
        """A value's type."""
        return str(value.dtype) if isinstance(value, np.ndarray) else dtype_of(value.ty)

    def emit(self, call: Any, name: str) -> Any:
        """Bind a Relax call."""
        return self.emitter.emit(call, name)

    def tensor(self, value: Array, name: str) -> Any:
        """A parameter."""
        return self.emitter.tensor(name, value)

    def reshape(self, value: Any, shape: tuple[int, ...], name: str) -> Any:
        """A value in another shape, or as it is."""
        if self.shape(value) == shape:
            return value
        if min(shape, default=1) < 1 or np.prod(shape) != np.prod(self.shape(value)):
            raise UnsupportedError(f"reshapes {list(self.shape(value))} to {list(shape)}")
        return self.emit(relax.op.reshape(value, shape), name)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the start."""
        if not -rank <= axis < rank:
            raise UnsupportedError(f"has axis {axis} for {rank} dimensions")
        return axis % rank

    def is_known(self, node: Node) -> bool:
        """Whether everything a node reads could be converted."""
        return all(name in self.values for name in _names(node.arguments))


def _names(arguments: Mapping[str, Any]) -> set[str]:
    found = set()
    for value in arguments.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Ref):
                found.add(each.name)
    return found
