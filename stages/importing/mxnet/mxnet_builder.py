"""The walk over a symbol: every node's outputs as constants or Relax variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of
from stages.importing.emitter import Emitter
from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]
Value = Any
"""A NumPy array known at import, or a Relax variable."""
Values = list[Value]
"""What a node gives: its outputs in order."""


class Walk:
    """A symbol under conversion: what each output of each node is.

    A quantized tensor is three outputs: integers, then the smallest and largest real value they
    can stand for. Those two are scalars: constants where the model is calibrated, else computed
    by the graph.
    """

    def __init__(self, symbol: Symbol, params: Mapping[str, Array]) -> None:
        self.symbol = symbol
        self.params = params
        self.emitter = Emitter()
        self.values: dict[tuple[int, int], Value] = {}

    def is_known(self, node: Node) -> bool:
        """Whether everything a node reads could be converted."""
        return all(pair in self.values for pair in node.inputs)

    def value(self, node: Node, position: int) -> Value:
        """What a node reads at a position; UnsupportedError where it reads less."""
        if position >= len(node.inputs):
            raise UnsupportedError(f"has {len(node.inputs)} inputs; more are expected")
        return self.values[node.inputs[position]]

    def constant(self, node: Node, position: int) -> Array:
        """An input that must be known at import."""
        value = self.value(node, position)
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"needs input {position} to be a parameter; it is computed")
        return value

    def vector(self, node: Node, position: int, length: int) -> Array:
        """A float32 parameter [length]."""
        value = self.constant(node, position).astype(np.float32)
        if value.shape != (length,):
            raise UnsupportedError(
                f"has a parameter of shape {list(value.shape)}; [{length}] is expected"
            )
        return value

    def read(self, node: Node, position: int) -> Any:
        """An input as a Relax expression."""
        value = self.value(node, position)
        if isinstance(value, np.ndarray):
            source = self.symbol.nodes[node.inputs[position][0]]
            return self.emitter.tensor(source.name, value)
        return value

    def tensor(self, value: Value, name: str) -> Any:
        """A value as a Relax expression, a constant as the parameter `name`."""
        return self.emitter.tensor(name, value) if isinstance(value, np.ndarray) else value

    def emit(self, call: Any, name: str) -> Any:
        """Bind a Relax call."""
        return self.emitter.emit(call, name)

    def shape(self, value: Value) -> tuple[int, ...]:
        """A value's shape."""
        return value.shape if isinstance(value, np.ndarray) else shape_of(value.ty)

    def dtype(self, value: Value) -> str:
        """A value's type."""
        return str(value.dtype) if isinstance(value, np.ndarray) else dtype_of(value.ty)

    def image(self, node: Node) -> tuple[int, ...]:
        """The shape of a node's data, which must be [N, C, H, W]."""
        shape = self.shape(self.value(node, 0))
        if len(shape) != 4:
            raise UnsupportedError(f"reads a tensor of rank {len(shape)}; [N, C, H, W] is accepted")
        layout = node.attributes.text("layout", "NCHW")
        if layout != "NCHW":
            raise UnsupportedError(f"has the layout {layout}; NCHW is accepted")
        return shape

    def scalar(self, node: Node, position: int) -> Value:
        """A range's end: float32 []."""
        value = self.value(node, position)
        if not isinstance(value, np.ndarray):
            return value
        if value.size != 1:
            raise UnsupportedError(f"has a range's end of shape {list(value.shape)}; one number")
        return np.asarray(value.reshape(()), np.float32)


class Scalars:
    """float32 arithmetic of scalars and channels, at import where all operands are known."""

    def __init__(self, walk: Walk, name: str) -> None:
        """Variables and parameters are called `name` and a number."""
        self._walk = walk
        self._name = name

    def divide(self, left: Value, right: Value) -> Value:
        """`left / right`."""
        return self._apply(relax.op.divide, np.divide, left, right)

    def multiply(self, left: Value, right: Value) -> Value:
        """`left * right`."""
        return self._apply(relax.op.multiply, np.multiply, left, right)

    def add(self, left: Value, right: Value) -> Value:
        """`left + right`."""
        return self._apply(relax.op.add, np.add, left, right)

    def minimum(self, left: Value, right: Value) -> Value:
        """The smaller."""
        return self._apply(relax.op.minimum, np.minimum, left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """The larger."""
        return self._apply(relax.op.maximum, np.maximum, left, right)

    def absolute(self, value: Value) -> Value:
        """The size."""
        return self._apply(relax.op.abs, np.abs, value)

    def negative(self, value: Value) -> Value:
        """The opposite."""
        return self._apply(relax.op.negative, np.negative, value)

    def largest(self, low: Value, high: Value) -> Value:
        """The largest size in a range, `MaxAbs` of MXNet's sources."""
        return self.maximum(self.absolute(low), self.absolute(high))

    def _apply(self, relax_op: Any, numpy_op: Any, *operands: Value) -> Value:
        if all(isinstance(operand, np.ndarray) for operand in operands):
            with np.errstate(all="ignore"):
                return np.asarray(numpy_op(*operands), np.float32)
        expressions: Sequence[Any] = [
            self._walk.tensor(operand, f"{self._name}.scale") for operand in operands
        ]
        return self._walk.emit(relax_op(*expressions), f"{self._name}.scale")


def real(value: float) -> Array:
    """A float32 scalar."""
    return np.asarray(value, np.float32)
