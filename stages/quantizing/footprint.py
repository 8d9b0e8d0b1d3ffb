"""How much memory a model takes: its weights, and the feature maps alive at its fullest moment.

Counted from the Relax module as a compiler runs it (Jain et al. 2020, Figure 6, split the memory
so): an operator and the elementwise operators behind it are one step, so that accumulators and
values between them need no memory, and reshapes and changes of layout need none of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.elementwise import ELEMENTWISE
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.kinds import Model
from stages.nodes import Call, Expr, Function, Op, Var

_VIEWS = frozenset(
    f"relax.{name}" for name in ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten")
)
_ALSO_ELEMENTWISE = frozenset(
    f"relax.qnn.{name}" for name in ("batch_norm", "requantize", "saturate")
)


@dataclass(frozen=True)
class Footprint:
    """Memory in bytes; the arena of a package holds `feature_maps`, its data `weights`."""

    weights: int
    """All parameters: weights, biases, scales, tables."""
    feature_maps: int
    """Graph inputs, outputs and tensors between, the most that are needed at one time."""
    fullest: str
    """The variable whose computation needs that much."""

    @property
    def total(self) -> int:
        """Weights and feature maps."""
        return self.weights + self.feature_maps


def footprint(model: Model) -> Footprint:
    """The memory of a model at any stage whose `main` holds operators, no composites."""
    main = model.module["main"]
    steps = _Steps(main)
    needed_until: dict[Var, int] = {}
    order = list(steps.stored)
    for at, variable in enumerate(order):
        for operand in (variable, *steps.reads[variable]):
            needed_until[operand] = at
    for output in outputs_of(main):
        needed_until.update(dict.fromkeys(steps.origins(output), len(order)))
    alive = {each: _bytes(each) for each in steps.inputs}
    most, fullest = sum(alive.values()), "the inputs"
    for at, variable in enumerate(order):
        alive[variable] = _bytes(variable)
        total = sum(alive.values())
        if total > most:
            most, fullest = total, str(variable.name)
        alive = {each: size for each, size in alive.items() if needed_until.get(each, -1) > at}
    weights = sum(int(value.nbytes) for value in model.params.values())
    return Footprint(weights, most, fullest)


def stored(model: Model) -> dict[Var, int]:
    """The variables that a model stores one after the other, without its inputs → bytes."""
    return {variable: _bytes(variable) for variable in _Steps(model.module["main"]).stored}


class _Steps:
    """The variables that take memory, and which of them each is computed from."""

    def __init__(self, main: Function) -> None:
        self.inputs = list(main.params[: int(main.attrs["num_input"])])
        self._expressions = {binding.var: binding.value for binding in bindings_of(main)}
        self._readers = Counter(
            each for value in self._expressions.values() for each in set(variables_in(value))
        )
        self._joined = {
            operand
            for value in self._expressions.values()
            if _is_elementwise(value)
            for operand in variables_in(value)
            if operand in self._expressions and self._readers[operand] == 1
        }
        """Variables that the one elementwise operator reading them is fused with."""
        self._origins: dict[Var, list[Any]] = {each: [each] for each in self.inputs}
        self.reads: dict[Var, list[Any]] = {}
        self.stored: list[Any] = []
        for variable, value in self._expressions.items():
            read = self._read(variables_in(value))
            if variable in self._joined or _is_view(value):
                self._origins[variable] = read
            else:
                self._origins[variable] = [variable]
                self.reads[variable] = read
                self.stored.append(variable)

    def origins(self, variable: Var) -> list[Any]:
        """The variables with memory that an expression's variable is computed from or is."""
        return self._origins.get(variable, [])

    def _read(self, variables: Iterable[Any]) -> list[Any]:
        found: dict[Var, None] = {}
        for each in variables:
            found.update(dict.fromkeys(self.origins(each)))
        return list(found)


def _is_elementwise(value: Expr) -> bool:
    name = str(value.op.name) if isinstance(value, Call) and isinstance(value.op, Op) else ""
    return name in ELEMENTWISE or name in _ALSO_ELEMENTWISE


def _is_view(value: Expr) -> bool:
    if isinstance(value, (relax.Var, relax.TupleGetItem, relax.Tuple)):
        return True
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _VIEWS


def _bytes(variable: Var) -> int:
    kind = variable.ty
    if isinstance(kind, relax.TupleType):
        return sum(prod(shape_of(f)) * storage_dtype(dtype_of(f)).itemsize for f in kind.fields)
    return prod(shape_of(kind)) * storage_dtype(dtype_of(kind)).itemsize
