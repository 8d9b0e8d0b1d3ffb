"""Registers operators that compute every position on its own, from one piece of arithmetic.

    @elementwise("negated_sum", ["lhs", "rhs"], result=of_type("int32"))
    def negated_sum(m: Numbers, lhs: Value, rhs: Value, *, offset: int) -> Value:
        return m.cast(lhs, "int32") * -1 - m.cast(rhs, "int32") + offset

Operands broadcast as in NumPy, so a tensor [C] goes along the last axis. Operands in `whole` are
not broadcast but handed over whole, for `Numbers.look_up`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import numpy as np
from tvm import te

from stages.qnn.numbers import NUMPY, TIR
from stages.qnn.registry import (
    PREFIX,
    dtype_of,
    register,
    shape_of,
    storage_dtype,
    tensor_type,
)
from stages.qnn.sharing import shared

ELEMENTWISE = {
    "relax.astype",
    "relax.clip",
    "relax.where",
    "relax.nn.relu",
    *(
        f"relax.{name}"
        for name in (
            "add", "subtract", "multiply", "divide", "maximum", "minimum", "sign", "sqrt", "rsqrt",
            "abs", "negative", "floor", "ceil", "round", "square", "less", "less_equal", "greater",
            "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
            "logical_not",
        )
    ),
}  # fmt: skip
"""Full names of all operators that compute every position on its own; registering adds to it."""

ARITHMETIC: dict[str, Callable[..., Any]] = {}
"""Full name of an operator of the dialect → its arithmetic over `Numbers`."""
WHOLE: dict[str, tuple[int, ...]] = {}
"""Full name of an operator → positions of the operands that it reads as a whole."""
WIDENED: dict[str, tuple[int, ...]] = {}
"""Full name of an operator → positions of the operands that may also come in 32 bits."""

Arithmetic = Callable[..., Any]
ResultType = Callable[[Sequence[str], Mapping[str, Any]], str]
"""Operand dtypes and attributes → dtype of the result."""


def of_type(dtype: str) -> ResultType:
    """The result always has this dtype."""
    return lambda _dtypes, _attrs: dtype


def by_attribute(_dtypes: Sequence[str], attrs: Mapping[str, Any]) -> str:
    """The attribute `dtype` names the result's dtype."""
    return str(attrs["dtype"])


def as_first(dtypes: Sequence[str], _attrs: Mapping[str, Any]) -> str:
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
) -> Callable[[Arithmetic], Callable[..., Any]]:
    """Register `qnn.<name>`; decorates its arithmetic and returns the Relax call builder.

    `accepts` lists the dtypes an operand may have; of those in `widened` only the value counts, so
    that bytes may come as int32 or float32. The arithmetic's keyword arguments are the operator's
    attributes, and its value is cast to the result's dtype.
    """
    positions = [arguments.index(argument) for argument in whole]

    def infer(types: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        for argument, kind in zip(arguments, types, strict=True):
            accepted = (accepts or {}).get(argument)
            if accepted and dtype_of(kind) not in accepted:
                raise ValueError(
                    f"{argument} of {dtype_of(kind)}; {', '.join(accepted)} is expected"
                )
        shapes = [shape_of(kind) for i, kind in enumerate(types) if i not in positions]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"operands of shapes {listed} do not broadcast") from error
        return tensor_type(shape, result([dtype_of(kind) for kind in types], attrs))

    def decorate(arithmetic: Arithmetic) -> Callable[..., Any]:
        def meaning(*operands: Any, **attrs: Any) -> Any:
            dtype = result([str(operand.dtype) for operand in operands], attrs)
            value = arithmetic(NUMPY, *operands, **attrs)
            shape = np.broadcast_shapes(
                *(o.shape for i, o in enumerate(operands) if i not in positions)
            )
            return np.broadcast_to(np.asarray(value, storage_dtype(dtype)), shape)

        def legalize(*operands: Any, **attrs: Any) -> Any:
            dtype = result([str(operand.dtype) for operand in operands], attrs)
            shape = np.broadcast_shapes(
                *(_extents(o) for i, o in enumerate(operands) if i not in positions)
            )

            def at(*index: Any) -> Any:
                read = [
                    operand if i in positions else element(operand, index)
                    for i, operand in enumerate(operands)
                ]
                return shared(arithmetic(TIR, *read, **attrs).astype(str(storage_dtype(dtype))))

            return te.compute(shape, at, name=name)

        _document(meaning, arithmetic)
        ELEMENTWISE.add(PREFIX + name)
        ARITHMETIC[PREFIX + name] = arithmetic
        WHOLE[PREFIX + name] = tuple(positions)
        WIDENED[PREFIX + name] = tuple(arguments.index(argument) for argument in widened)
        build: Callable[..., Any] = register(name, arguments, infer, legalize)(meaning)
        return build

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
