"""What a Relax call says: its operator, its attributes, the shapes and dtypes of its operands.

Nothing here runs an operator or knows which there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
from tvm import relax

from stages.dialect.dtypes import parse
from stages.dialect.levels import Levels
from stages.dialect.padding import as_attributes, from_attributes
from stages.dialect.zero_point import as_attribute, from_attribute
from stages.nodes import Call, Op, TensorType, TupleType

BYTES = ("int8", "uint8")
Attrs = Mapping[str, Any]
"""Attributes of a call by name: numbers, texts, lists of numbers, and the values of `zero_point.py`
and `padding.py`."""


class Shaped(Protocol):
    """A tensor type of a graph, a variable's or a tensor expression."""

    @property
    def shape(self) -> Sequence[Any]:
        """The extents of the tensor."""


class Typed(Protocol):
    """A tensor type of which the type of the elements is asked."""

    @property
    def dtype(self) -> Any:
        """What `str` makes the text of."""


def attributes(call: Call) -> dict[str, Any]:
    """The attributes of a dialect call as plain Python values, or as `Attrs` says."""
    plain = {str(key): _plain(value) for key, value in (call.attrs or {}).items()}
    return {name: from_attribute(name, value) for name, value in from_attributes(plain).items()}


def stated(attrs: Attrs) -> dict[str, Any]:
    """What a Relax call states of attributes: what `attributes` reads again."""
    return {name: as_attribute(name, value) for name, value in as_attributes(attrs).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):
        return value.value
    return [_plain(element) for element in value]


def operand_levels(call: Call) -> tuple[Levels, Levels]:
    """What data and weights of a product of levels may hold, by their types and zero points."""
    attrs, (data, weight) = attributes(call), (dtype_of(argument.ty) for argument in call.args)
    return (
        Levels.of_type(data, attrs["data_zero_point"]),
        Levels.of_type(weight, attrs["weight_zero_point"]),
    )


def is_op(expr: object, *names: str) -> TypeGuard[Call]:
    """Whether `expr` calls one of these Relax operators (full names, see `names.py`)."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in names


def shape_of(tensor_type: Shaped) -> tuple[int, ...]:
    """The static shape of a tensor type."""
    return tuple(int(extent) for extent in tensor_type.shape)


def dtype_of(tensor_type: Typed) -> str:
    """The element type of a tensor type, such as `uint2`."""
    return str(tensor_type.dtype)


def tensor_types(kind: TensorType | TupleType) -> list[TensorType]:
    """The tensor types in a type: itself, or those of a tuple."""
    return list(kind.fields) if isinstance(kind, TupleType) else [kind]


def tensor_type(shape: Sequence[int], dtype: str) -> TensorType:
    """A Relax tensor type of static shape."""
    return relax.TensorType(tuple(int(extent) for extent in shape), dtype)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype that holds a dialect dtype (`DType.storage`)."""
    return parse(dtype).storage
