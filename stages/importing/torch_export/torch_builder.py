"""The Relax function of an exported program under construction, as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stages.importing.relax_builder import RelaxBuilder, Value, value_shape
from stages.importing.torch_export.exported_program import Node, Program, Ref
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var

Array = np.ndarray[Any, Any]
_MISSING = object()


class TorchBuilder(RelaxBuilder[str]):
    """A function whose tensors are known by their names in the program.

    A program also computes whole numbers, such as extents; they are known at import.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.constants = dict(program.constants)
        self.numbers: dict[str, int] = {}
        self.viewed: set[str] = set()
        """Names that may share memory with others."""

    def define(self, key: str, value: Value | int) -> None:
        """Say what a tensor or a number is."""
        if isinstance(value, int):
            self.numbers[key] = value
        else:
            super().define(key, value)

    def is_defined(self, key: str) -> bool:
        """Whether a tensor or a number has a value by now."""
        return key in self.numbers or super().is_defined(key)

    def is_constant(self, key: str) -> bool:
        """Whether a value is known at import."""
        return key in self.numbers or super().is_constant(key)

    def value(self, key: str) -> Value:
        """A tensor that has a value; a number is an array without axes."""
        return np.asarray(self.numbers[key]) if key in self.numbers else super().value(key)

    def argument(self, node: Node, name: str, default: Any = _MISSING) -> Any:
        """An argument with references to whole numbers resolved, or the schema's default."""
        value = node.arguments.get(name, default)
        if value is _MISSING:
            raise UnsupportedError(f"lacks the argument '{name}'")
        if isinstance(value, list):
            return [self._number(each) for each in value]
        return self._number(value)

    def _number(self, value: Any) -> Any:
        if isinstance(value, Ref) and value.name in self.numbers:
            return self.numbers[value.name]
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

    def value_at(self, node: Node, name: str) -> Value:
        """The value of a tensor argument."""
        value = self.argument(node, name)
        if not isinstance(value, Ref) or not self.is_defined(value.name):
            raise UnsupportedError(f"has no tensor '{name}'")
        return self.value(value.name)

    def has(self, node: Node, name: str) -> bool:
        """Whether an argument is given and not None."""
        return node.arguments.get(name) is not None

    def constant_at(self, node: Node, name: str) -> Array:
        """A tensor argument that must be known at import."""
        value = self.value_at(node, name)
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"needs '{name}' to be constant; the graph computes it")
        return value

    def read_at(self, node: Node, name: str) -> Var:
        """A tensor argument as a Relax variable; a number as a float32 parameter."""
        value = self.argument(node, name)
        if isinstance(value, Ref):
            return self.read(value.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.parameter(f"{node.name}.{name}", np.asarray(value, np.float32))
        raise UnsupportedError(f"has {name} = {value!r}; a tensor is expected")

    def read(self, key: str, shape: Sequence[int] | None = None) -> Var:
        """The Relax variable of a tensor; a constant of float64 is rounded to float32."""
        held = self.constants.get(key)
        if held is not None and held.dtype == np.float64:
            self.constants[key] = held.astype(np.float32)
        return super().read(key, shape)

    def channels(self, node: Node, name: str, shape: tuple[int, ...]) -> Var:
        """A tensor argument in another shape, a parameter already reshaped."""
        value = self.value_at(node, name)
        if isinstance(value, np.ndarray):
            if value.size != np.prod(shape):
                raise UnsupportedError(f"has {name} of shape {list(value.shape)}")
            return self.held(value.astype(np.float32).reshape(shape), f"{node.name}.{name}_view")
        return self.in_shape(value, shape, f"{node.name}.{name}_view")

    def tensors(self, node: Node, name: str) -> list[Var]:
        """A list of tensors."""
        value = self.argument(node, name)
        if not isinstance(value, list) or not all(isinstance(each, Ref) for each in value):
            raise UnsupportedError(f"has {name} that is no list of tensors")
        return [self.read(each.name) for each in value]

    def held(self, value: Array, name: str) -> Var:
        """The parameter `name`."""
        return self.parameter(name, value)

    def in_shape(self, value: Var, shape: tuple[int, ...], name: str) -> Var:
        """A value in another shape of as many elements, or as it is."""
        old = value_shape(value)
        if old != shape and (min(shape, default=1) < 1 or np.prod(shape) != np.prod(old)):
            raise UnsupportedError(f"reshapes {list(old)} to {list(shape)}")
        return self.reshaped(value, shape, name)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the start."""
        if not -rank <= axis < rank:
            raise UnsupportedError(f"has axis {axis} for {rank} dimensions")
        return axis % rank


Converter = Callable[[TorchBuilder, Node], list[Any]]
"""Makes a node Relax; see `torch_converters`."""
