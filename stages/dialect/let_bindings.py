"""Values that an expression uses several times get a name.

TIR's passes and its code generator walk an expression as a tree. Fixed-point arithmetic uses most
of its values twice, step upon step, so that the tree is exponentially larger than what is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import PrimType

from stages.nodes import Call, Scalar

LEAVES = (tirx.Var, tirx.IntImm, tirx.FloatImm)
LAZY = "tirx.if_then_else"
"""The operator of whose branches one is computed, so that nothing may be taken out of them."""
LOAD = "te.tensor_load"
"""An element of a tensor."""


def shared(expression: Scalar, *, in_indices: bool = True) -> Scalar:
    """An expression with every value that is used more than once bound by a Let.

    Without `in_indices` no name stands in the index of a tensor's element, as a schedule wants it,
    which derives from the index what is read.
    """
    opaque = (LAZY,) if in_indices else (LAZY, LOAD)
    uses, order = _visited(expression, opaque)
    built: dict[int, Any] = {}
    bindings: list[tuple[Any, Any]] = []
    for node in order:  # operands stand in front of what uses them
        value = built[_key(node)] = _rebuilt(node, built, opaque)
        is_named = uses[_key(node)] > 1 and not isinstance(node, LEAVES)
        if is_named and str(node.ty.dtype) != "bool":  # TIR names no vectors of these
            name = tirx.Var(f"shared{len(bindings)}", str(node.ty.dtype))
            bindings.append((name, value))
            built[_key(node)] = name
    result = built[_key(expression)]
    for name, value in reversed(bindings):
        result = tirx.Let(name, value, result)
    return result


def operations(expression: Scalar) -> int:
    """How many different operations an expression has."""
    return sum(not isinstance(node, LEAVES) for node in nodes(expression, (LAZY,)))


def nodes(expression: Any, opaque: Sequence[str] = ()) -> Iterator[Any]:
    """All different parts of an expression, but for what is inside of calls that are `opaque`."""
    while isinstance(expression, tirx.Let):
        yield from nodes(expression.value, opaque)
        expression = expression.body
    yield from _visited(expression, opaque)[1]


def _key(node: Any) -> int:
    """What tells nodes apart: `==` of expressions is an expression itself."""
    return int(node.__chandle__())


def _parts(node: Any, opaque: Sequence[str]) -> list[Any]:
    """The operands of an expression that are computed whenever it is; a Let is taken as it is."""
    if isinstance(node, Call):
        is_opaque = str(getattr(node.op, "name", "")) in opaque
        return [] if is_opaque else [a for a in node.args if _is_number(a)]
    if isinstance(node, tirx.Select):
        return [node.condition, node.true_value, node.false_value]
    if isinstance(node, tirx.Cast):
        return [node.value]
    if isinstance(node, tirx.Not):
        return [node.a]
    return [node.a, node.b] if hasattr(node, "a") and hasattr(node, "b") else []


def _is_number(argument: object) -> bool:
    return isinstance(getattr(argument, "ty", None), PrimType)


def _visited(root: Any, opaque: Sequence[str]) -> tuple[Counter[int], list[Any]]:
    """How often each node is used, and all nodes with operands first; without recursion."""
    uses: Counter[int] = Counter()
    order: list[Any] = []
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
            continue
        uses[_key(node)] += 1
        if uses[_key(node)] == 1:
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(_parts(node, opaque)))
    return uses, order


def _rebuilt(node: Any, built: dict[int, Any], opaque: Sequence[str]) -> Any:
    """The node over what its operands have become."""
    parts = _parts(node, opaque)
    if all(built[_key(part)].same_as(part) for part in parts):
        return node
    if isinstance(node, Call):
        arguments = [built[_key(a)] if _is_number(a) else a for a in node.args]
        return Call(node.op, arguments, node.attrs, node.ty_args, ret_ty=node.ty)
    operands = [built[_key(part)] for part in parts]
    if isinstance(node, tirx.Cast):
        return tirx.Cast(str(node.ty.dtype), *operands)
    return type(node)(*operands)
