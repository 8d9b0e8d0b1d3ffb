"""Registers operators that compute every position on its own, from one piece of arithmetic.

    @elementwise("negated_sum", ["lhs", "rhs"], result=of_type("int32"))
    def negated_sum(m: Numbers, lhs: Value, rhs: Value, *, offset: int) -> Value:
        return m.cast(lhs, "int32") * -1 - m.cast(rhs, "int32") + offset

Operands broadcast as in NumPy, so a tensor [C] goes along the last axis. Operands in `whole` are
not broadcast but handed over whole, for `Numbers.look_up`; those in `rows` are tensors [T, C], of
which a position gets the `Rows` of its channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np
from tvm import te

from stages.dialect import names
from stages.dialect.calls import Attrs, dtype_of, shape_of, storage_dtype, tensor_type
from stages.dialect.let_bindings import shared
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import Builder, Infer, register
from stages.kinds import Array
from stages.nodes import Index, Scalar, Tensor, TensorType

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

    array: Array

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

    tensor: Tensor
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


@dataclass(frozen=True)
class _Elementwise:
    """An operator that computes every position on its own: how it reads its operands."""

    name: str
    arguments: Sequence[str]
    result: ResultType
    accepts: Mapping[str, Sequence[str]]
    whole: Sequence[int]
    """Positions of the operands that are handed over whole."""
    rows: Sequence[int]
    """Positions of the operands of which a position gets the `Rows` of its channel."""

    def shape(self, shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the result, by those of operands; ValueError if these do not broadcast."""
        exempt = {*self.whole, *self.rows}
        return np.broadcast_shapes(*(shape for i, shape in enumerate(shapes) if i not in exempt))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        """The result's type; ValueError for operands of other types or shapes."""
        for argument, kind in zip(self.arguments, types, strict=True):
            accepted = self.accepts.get(argument)
            if accepted and dtype_of(kind) not in accepted:
                expected = ", ".join(accepted)
                raise ValueError(f"{argument} of {dtype_of(kind)}; {expected} is expected")
        shapes = list(map(shape_of, types))
        try:
            shape = self.shape(shapes)
        except ValueError as error:
            exempt = {*self.whole, *self.rows}
            listed = " and ".join(str(list(s)) for i, s in enumerate(shapes) if i not in exempt)
            raise ValueError(f"operands of shapes {listed} do not broadcast") from error
        return tensor_type(shape, self.result([dtype_of(kind) for kind in types], attrs))

    def in_numpy(self, arithmetic: Arithmetic, operands: Sequence[Array], attrs: Attrs) -> Array:
        """What the arithmetic gives for arrays."""
        dtype = self.result([str(operand.dtype) for operand in operands], attrs)
        read = [NumpyRows(o) if i in self.rows else o for i, o in enumerate(operands)]
        value = arithmetic(NUMPY, *read, **attrs)
        shape = self.shape(operand.shape for operand in operands)
        return np.broadcast_to(np.asarray(value, storage_dtype(dtype)), shape)

    def in_te(self, arithmetic: Arithmetic, operands: Sequence[Tensor], attrs: Attrs) -> Tensor:
        """What the arithmetic gives for TE tensors, position by position."""
        found = self.result([str(operand.dtype) for operand in operands], attrs)
        dtype = str(storage_dtype(found))
        shape = self.shape(map(_extents, operands))

        def at(*index: Scalar) -> Scalar:
            taken = [self._read(i, operand, shape, index) for i, operand in enumerate(operands)]
            return arithmetic(TIR, *taken, **attrs)

        if self.rows:
            count = te.compute(shape, at, name="count")
            return te.compute(shape, lambda *i: count[i].astype(dtype), name=self.name)
        return te.compute(shape, lambda *i: shared(at(*i).astype(dtype)), name=self.name)

    def _read(
        self, position: int, operand: Tensor, shape: tuple[int, ...], index: Sequence[Index]
    ) -> Tensor | TensorRows | Scalar:
        """What the arithmetic gets of an operand at a position of a result of this shape."""
        if position in self.whole:
            return operand
        if position in self.rows:
            return TensorRows(operand, index[-1])
        # The index as it is says that the operand lies as the result does.
        return operand(*index) if _extents(operand) == shape else element(operand, index)


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
    positions = {argument: place for place, argument in enumerate(arguments)}
    own = _Elementwise(
        name,
        arguments,
        result,
        accepts or {},
        tuple(positions[each] for each in whole),
        tuple(positions[each] for each in rows),
    )

    def decorate(arithmetic: Arithmetic) -> Builder:
        def meaning(*operands: Array, **attrs: Any) -> Array:
            return own.in_numpy(arithmetic, operands, attrs)

        def legalize(*operands: Tensor, **attrs: Any) -> Tensor:
            return own.in_te(arithmetic, operands, attrs)

        _document(meaning, arithmetic)
        build = register(name, arguments, infer or own.infer, legalize)(meaning)
        ARITHMETIC[build.name] = arithmetic
        WIDENED[build.name] = tuple(positions[each] for each in widened)
        if infer is None:
            ELEMENTWISE.add(build.name)
            WHOLE[build.name] = tuple(own.whole)
        return build

    return decorate


def element(tensor: Tensor, index: Sequence[Index]) -> Scalar:
    """The element of a tensor that NumPy's broadcasting puts at an index."""
    extents = _extents(tensor)
    own = index[len(index) - len(extents) :]
    return tensor(*(0 if extent == 1 else i for extent, i in zip(extents, own, strict=True)))


def _extents(tensor: Tensor) -> tuple[int, ...]:
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
