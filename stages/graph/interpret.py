"""Execute any module of the pipeline in NumPy, whatever stage it came from.

This is how a build is checked after every stage: the same input must give the same output before
and after (the idea of QONNX's executable operators and FINN's step verification).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import attributes, shape_of
from stages.dialect.operators import OPERATORS
from stages.dialect.relax_numpy import STANDARD
from stages.graph.bindings import bindings_of, output_names, outputs_of
from stages.graph.collecting import images_of, variables_per_batch
from stages.kinds import Array, Model
from stages.nodes import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)

Observer = Callable[[str, Any], None]
Change = Callable[[Var, Any], Any]
"""From a variable of `main` and its value to what readers of it get."""


def run(
    model: Model,
    inputs: Mapping[str, Array],
    *,
    observe: Observer | None = None,
    change: Change | None = None,
) -> dict[str, Array]:
    """Outputs of `main` by name for one sample; `observe(name, value)` sees every binding.

    `change(variable, value)` gives another value for what a binding computes.
    Where `main` is of one image, a sample is a batch of them, and so is every value.
    Raises KeyError for a missing input, NotImplementedError for an operator without a meaning.
    """
    main = model.module["main"]
    images, once = images_of(model), variables_per_batch(main)
    count = int(main.attrs["num_input"])
    given = {parameter: inputs[parameter.name] for parameter in main.params[:count]}
    tensors = {parameter: model.params[parameter.name] for parameter in main.params[count:]}
    by_image = [binding for binding in bindings_of(main) if binding.var not in once]
    environment = {**given, **tensors}
    if images == 1:
        _bind(model.module, by_image, environment, change)
    else:
        alone = []
        for at in range(images):
            alone.append({v: x[at : at + 1] for v, x in given.items()} | tensors)
            _bind(model.module, by_image, alone[at], change)
        for binding in by_image:
            environment[binding.var] = _joined([each.pop(binding.var) for each in alone])
    _bind(model.module, [b for b in bindings_of(main) if b.var in once], environment, change)
    if observe is not None:
        for binding in bindings_of(main):
            observe(binding.var.name, environment[binding.var])
    results = [environment[output] for output in outputs_of(main)]
    return dict(zip(output_names(model), results, strict=True))


def _bind(
    module: IRModule | None,
    bindings: Iterable[VarBinding],
    environment: dict[Var, Any],
    change: Change | None = None,
) -> None:
    for binding in bindings:
        value = _evaluate(module, binding.value, environment)
        environment[binding.var] = value if change is None else change(binding.var, value)


def _joined(shares: Sequence[Any]) -> Any:
    """A batch of values, each of one image."""
    if isinstance(shares[0], tuple):
        return tuple(map(_joined, zip(*shares, strict=True)))
    return np.concatenate(shares) if np.shape(shares[0])[:1] == (1,) else np.stack(shares)


def _call_function(module: IRModule | None, function: Function, arguments: list[Any]) -> Any:
    environment = dict(zip(function.params, arguments, strict=True))
    _bind(module, bindings_of(function), environment)
    return _evaluate(module, function.body.body, environment)


def evaluate(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """What the expression of one binding gives, from the values of the variables it reads.

    It calls operators, and no functions.
    """
    return _evaluate(None, expr, values)


def by_element(call: Call, operands: Sequence[Array]) -> Array:
    """What an elementwise operator gives for other elements than its call has."""
    name = str(call.op.name)
    with np.errstate(all="ignore"):
        if name in OPERATORS:
            return np.asarray(OPERATORS[name].meaning(*operands, **attributes(call)))
        return np.asarray(STANDARD[name](call, *operands))


def _evaluate(module: IRModule | None, expr: Expr, environment: Mapping[Var, Any]) -> Any:
    if isinstance(expr, Var):
        return environment[expr]
    if isinstance(expr, Tuple):
        return tuple(_evaluate(module, field, environment) for field in expr.fields)
    if isinstance(expr, TupleGetItem):
        return _evaluate(module, expr.tuple_value, environment)[expr.index]
    if isinstance(expr, Call):
        return _evaluate_call(module, expr, environment)
    raise NotImplementedError(f"no meaning for {type(expr).__name__}")


def _evaluate_call(module: IRModule | None, call: Call, environment: Mapping[Var, Any]) -> Any:
    if isinstance(call.op, GlobalVar):
        arguments = [_evaluate(module, argument, environment) for argument in call.args]
        assert module is not None, "an expression of functions has a module"
        return _call_function(module, module[call.op], arguments)
    if not isinstance(call.op, Op):
        raise NotImplementedError(f"no meaning for a call of {call.op}")
    name = str(call.op.name)
    if name in OPERATORS:
        arguments = [_evaluate(module, argument, environment) for argument in call.args]
        return OPERATORS[name].meaning(*arguments, **attributes(call))
    if name in STANDARD:
        tensors = [a for a in call.args if isinstance(a, (Var, Call)) or _is_tensors(a)]
        arguments = [_evaluate(module, argument, environment) for argument in tensors]
        result = STANDARD[name](call, *arguments)
        if isinstance(result, tuple):
            return result
        return np.asarray(result).reshape(shape_of(call.ty))
    raise NotImplementedError(f"no NumPy meaning for {name}")


def _is_tensors(expr: Expr) -> bool:
    """Whether an argument is a tuple of tensors, not one of numbers (bounds, axes)."""
    return isinstance(expr, Tuple) and all(
        isinstance(field.ty, relax.TensorType) for field in expr.fields
    )
