"""The Relax function of an MXNet symbol under construction, as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.mxnet.symbol import Node, Symbol
from stages.importing.relax_builder import RelaxBuilder, Value, value_shape
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var

Array = np.ndarray[Any, Any]
Output = tuple[int, int]
"""A node's position, and which of its outputs."""
Values = list[Value]
"""What a node gives: its outputs in order."""


class MxnetBuilder(RelaxBuilder[Output]):
    """A function whose tensors are outputs of a symbol's nodes.

    A quantized tensor is three outputs: integers, then the smallest and largest real value they
    can stand for. Those two are scalars: constants where the model is calibrated, else computed
    by the graph.
    """

    def __init__(self, symbol: Symbol) -> None:
        super().__init__()
        self.symbol = symbol

    def name_of(self, key: Output) -> str:
        """The name of the node whose output it is."""
        return self.symbol.nodes[key[0]].name

    def value_at(self, node: Node, position: int) -> Value:
        """What a node reads at a position; UnsupportedError where it reads less."""
        if position >= len(node.inputs):
            raise UnsupportedError(f"has {len(node.inputs)} inputs; more are expected")
        return self.value(node.inputs[position])

    def constant_at(self, node: Node, position: int) -> Array:
        """An input that must be known at import."""
        value = self.value_at(node, position)
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"needs input {position} to be constant; the graph computes it")
        return value

    def read_at(self, node: Node, position: int) -> Var:
        """An input as a Relax variable."""
        self.value_at(node, position)
        return self.read(node.inputs[position])

    def vector(self, node: Node, position: int, length: int) -> Array:
        """A float32 parameter [length]."""
        value = self.constant_at(node, position).astype(np.float32)
        if value.shape != (length,):
            raise UnsupportedError(
                f"has a parameter of shape {list(value.shape)}; [{length}] is expected"
            )
        return value

    def held(self, value: Value, name: str) -> Var:
        """A value as a Relax variable, a constant as the parameter `name`."""
        return self.parameter(name, value) if isinstance(value, np.ndarray) else value

    def image(self, node: Node) -> tuple[int, ...]:
        """The shape of a node's data, which must be [N, C, H, W]."""
        shape = value_shape(self.value_at(node, 0))
        if len(shape) != 4:
            raise UnsupportedError(f"reads a tensor of rank {len(shape)}; [N, C, H, W] is accepted")
        layout = node.attributes.text("layout", "NCHW")
        if layout != "NCHW":
            raise UnsupportedError(f"has the layout {layout}; NCHW is accepted")
        return shape

    def range_bound(self, node: Node, position: int) -> Value:
        """The smallest or largest value of a quantized tensor, an operand: float32 []."""
        value = self.value_at(node, position)
        if not isinstance(value, np.ndarray):
            return value
        if value.size != 1:
            raise UnsupportedError(
                f"has a range bound of shape {list(value.shape)}; one number is accepted"
            )
        return np.asarray(value.reshape(()), np.float32)

    def to_nhwc(self, x: Var, name: str) -> Var:
        """[N, C, H, W] as [N, H, W, C]."""
        return self.emit(relax.op.permute_dims(x, [0, 2, 3, 1]), f"{name}.nhwc")

    def to_nchw(self, x: Var, name: str) -> Var:
        """[N, H, W, C] as [N, C, H, W]."""
        return self.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), name)


class Scalars:
    """float32 arithmetic of scalars and channels, at import where all operands are known."""

    def __init__(self, builder: MxnetBuilder, name: str) -> None:
        """Variables and parameters are called `name` and a number."""
        self._builder = builder
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
        """The smaller of two values."""
        return self._apply(relax.op.minimum, np.minimum, left, right)

    def maximum(self, left: Value, right: Value) -> Value:
        """The larger of two values."""
        return self._apply(relax.op.maximum, np.maximum, left, right)

    def absolute(self, value: Value) -> Value:
        """The magnitude."""
        return self._apply(relax.op.abs, np.abs, value)

    def negative(self, value: Value) -> Value:
        """The negated value."""
        return self._apply(relax.op.negative, np.negative, value)

    def largest(self, low: Value, high: Value) -> Value:
        """The largest size in a range, `MaxAbs` of MXNet's sources."""
        return self.maximum(self.absolute(low), self.absolute(high))

    def _apply(self, relax_op: Any, numpy_op: Any, *operands: Value) -> Value:
        if all(isinstance(operand, np.ndarray) for operand in operands):
            with np.errstate(all="ignore"):
                return np.asarray(numpy_op(*operands), np.float32)
        expressions: Sequence[Var] = [
            self._builder.held(operand, f"{self._name}.scale") for operand in operands
        ]
        return self._builder.emit(relax_op(*expressions), f"{self._name}.scale")


def real(value: float) -> Array:
    """A float32 scalar."""
    return np.asarray(value, np.float32)


Converter = Callable[[MxnetBuilder, Node], Values]
"""Makes a node Relax; see `mxnet_converters`."""
