"""What composites compute element by element around an operator that has a kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tvm import relax

from stages.dialect.calls import shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.relax_te import scalar
from stages.nodes import Call, Index, Scalar, Var
from stages.packaging.emitting.item_kernel import Arguments


def is_by_element(call: Call, shape: tuple[int, ...]) -> bool:
    """Whether an operator computes by element, of tensors of a shape and of scalars."""
    name = str(call.op.name)
    is_known = name in ELEMENTWISE and not WHOLE.get(name) and shape_of(call.ty) == shape
    operands = [a for a in call.args if isinstance(a, relax.Var)]
    return is_known and all(shape_of(a.ty) == shape or prod(shape_of(a.ty)) == 1 for a in operands)


def value_at(
    variable: Var,
    place: Index,
    known: dict[Var, Scalar],
    calls: Mapping[Var, Call],
    arguments: Arguments,
) -> Scalar:
    """A tensor at a place, or a scalar: `known`, computed by `calls`, or one of the arguments.

    What is computed is known then.
    """
    if variable in known:
        return known[variable]
    call = calls.get(variable)
    if call is None:
        return arguments[variable][place if prod(shape_of(variable.ty)) > 1 else 0]
    operands = [a for a in call.args if isinstance(a, relax.Var)]
    read = [value_at(each, place, known, calls, arguments) for each in operands]
    known[variable] = scalar(call, read)
    return known[variable]
