"""Which float tensors of a graph are quantized, each with a grid of its own.

All that operators compute are, except where the integer network has no such tensor:

* between a convolution, product or sum and its bias, ReLU or clip, which become one operator;
* inside a chain of functions of one tensor, such as hard swish, which becomes one LUT;
* behind operators that only move values (`names.MOVEMENTS`): the result lies on the operand's grid;
* at the end of the graph, behind operators without an integer form (softmax), which stay float.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE
from stages.graph.bindings import needed_bindings, outputs_of, variables_in
from stages.nodes import Call, Expr, Function, Op, Var

_CLIPS = (names.RELU, names.CLIP)
_JOINABLE = (names.CONV2D, names.MATMUL, names.ADD, names.SUBTRACT, names.MULTIPLY,
             names.AVG_POOL2D, names.MEAN, names.CONCAT)  # fmt: skip
"""Operators that a ReLU or clip behind them joins."""


@dataclass
class Roles:
    """What quantizing makes of the float variables of a function."""

    quantized: list[Var]
    """Variables that get a grid, in order, graph inputs first."""
    origin: dict[Var, Var]
    """Variable → the quantized variable on whose grid its values lie: itself, or where they were
    moved from."""
    shared: dict[Var, Var]
    """Operand of a concatenation → the result, whose grid it takes."""


def roles(main: Function) -> Roles:
    """Decide for each float variable of `main`; constants are its parameters."""
    return AssignRoles(main).decide()


class AssignRoles:
    """Decides for each float variable of a function, in order."""

    def __init__(self, main: Function) -> None:
        self._main = main
        self._expressions = {binding.var: binding.value for binding in needed_bindings(main)}
        self._inputs = list(main.params[: int(main.attrs["num_input"])])
        self._constants = set(main.params[int(main.attrs["num_input"]) :])
        self._readers: dict[Any, list[Var]] = defaultdict(list)
        for variable, value in self._expressions.items():
            for each in variables_in(value):
                self._readers[each].append(variable)
        self._outputs = set(outputs_of(main))
        self._roots: dict[Var, Var] = {}
        """Result of a chain of functions of one tensor → that tensor."""
        self._joined: set[Var] = set()

    def decide(self) -> Roles:
        """The roles of all variables."""
        quantized = [each for each in self._inputs if _is_float(each)]
        origin = {each: each for each in quantized}
        for variable, value in self._expressions.items():
            if not _is_float(variable):
                continue
            moved = self._moved_from(value)
            if moved is not None:
                if moved in origin:
                    origin[variable] = origin[moved]
                continue
            self._roots[variable] = self._root(variable, value)
            if self._is_joined(variable, value):
                self._joined.add(variable)
            elif not self._is_inner(variable) and not self._is_float_output(variable, value):
                quantized.append(variable)
                origin[variable] = variable
        return Roles(quantized, origin, self._shared(set(quantized)))

    def _moved_from(self, value: Expr) -> Var | None:
        """The operand whose values an expression only moves."""
        if isinstance(value, relax.Var):
            return value
        if isinstance(value, relax.TupleGetItem):
            return self._moved_from(self._expressions[value.tuple_value])
        if isinstance(value, Call) and isinstance(value.op, Op):
            name = str(value.op.name)
            if name in names.MOVEMENTS or name == names.MAX_POOL2D:
                return variables_in(value)[0]
        return None

    def _is_joined(self, variable: Var, value: Expr) -> bool:
        """Whether the only reader is a bias, ReLU or clip that joins the operator."""
        if variable in self._outputs or len(self._readers[variable]) != 1:
            return False
        reader = self._expressions[self._readers[variable][0]]
        if is_op(reader, *_CLIPS):
            return is_op(value, *_JOINABLE)
        return is_op(reader, names.ADD) and any(
            each in self._constants and shape_of(each.ty) == _bias_shape(value)
            for each in variables_in(reader)
        )

    def _root(self, variable: Var, value: Expr) -> Var:
        """The one tensor that a pointwise expression is a function of, else the variable."""
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return variable
        name = str(value.op.name)
        if name not in ELEMENTWISE:
            return variable
        roots = set()
        for each in variables_in(value):
            if each in self._constants:
                if any(extent != 1 for extent in shape_of(each.ty)):
                    return variable
            else:
                roots.add(self._roots.get(each, each))
        return variable if len(roots) != 1 or roots & self._joined else roots.pop()

    def _is_inner(self, variable: Var) -> bool:
        """Whether a result is inside a chain: all its readers are functions of the same tensor."""
        root = self._roots[variable]
        if variable is root or variable in self._outputs:
            return False
        return all(
            self._root(reader, self._expressions[reader]) == root
            for reader in self._readers[variable]
        )

    def _is_float_output(self, variable: Var, value: Expr) -> bool:
        """Whether a result of an operator without an integer form is an output alone."""
        name = str(value.op.name) if isinstance(value, Call) and isinstance(value.op, Op) else ""
        is_known = name in _JOINABLE or name in ELEMENTWISE
        readers = (self._expressions[reader] for reader in self._readers[variable])
        return not is_known and all(isinstance(each, relax.Var) for each in readers)

    def _shared(self, quantized: set[Var]) -> dict[Var, Var]:
        shared = {}
        for variable, value in self._expressions.items():
            if variable in quantized and is_op(value, names.CONCAT):
                for each in variables_in(value):
                    if each in quantized and len(self._readers[each]) == 1:
                        shared[each] = variable
        return shared


def _is_float(variable: Var) -> bool:
    return isinstance(variable.ty, relax.TensorType) and dtype_of(variable.ty) == "float32"


def _bias_shape(value: Expr) -> tuple[int, ...] | None:
    """The shape folding gives the bias of a product; None for other expressions."""
    if is_op(value, names.CONV2D):
        return (1, shape_of(value.ty)[1], 1, 1)
    return shape_of(value.ty)[-1:] if is_op(value, names.MATMUL) else None
