"""Read Relax functions binding by binding: what they bind, return and need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stages.kinds import Model
from stages.nodes import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)


def quantization_of(model: Model) -> dict[str, dict[str, float]]:
    """Scale and zero point of each input and output whose numbers are stored ones, by name."""
    attrs = model.module["main"].attrs
    return dict(json.loads(str(attrs["quantization"]))) if "quantization" in attrs else {}


def output_names(model: Model) -> list[str]:
    """Names of `main`'s outputs, in order."""
    main = model.module["main"]
    if "output_names" in main.attrs:
        return [str(name) for name in main.attrs["output_names"]]
    return [str(output.name) for output in outputs_of(main)]


def outputs_of(function: Function) -> list[Var]:
    """The variables a function returns."""
    body = function.body.body
    return list(body.fields) if isinstance(body, Tuple) else [body]


def bindings_of(function: Function) -> list[VarBinding]:
    """A function's bindings in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def calls_of(model: Model) -> list[tuple[VarBinding, Function]]:
    """The bindings of `main` that call composites, with the composites."""
    bindings = bindings_of(model.module["main"])
    found = [(binding, composite_of(model.module, binding.value)) for binding in bindings]
    return [(binding, function) for binding, function in found if function is not None]


def composite_of(module: IRModule, expr: Expr) -> Function | None:
    """The composite that an expression of `main` calls; None if it calls none."""
    if isinstance(expr, Call) and isinstance(expr.op, GlobalVar):
        return module[expr.op]
    return None


def needed_bindings(function: Function) -> list[VarBinding]:
    """The bindings that outputs depend on, in order."""
    needed = set(outputs_of(function))
    kept = []
    for binding in reversed(bindings_of(function)):
        if binding.var in needed:
            needed.update(variables_in(binding.value))
            kept.append(binding)
    return kept[::-1]


def variables_in(expr: Expr) -> list[Var]:
    """The variables that the expression of a binding reads, in order."""
    if isinstance(expr, Var):
        return [expr]
    if isinstance(expr, TupleGetItem):
        return variables_in(expr.tuple_value)
    parts = expr.args if isinstance(expr, Call) else getattr(expr, "fields", ())
    return [variable for part in parts for variable in variables_in(part)]


def remap(expr: Expr, mapping: Mapping[Var, Expr]) -> Any:
    """`expr` with its variables replaced by what `mapping` says."""
    if isinstance(expr, Var):
        return mapping[expr]
    if isinstance(expr, Tuple):
        return Tuple([remap(field, mapping) for field in expr.fields])
    if isinstance(expr, TupleGetItem):
        return TupleGetItem(remap(expr.tuple_value, mapping), expr.index)
    if isinstance(expr, Call):
        arguments = [
            remap(a, mapping) if isinstance(a, (Var, Call, Tuple)) else a for a in expr.args
        ]
        return Call(expr.op, arguments, expr.attrs)
    return expr
