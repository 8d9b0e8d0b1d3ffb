"""Registers operators that compute every position on its own, from one piece of arithmetic.

    @elementwise("negated_sum", ["lhs", "rhs"], result=of_type("int32"))
    def negated_sum(m: Numbers, lhs: Value, rhs: Value, *, offset: int) -> Value:
        return m.cast(lhs, "int32") * -1 - m.cast(rhs, "int32") + offset

Operands broadcast as in NumPy, so a tensor [C] goes along the last axis. Operands in `whole` are
not broadcast but handed over whole, for `Numbers.look_up`; those in `rows` are tensors [T, C], of
which a position gets the `Rows` of its channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np
from tvm import te

from stages.dialect import names
from stages.dialect.calls import Attrs, dtype_of, shape_of, storage_dtype, tensor_type
from stages.dialect.let_bindings import shared
from stages.dialect.names import PREFIX
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import Builder, Infer, register

ELEMENTWISE = {
    *(names.ADD, names.SUBTRACT, names.MULTIPLY, names.DIVIDE, names.MAXIMUM, names.MINIMUM),
    *(names.SIGN, names.SQRT, names.RSQRT, names.ABS, names.NEGATIVE, names.FLOOR, names.CEIL),
    *(names.ROUND, names.SQUARE, names.RELU, names.CLIP, names.WHERE, names.ASTYPE),
    *(names.LESS, names.LESS_EQUAL, names.GREATER, names.GREATER_EQUAL, names.EQUAL),
    *(names.NOT_EQUAL, names.LOGICAL_AND, names.LOGICAL_OR, names.LOGICAL_XOR, names.LOGICAL_NOT),
}
"""Full names of the operators that passes may fuse, fold and move through transposes and reshapes:
their operands broadcast. Registering adds to it what checks no operands of its own."""

ARITHMETIC: dict[str, Callable[..., Any]] = {}
"""Full name of an operator of the dialect → its arithmetic over `Numbers`."""
WHOLE: dict[str, tuple[int, ...]] = {}
"""Full name of an operator → positions of the operands that it reads as a whole."""
WIDENED: dict[str, tuple[int, ...]] = {}
"""Full name of an operator → positions of the operands that may also come in 32 bits."""

Arithmetic = Callable[..., Any]
ResultType = Callable[[Sequence[str], Attrs], str]
"""Operand dtypes and attributes → dtype of the result."""


class Rows(Protocol):
    """An operand of which a position reads a column: the values of its channel in [T, C]."""

    @property
    def dtype(self) -> str:
        """Their type."""

    def count(self, holds: Callable[[Any], Any]) -> Any:
        """How many of them a condition holds for."""


@dataclass(frozen=True)
class NumpyRows:
    """Rows of an array, each of all channels."""

    array: np.ndarray[Any, Any]

    @property
    def dtype(self) -> str:
        """The array's dtype."""
        return str(self.array.dtype)

    def count(self, holds: Callable[[Any], Any]) -> Any:
        """The sum over all rows, in the shortest type that holds it."""
        kind = np.min_scalar_type(len(self.array))
        return sum((holds(row).astype(kind) for row in self.array), np.zeros((), kind))


@dataclass(frozen=True)
class TensorRows:
    """Rows of a TE tensor at one channel."""

    tensor: Any
    channel: Any

    @property
    def dtype(self) -> str:
        """The tensor's dtype."""
        return str(self.tensor.dtype)

    def count(self, holds: Callable[[Any], Any]) -> Any:
        """A reduction: it must be all that a tensor expression has at a position."""
        row = te.reduce_axis((0, self.tensor.shape[0]))
        return te.sum(holds(self.tensor[row, self.channel]).astype("int32"), axis=row)


def of_type(dtype: str) -> ResultType:
    """The result always has this dtype."""
    return lambda _dtypes, _attrs: dtype


def by_attribute(_dtypes: Sequence[str], attrs: Attrs) -> str:
    """The attribute `dtype` names the result's dtype."""
    return str(attrs["dtype"])


def as_first(dtypes: Sequence[str], _attrs: Attrs) -> str:
    """The result has the dtype of the first operand."""
    return dtypes[0]


def elementwise(
    name: str,
    arguments: Sequence[str],
    result: ResultType,
    *,
    accepts: Mapping[str, Sequence[str]] | None = None,
    whole: Sequence[str] = (),
    widened: Sequence[str] = (),
    rows: Sequence[str] = (),
    infer: Infer | None = None,
) -> Callable[[Arithmetic], Builder]:
    """Register `qnn.<name>`; decorates its arithmetic and returns the Relax call builder.

    `accepts` lists the dtypes an operand may have; of those in `widened` only the value counts, so
    that bytes may come as int32 or float32. The arithmetic's keyword arguments are the operator's
    attributes, and its value is cast to the result's dtype. With `rows` its value must be what
    `Rows.count` gives. An operator with an `infer` of its own reads tensors along the last axis and
    along no other, so that no pass may move it: it is not in `ELEMENTWISE`.
    """
    positions = [arguments.index(argument) for argument in whole]
    tables = [arguments.index(argument) for argument in rows]
    apart = {*positions, *tables}

    def broadcast(types: Sequence[Any], attrs: Attrs) -> Any:
        for argument, kind in zip(arguments, types, strict=True):
            accepted = (accepts or {}).get(argument)
            if accepted and dtype_of(kind) not in accepted:
                raise ValueError(
                    f"{argument} of {dtype_of(kind)}; {', '.join(accepted)} is expected"
                )
        shapes = [shape_of(kind) for i, kind in enumerate(types) if i not in apart]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"operands of shapes {listed} do not broadcast") from error
        return tensor_type(shape, result([dtype_of(kind) for kind in types], attrs))

    def decorate(arithmetic: Arithmetic) -> Builder:
        def meaning(*operands: Any, **attrs: Any) -> Any:
            dtype = result([str(operand.dtype) for operand in operands], attrs)
            read = [NumpyRows(o) if i in tables else o for i, o in enumerate(operands)]
            value = arithmetic(NUMPY, *read, **attrs)
            shape = np.broadcast_shapes(
                *(o.shape for i, o in enumerate(operands) if i not in apart)
            )
            return np.broadcast_to(np.asarray(value, storage_dtype(dtype)), shape)

        def legalize(*operands: Any, **attrs: Any) -> Any:
            dtype = str(storage_dtype(result([str(operand.dtype) for operand in operands], attrs)))
            shape = np.broadcast_shapes(
                *(_extents(o) for i, o in enumerate(operands) if i not in apart)
            )

            def read(position: int, operand: Any, index: Sequence[Any]) -> Any:
                if position in positions:
                    return operand
                if position in tables:
                    return TensorRows(operand, index[-1])
                # The index as it is says that the operand lies as the result does.
                is_alike = _extents(operand) == shape
                return operand(*index) if is_alike else element(operand, index)

            def at(*index: Any) -> Any:
                taken = [read(i, operand, index) for i, operand in enumerate(operands)]
                return arithmetic(TIR, *taken, **attrs)

            if tables:
                count = te.compute(shape, at, name="count")
                return te.compute(shape, lambda *i: count[i].astype(dtype), name=name)
            return te.compute(shape, lambda *i: shared(at(*i).astype(dtype)), name=name)

        _document(meaning, arithmetic)
        ARITHMETIC[PREFIX + name] = arithmetic
        WIDENED[PREFIX + name] = tuple(arguments.index(argument) for argument in widened)
        if infer is None:
            ELEMENTWISE.add(PREFIX + name)
            WHOLE[PREFIX + name] = tuple(positions)
        return register(name, arguments, infer or broadcast, legalize)(meaning)

    return decorate


def element(tensor: Any, index: Sequence[Any]) -> Any:
    """The element of a tensor that NumPy's broadcasting puts at an index."""
    extents = _extents(tensor)
    own = index[len(index) - len(extents) :]
    return tensor(*(0 if extent == 1 else i for extent, i in zip(extents, own, strict=True)))


def _extents(tensor: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)


def _document(meaning: Any, arithmetic: Arithmetic) -> None:
    """Give a meaning its arithmetic's docstring, and its attributes as keyword parameters."""
    meaning.__doc__ = arithmetic.__doc__
    keywords = [
        parameter
        for parameter in signature(arithmetic).parameters.values()
        if parameter.kind is Parameter.KEYWORD_ONLY
    ]
    meaning.__signature__ = signature(meaning).replace(parameters=keywords)
