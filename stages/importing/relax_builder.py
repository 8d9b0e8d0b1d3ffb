"""Building the imported Relax function: values of the source graph, parameters, bindings.

Whatever an operator gives is checked as it is bound: its shape is static, holds at least one
element in every direction and is small enough for memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of, storage_dtype, tensor_types
from stages.graph.builder import ModelBuilder
from stages.importing.limits import SHAPE_RULE, is_accepted_shape
from stages.importing.unsupported import UnsupportedError
from stages.kinds import Model
from stages.nodes import Expr, Var

Array = np.ndarray[Any, Any]
Value = Array | Var
"""What a tensor of the source graph is: known at import, or computed by the package."""
Key = TypeVar("Key")
"""How a format tells the tensors of a graph apart: by name, by number, by node and output."""

PACKED = ("int4", "uint4", "int2", "uint2")
"""Types below a byte: stored one to a byte, typed as they are."""


class RelaxBuilder(Generic[Key]):
    """One `main` under construction.

    A tensor of the source graph is either a constant (a NumPy array) or a Relax variable. Constants
    become parameters when an operator first reads them, under their names in the file. `accepts`
    lists the element types that tensors may have (none: any), `is_finite` tells whether infinities
    and NaN are refused in parameters.
    """

    def __init__(self, accepts: Sequence[str] = (), *, is_finite: bool = True) -> None:
        self.accepts = tuple(accepts)
        self.constants: dict[Key, Array] = {}
        self.variables: dict[Key, Var] = {}
        self._is_finite = is_finite
        self._parameters: dict[tuple[str, tuple[int, ...], str], tuple[Array, Var]] = {}
        self._builder = ModelBuilder()

    def name_of(self, key: Key) -> str:
        """What a tensor is called in the file."""
        return str(key)

    def add_input(self, key: Key, shape: Sequence[int], dtype: str) -> None:
        """Declare a graph input."""
        self.variables[key] = self._builder.input(self.name_of(key), shape, dtype)

    def define(self, key: Key, value: Value) -> None:
        """Say what a tensor of the source graph is."""
        if isinstance(value, np.ndarray):
            self.variables.pop(key, None)
            self.constants[key] = value
        else:
            self.constants.pop(key, None)
            self.variables[key] = value

    def is_defined(self, key: Key) -> bool:
        """Whether a tensor has a value by now."""
        return key in self.constants or key in self.variables

    def is_constant(self, key: Key) -> bool:
        """Whether a tensor's value is known at import."""
        return key in self.constants

    def value(self, key: Key) -> Value:
        """A tensor that has a value: an array where it is constant, else a variable."""
        return self.constants[key] if key in self.constants else self.variables[key]

    def shape(self, key: Key) -> tuple[int, ...]:
        """The static shape of a tensor that has a value."""
        return value_shape(self.value(key))

    def dtype(self, key: Key) -> str:
        """The element type of a tensor that has a value."""
        return value_dtype(self.value(key))

    def known(self, key: Key) -> Array | None:
        """A tensor's value where it is known at import, or None."""
        return self.constants.get(key)

    def constant(self, key: Key) -> Array:
        """The value of a tensor that must be known at import."""
        value = self.known(key)
        if value is None:
            raise UnsupportedError(
                f"needs '{self.name_of(key)}' to be constant; the graph computes it"
            )
        return value

    def read(self, key: Key, shape: Sequence[int] | None = None) -> Var:
        """The Relax variable of a tensor; a constant is seen in `shape` where one is given."""
        if key not in self.constants:
            return self.variables[key]
        value = self.constants[key]
        value = value if shape is None else value.reshape(tuple(shape))
        return self.parameter(self.name_of(key), value)

    def parameter(self, name: str, value: Array, dtype: str | None = None) -> Var:
        """The parameter that holds `value`; the same name and value give the same parameter.

        `dtype` is the dialect dtype where it is below 8 bits.
        """
        key = (name, value.shape, dtype or str(value.dtype))
        held = self._parameters.get(key)
        if held is not None and (held[0] is value or np.array_equal(held[0], value)):
            return held[1]
        variable = self.tensor(name, value, dtype)
        self._parameters[key] = (value, variable)
        return variable

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Var:
        """A new parameter that holds `value`, also where another one has this name."""
        kind = dtype or str(value.dtype)
        if self.accepts and kind not in self.accepts:
            raise UnsupportedError(f"reads '{name}' of type {kind}; {self._accepted()}")
        if self._is_finite and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise UnsupportedError(f"reads '{name}', which holds infinities or NaN")
        if kind in PACKED:
            value = value.astype(storage_dtype(kind))
        variable: Var = self._builder.tensor(name, value, kind)
        return variable

    def emit(self, call: Expr, name: str) -> Var:
        """Bind a Relax call to a variable called `name`; infers and checks its type."""
        try:
            variable: Var = self._builder.emit(call, name)
            kinds = [(shape_of(kind), dtype_of(kind)) for kind in tensor_types(variable.ty)]
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise UnsupportedError(
                f"has operands {_operands(call)}, which do not fit together"
            ) from error
        for shape, dtype in kinds:
            if not is_accepted_shape(shape):
                raise UnsupportedError(f"gives the shape {list(shape)}; {SHAPE_RULE}")
            if len(self.accepts) == 1 and dtype not in self.accepts:
                raise UnsupportedError(f"gives {dtype}; {self._accepted()}")
        return variable

    def reshaped(self, value: Var, shape: Sequence[int], name: str) -> Var:
        """`value` in another shape, itself if it has it already."""
        if shape_of(value.ty) == tuple(shape):
            return value
        return self.emit(relax.op.reshape(value, tuple(shape)), name)

    def finish(self, outputs: Mapping[Key, str], attributes: Mapping[str, Any]) -> Model:
        """The model whose `main` computes these tensors, under these names, in this order."""
        results = [self.read(key) for key in outputs]
        return self._builder.model(results, [*outputs.values()], attrs=attributes)

    def _accepted(self) -> str:
        return f"{self.accepts[0]} is accepted" if len(self.accepts) == 1 else "not accepted"


def value_shape(value: Value) -> tuple[int, ...]:
    """The shape of an array or a variable."""
    return value.shape if isinstance(value, np.ndarray) else shape_of(value.ty)


def value_dtype(value: Value) -> str:
    """The element type of an array or a variable."""
    return str(value.dtype) if isinstance(value, np.ndarray) else dtype_of(value.ty)


def _operands(call: Expr) -> str:
    """Types and shapes of a call's operands, for a message."""
    kinds = [getattr(operand, "ty", None) for operand in getattr(call, "args", ())]
    tensors = [kind for kind in kinds if isinstance(kind, relax.TensorType)]
    shown = " and ".join(f"{dtype_of(kind)} {list(shape_of(kind))}" for kind in tensors)
    return shown or "of several shapes"
