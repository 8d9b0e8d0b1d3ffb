"""Widen sub-byte tensors to the bytes they are stored in, so that plain Relax can hold them.

    q: Tensor((1, 4, 4, 8), "uint2")   ->   q: Tensor((1, 4, 4, 8), "uint8")

Values do not change: attributes such as `high` say how far they go.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call

from stages.dialect.calls import attributes, dtype_of, shape_of, storage_dtype
from stages.dialect.names import PREFIX
from stages.graph.bindings import bindings_of, outputs_of, remap
from stages.graph.builder import FunctionBuilder


def widen(module: Any) -> Any:
    """`module` with every tensor of a dtype that NumPy has; its functions call each other."""
    functions = relax.BlockBuilder()
    done: dict[Any, Any] = {}
    for variable in module.get_global_vars():
        if variable.name_hint != "main":
            function = _widened(module[variable], {})
            done[variable] = functions.add_func(function, str(variable.name_hint))
    main = _widened(module["main"], done)
    return tvm.IRModule({relax.GlobalVar("main"): main, **dict(functions.get().functions)})


def _widened(function: Any, callees: dict[Any, Any]) -> Any:
    builder = FunctionBuilder()
    mapping = {
        parameter: builder.param(
            str(parameter.name), shape_of(parameter.ty), str(storage_dtype(dtype_of(parameter.ty)))
        )
        for parameter in function.params
    }
    outputs = outputs_of(function)
    for binding in bindings_of(function):
        if binding.var in outputs:
            mapping[binding.var] = mapping[binding.value]
            continue
        value = remap(binding.value, mapping)
        if isinstance(value, Call) and value.op in callees:
            callee = callees[value.op]
            mapping[binding.var] = builder.emit_typed(
                Call(callee, value.args, ret_ty=callee.ty.ret), str(binding.var.name)
            )
            continue
        mapping[binding.var] = builder.emit(_stored(value), str(binding.var.name))
    return builder.finish([mapping[output] for output in outputs], function.attrs)


def _stored(value: Any) -> Any:
    """A call whose result has a storage dtype."""
    if not isinstance(value, Call) or not str(value.op.name).startswith(PREFIX):
        return value
    attrs = attributes(value)
    if "dtype" in attrs:
        attrs["dtype"] = str(storage_dtype(attrs["dtype"]))
    return Call(value.op, value.args, attrs)
