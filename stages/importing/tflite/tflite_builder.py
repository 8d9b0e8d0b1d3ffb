"""The Relax function of a TensorFlow Lite graph under construction, as converters see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of
from stages.importing.relax_builder import RelaxBuilder, Value, value_dtype
from stages.importing.tflite.tflite_graph import Array, AxisQuantization, Graph, Operator, Tensor
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Expr, Var
from stages.numerics.bipolar import BIT
from stages.numerics.quantization import Quantization

READABLE = frozenset(
    ["float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool"]
)
"""Types a tensor of the model may have."""


class TfliteBuilder(RelaxBuilder[int]):
    """A function whose tensors are known by their numbers in the file.

    Shapes are those that Relax infers from the inputs; recorded shapes of computed tensors are not
    read, as LiteRT does not read them.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        computed = {index for operator in graph.operators for index in operator.outputs}
        computed.update(graph.inputs)
        self.constants = {
            tensor.index: tensor.data if tensor.data is not None else _empty(tensor)
            for tensor in graph.tensors
            if tensor.dtype in READABLE
            and (tensor.data is not None or 0 in tensor.shape)
            and tensor.index not in computed
        }
        self._expressions: dict[Var, Expr] = {}

    def name_of(self, key: int) -> str:
        """What a tensor is called in the file."""
        return self.graph.tensors[key].name

    def add_input(self, key: int, shape: Sequence[int], dtype: str) -> None:
        """Declare a graph input; UnsupportedError where none of it can be used."""
        super().add_input(key, shape, self.stated(key).dtype)

    def stated(self, index: int) -> Tensor:
        """What the file says of a tensor; UnsupportedError where none of it can be used."""
        tensor = self.graph.tensors[index]
        if tensor.trouble:
            raise UnsupportedError(f"reads or writes '{tensor.name}', which {tensor.trouble}")
        if tensor.dtype not in READABLE:
            raise UnsupportedError(
                f"reads or writes '{tensor.name}' of type {tensor.dtype}; "
                f"accepted: {', '.join(sorted(READABLE))}"
            )
        return tensor

    def dtype(self, key: int) -> str:
        """The type a tensor is stored in."""
        return self.stated(key).dtype

    def integers(self, index: int) -> list[int]:
        """The values of a constant vector of integers, such as a shape."""
        value = self.constant(index)
        if value.dtype.kind not in "iu":
            raise UnsupportedError(f"has {value.dtype} values where integers are needed")
        return [int(each) for each in value.ravel()]

    def axis_quantization(self, index: int) -> AxisQuantization:
        """Scales and zero points of a tensor that must be quantized."""
        tensor = self.stated(index)
        if tensor.quantization is None:
            raise UnsupportedError(
                f"reads or writes '{tensor.name}' of {tensor.dtype} without a scale"
            )
        return tensor.quantization

    def quantization(self, index: int) -> Quantization:
        """What the integers of a tensor mean that must be quantized as a whole."""
        scales = self.axis_quantization(index).scale.size
        tensor = self.stated(index)
        if tensor.whole is None:
            raise UnsupportedError(
                f"reads or writes '{tensor.name}' with {scales} scales; one is accepted"
            )
        return tensor.whole

    def read(self, key: int, shape: Sequence[int] | None = None) -> Var:
        """The Relax variable of a tensor; only Larq's operators read bits that it packs."""
        if key in self.variables and dtype_of(self.variables[key].ty) == BIT:
            raise UnsupportedError("reads bits that Larq packs; only its operators can")
        return super().read(key, shape)

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Var:
        """A new parameter; UnsupportedError for one without elements, or not finite."""
        if not value.size:
            raise UnsupportedError(f"reads '{name}', which has no elements")
        return super().tensor(name, value, dtype)

    def emit(self, call: Expr, name: str) -> Var:
        """Bind a Relax expression to a variable called `name`; infers and checks its type."""
        variable = super().emit(call, name)
        self._expressions[variable] = call
        return variable

    def expression_of(self, variable: Var | None) -> Any:
        """The expression that a variable was bound to, or None."""
        return None if variable is None else self._expressions.get(variable)

    def check_result(self, operator: Operator, position: int, value: Value) -> None:
        """UnsupportedError unless an operator's result has the type that the file states.

        Bits, one a channel, stand for the int32 that Larq packs them into.
        """
        dtype, stated = value_dtype(value), self.dtype(operator.outputs[position])
        if dtype != stated and (dtype, stated) != (BIT, "int32"):
            raise UnsupportedError(f"gives {dtype}, but the file states {stated}")


def _empty(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype)
