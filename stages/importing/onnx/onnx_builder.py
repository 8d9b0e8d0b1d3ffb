"""Building the imported Relax function: values by source name, parameters, bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.operators import OPERATORS
from stages.graph.builder import ModelBuilder
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.unsupported import UnsupportedError
from stages.kinds import Model

Array = np.ndarray[Any, Any]


FLOAT_ONLY = ("float32",)
STORED = ("float32", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
PACKED = ("int4", "uint4", "int2", "uint2")
"""Types below a byte: stored one to a byte, typed as they are."""
WHOLE = (*STORED, "uint32", "uint64")
ANY = (*WHOLE, *PACKED)


@dataclass(frozen=True)
class Dequantized:
    """Constants that a graph dequantizes: integers, scale and zero point, which broadcast.

    The integers are seen in a shape of their own where they have one scale a block.
    """

    stored: Array
    scale: Array
    zero_point: Array
    shape: tuple[int, ...]

    @property
    def values(self) -> Array:
        """The float32 values."""
        kind = storage_dtype(str(self.stored.dtype))
        meaning = OPERATORS["relax.qnn.dequantize_linear"].meaning
        found = meaning(self.stored.astype(kind), self.scale, self.zero_point.astype(kind))
        return np.asarray(found).reshape(self.shape)


class RelaxBuilder:
    """One Relax function under construction.

    A source tensor is either a constant (a NumPy array) or a Relax variable. Constants become
    parameters only when an operator reads them, under their source names. `accepts` lists the
    element types that tensors may have, `opset` is the version of ONNX's operators. What the graph
    dequantizes of constants is a variable, as its integers are what layers read, and constant for
    operators that need the floats.
    """

    def __init__(self, accepts: Sequence[str] = FLOAT_ONLY, opset: int = 0) -> None:
        self.accepts = tuple(accepts)
        self.opset = opset
        self.constants: dict[str, Array] = {}
        self.variables: dict[str, Any] = {}
        self.dequantized: dict[str, Dequantized] = {}
        """Variables that constants are dequantized to."""
        self._parameters: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._builder = ModelBuilder()

    def add_input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        """Declare a graph input."""
        self.variables[name] = self._builder.input(name, shape, dtype)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The static shape of a source tensor."""
        if tensor in self.constants:
            return self.constants[tensor].shape
        return shape_of(self.variables[tensor].ty)

    def dtype(self, tensor: str) -> str:
        """The element type of a source tensor."""
        if tensor in self.constants:
            return str(self.constants[tensor].dtype)
        return dtype_of(self.variables[tensor].ty)

    def is_constant(self, tensor: str) -> bool:
        """Whether a source tensor's value is known at import."""
        return tensor in self.constants

    def known(self, tensor: str) -> Array | None:
        """The value of a source tensor that is constant or dequantized from constants, or None."""
        if tensor in self.dequantized:
            return self.dequantized[tensor].values
        return self.constants.get(tensor)

    def constant(self, tensor: str) -> Array:
        """The value of a source tensor that must be constant."""
        value = self.known(tensor)
        if value is None:
            raise UnsupportedError(f"needs '{tensor}' to be constant; the graph computes it")
        return value

    def read(self, tensor: str, shape: Sequence[int] | None = None) -> Any:
        """The Relax expression of a source tensor, a constant seen in `shape` where given."""
        if tensor not in self.constants:
            return self.variables[tensor]
        value = self.constants[tensor]
        return self.parameter(tensor, value if shape is None else value.reshape(tuple(shape)))

    def parameter(self, name: str, value: Array) -> Any:
        """The variable of a parameter, made when first asked for under this name and shape."""
        key = (name, value.shape)
        if key not in self._parameters:
            self._parameters[key] = self.tensor(name, value)
        return self._parameters[key]

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """A new parameter, also where another one has this name."""
        kind = dtype or str(value.dtype)
        if kind not in self.accepts:
            accepted = "float32 is accepted" if self.accepts == FLOAT_ONLY else "not accepted"
            raise UnsupportedError(f"reads '{name}' of type {kind}; {accepted}")
        if kind in PACKED:
            value = value.astype(storage_dtype(kind))
        return self._builder.tensor(name, value, kind)

    def emit(self, call: Any, name: str) -> Any:
        """Bind a Relax call to a variable called `name`; infers and checks its type."""
        try:
            var = self._builder.emit(call, name)
        except (ValueError, TypeError, RuntimeError) as error:
            tensors = [argument.ty for argument in call.args if _is_tensor(argument)]
            shown = " and ".join(str(list(shape_of(kind))) for kind in tensors)
            if len({dtype_of(kind) for kind in tensors}) > 1:
                shown += f" ({', '.join(dtype_of(kind) for kind in tensors)})"
            raise UnsupportedError(
                f"has inputs of the shapes {shown}, which do not fit together"
            ) from error
        shape = shape_of(var.ty)
        if not all(extent > 0 for extent in shape) or prod(shape) > MAX_ELEMENTS:
            raise UnsupportedError(
                f"gives the shape {list(shape)}; every extent must be at least 1 and the whole "
                f"at most {MAX_ELEMENTS:,} elements"
            )
        if self.accepts == FLOAT_ONLY and dtype_of(var.ty) != "float32":
            raise UnsupportedError(f"gives {dtype_of(var.ty)}; float32 is accepted")
        return var

    def reshaped(self, value: Any, shape: Sequence[int], name: str) -> Any:
        """`value` in another shape, itself if it has it already."""
        if shape_of(value.ty) == tuple(shape):
            return value
        return self.emit(relax.op.reshape(value, tuple(shape)), name)

    def finish(self, outputs: Sequence[str], attributes: Mapping[str, Any]) -> Model:
        """The model whose `main` computes these source tensors (a tuple if several)."""
        results = [self.variables[tensor] for tensor in outputs]
        return self._builder.model(results, outputs, attrs=attributes)


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument.ty, relax.TensorType)
