"""Execute any module of the pipeline in NumPy, whatever stage it came from.

This is how a build is checked after every stage: the same input must give the same output before
and after (the idea of QONNX's executable operators and FINN's step verification).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GlobalVar, Op

from stages.kinds import Model
from stages.qnn.registry import OPERATORS, attributes, shape_of
from stages.qnn.standard import STANDARD

Array = np.ndarray[Any, Any]
Observer = Callable[[str, Any], None]


def run(
    model: Model, inputs: Mapping[str, Array], *, observe: Observer | None = None
) -> dict[str, Array]:
    """Outputs of `main` by name for one sample; `observe(name, value)` sees every binding.

    Where `main` is of one picture, a sample is a batch of them, and so is every value.
    Raises KeyError for a missing input, NotImplementedError for an operator without a meaning.
    """
    main = model.module["main"]
    pictures = pictures_of(model)
    given = [inputs[parameter.name] for parameter in main.params[: int(main.attrs["num_input"])]]
    if pictures == 1:
        return _run_once(model, given, observe)
    values: dict[str, list[Any]] = {}

    def keep(name: str, value: Any) -> None:
        values.setdefault(name, []).append(value)

    runs = [_run_once(model, [each[at : at + 1] for each in given], keep) for at in range(pictures)]
    if observe is not None:
        for name, shares in values.items():
            observe(name, _joined(shares))
    return {name: _joined([run[name] for run in runs]) for name in output_names(model)}


def _run_once(model: Model, given: list[Any], observe: Observer | None) -> dict[str, Array]:
    parameters = model.module["main"].params[len(given) :]
    arguments = [*given, *(model.params[parameter.name] for parameter in parameters)]
    result = _call_function(model.module, model.module["main"], arguments, observe)
    values = result if isinstance(result, tuple) else (result,)
    return dict(zip(output_names(model), values, strict=True))


def _joined(shares: Sequence[Any]) -> Any:
    """A batch of values, each of one picture."""
    if isinstance(shares[0], tuple):
        return tuple(map(_joined, zip(*shares, strict=True)))
    return np.concatenate(shares) if np.shape(shares[0])[:1] == (1,) else np.stack(shares)


def pictures_of(model: Model) -> int:
    """How many pictures of a batch `main` is run for, one after the other."""
    return int(model.module["main"].attrs.get("pictures", 1))


def output_names(model: Model) -> list[str]:
    """Names of `main`'s outputs, in order."""
    main = model.module["main"]
    if "output_names" in main.attrs:
        return [str(name) for name in main.attrs["output_names"]]
    body = main.body.body
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    return [field.name for field in fields]


def _call_function(
    module: Any, function: Any, arguments: list[Any], observe: Observer | None
) -> Any:
    environment = dict(zip(function.params, arguments, strict=True))
    body = function.body
    for block in body.blocks:
        for binding in block.bindings:
            value = _evaluate(module, binding.value, environment)
            environment[binding.var] = value
            if observe is not None:
                observe(binding.var.name, value)
    return _evaluate(module, body.body, environment)


def evaluate(call: Any, values: Mapping[Any, Any]) -> Any:
    """What one operator call gives, from the values of the variables it reads."""
    return _evaluate_call(None, call, values)


def _evaluate(module: Any, expr: Any, environment: Mapping[Any, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return environment[expr]
    if isinstance(expr, relax.Tuple):
        return tuple(_evaluate(module, field, environment) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _evaluate(module, expr.tuple_value, environment)[expr.index]
    if isinstance(expr, Call):
        return _evaluate_call(module, expr, environment)
    raise NotImplementedError(f"no meaning for {type(expr).__name__}")


def _evaluate_call(module: Any, call: Any, environment: Mapping[Any, Any]) -> Any:
    if isinstance(call.op, GlobalVar):
        arguments = [_evaluate(module, argument, environment) for argument in call.args]
        return _call_function(module, module[call.op], arguments, None)
    if not isinstance(call.op, Op):
        raise NotImplementedError(f"no meaning for a call of {call.op}")
    name = str(call.op.name)
    if name in OPERATORS:
        arguments = [_evaluate(module, argument, environment) for argument in call.args]
        return OPERATORS[name].meaning(*arguments, **attributes(call))
    if name in STANDARD:
        tensors = [a for a in call.args if isinstance(a, (relax.Var, Call)) or _is_tensors(a)]
        arguments = [_evaluate(module, argument, environment) for argument in tensors]
        result = STANDARD[name](call, *arguments)
        if isinstance(result, tuple):
            return result
        return np.asarray(result).reshape(shape_of(call.ty))
    raise NotImplementedError(f"no NumPy meaning for {name}")


def _is_tensors(expr: Any) -> bool:
    """Whether an argument is a tuple of tensors, not one of numbers (bounds, axes)."""
    return isinstance(expr, relax.Tuple) and all(
        isinstance(field.ty, relax.TensorType) for field in expr.fields
    )
