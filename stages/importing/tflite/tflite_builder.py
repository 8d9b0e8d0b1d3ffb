"""The Relax function of a TensorFlow Lite graph under construction, as converters see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.builder import ModelBuilder
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.tflite.tflite_graph import Array, Graph, Operator, Quantization, Tensor
from stages.importing.unsupported import UnsupportedError
from stages.kinds import Model
from stages.numerics.bipolar import BIT

READABLE = frozenset(
    ["float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool"]
)
"""Types a tensor of the model may have."""


class TfliteBuilder:
    """One Relax function under construction.

    A tensor of the file is either a constant (a NumPy array) or a Relax variable. Constants become
    parameters only when an operator reads them, under their names in the file. Shapes are those
    that Relax infers from the inputs; recorded shapes of computed tensors are not read, as LiteRT
    does not read them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        computed = {index for operator in graph.operators for index in operator.outputs}
        computed.update(graph.inputs)
        self.constants: dict[int, Array] = {
            tensor.index: tensor.data if tensor.data is not None else _empty(tensor)
            for tensor in graph.tensors
            if tensor.dtype in READABLE
            and (tensor.data is not None or 0 in tensor.shape)
            and tensor.index not in computed
        }
        self.variables: dict[int, Any] = {}
        self._parameters: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._builder = ModelBuilder()
        self._values: dict[Any, Any] = {}

    def add_input(self, index: int, shape: Sequence[int]) -> None:
        """Declare a graph input."""
        tensor = self.tensor(index)
        self.variables[index] = self._builder.input(tensor.name, shape, tensor.dtype)

    def tensor(self, index: int) -> Tensor:
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

    def knows(self, index: int) -> bool:
        """Whether a tensor has a value by now."""
        return index in self.constants or index in self.variables

    def shape(self, index: int) -> tuple[int, ...]:
        """The static shape of a tensor that has a value."""
        if index in self.constants:
            return self.constants[index].shape
        return shape_of(self.variables[self.tensor(index).index].ty)

    def dtype(self, index: int) -> str:
        """The type a tensor is stored in."""
        return self.tensor(index).dtype

    def is_constant(self, index: int) -> bool:
        """Whether a tensor's value is known at import."""
        return index in self.constants

    def constant(self, index: int) -> Array:
        """The value of a tensor that must be constant."""
        if index not in self.constants:
            name = self.tensor(index).name
            raise UnsupportedError(f"needs '{name}' to be constant; the graph computes it")
        return self.constants[index]

    def integers(self, index: int) -> list[int]:
        """The values of a constant vector of integers, such as a shape."""
        value = self.constant(index)
        if value.dtype.kind not in "iu":
            raise UnsupportedError(f"has {value.dtype} values where integers are needed")
        return [int(each) for each in value.ravel()]

    def quantization(self, index: int) -> Quantization:
        """Scales and zero points of a tensor that must be quantized."""
        tensor = self.tensor(index)
        if tensor.quantization is None:
            raise UnsupportedError(
                f"reads or writes '{tensor.name}' of {tensor.dtype} without a scale"
            )
        return tensor.quantization

    def affine(self, index: int) -> tuple[np.float32, int]:
        """The scale and the zero point of a tensor quantized as a whole."""
        found = self.quantization(index)
        if not found.is_per_tensor:
            name = self.tensor(index).name
            raise UnsupportedError(
                f"reads or writes '{name}' with {found.scale.size} scales; one is accepted"
            )
        return np.float32(found.scale[0]), int(found.zero_point[0])

    def read(self, index: int, shape: Sequence[int] | None = None) -> Any:
        """The Relax variable of a tensor; a constant is seen in `shape` where one is given."""
        if index not in self.constants:
            variable = self.variables[self.tensor(index).index]
            if dtype_of(variable.ty) == BIT:
                raise UnsupportedError("reads bits that Larq packs; only its operators can")
            return variable
        value = self.constants[index]
        value = value if shape is None else value.reshape(tuple(shape))
        key = (index, value.shape)
        if key not in self._parameters:
            self._parameters[key] = self.parameter(self.tensor(index).name, value)
        return self._parameters[key]

    def parameter(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """A new parameter; UnsupportedError for one without elements, or not finite.

        `dtype` is the dialect's where it is below 8 bits.
        """
        if not value.size:
            raise UnsupportedError(f"reads '{name}', which has no elements")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise UnsupportedError(f"reads '{name}', which holds infinities or NaN")
        return self._builder.tensor(name, value, dtype)

    def emit(self, call: Any, name: str) -> Any:
        """Bind a Relax expression to a variable called `name`; infers and checks its type."""
        try:
            variable = self._builder.emit(call, name)
        except (ValueError, TypeError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
            raise UnsupportedError(f"has operands that do not fit together: {reason}") from error
        for kind in getattr(variable.ty, "fields", [variable.ty]):
            _check_size(shape_of(kind))
        self._values[variable] = call
        return variable

    def value_of(self, variable: Any) -> Any:
        """The expression that a variable was bound to, or None."""
        return self._values.get(variable)

    def finish(self, outputs: Sequence[int], attributes: Mapping[str, Any]) -> Model:
        """The model whose `main` computes these tensors (a tuple if several)."""
        results = [self.read(index) for index in outputs]
        names = [self.graph.tensors[index].name for index in outputs]
        return self._builder.model(results, names, attrs=attributes)

    def check_result(self, operator: Operator, position: int, dtype: str) -> None:
        """UnsupportedError unless an operator's result has the type that the file states.

        Bits, one a channel, stand for the int32 that Larq packs them into.
        """
        stated = self.dtype(operator.outputs[position])
        if dtype != stated and (dtype, stated) != (BIT, "int32"):
            raise UnsupportedError(f"gives {dtype}, but the file states {stated}")

    def typed(self, value: Any) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of a variable or an array."""
        if isinstance(value, np.ndarray):
            return value.shape, str(value.dtype)
        return shape_of(value.ty), dtype_of(value.ty)


def _empty(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype)


def _check_size(shape: tuple[int, ...]) -> None:
    if not all(extent > 0 for extent in shape) or prod(shape) > MAX_ELEMENTS:
        raise UnsupportedError(
            f"gives the shape {list(shape)}; every extent must be at least 1 and the whole "
            f"at most {MAX_ELEMENTS:,} elements"
        )
