"""What composites return: the epilogue of a product as it was, and results as readers want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.ir import Call

from stages.bitpacking.edges import Layout, emit_load, emit_store
from stages.bitpacking.handing import Handed
from stages.bitpacking.rounding import Marks
from stages.qnn.builder import FunctionBuilder, bindings_of, outputs_of, remap
from stages.qnn.composites import PLAIN
from stages.qnn.registry import attributes, dtype_of, shape_of


def epilogue(
    function: Any,
    inside: dict[Any, Any],
    actual: dict[Any, Any],
    builder: FunctionBuilder,
    arguments: list[Any],
    found: Callable[[Any], tuple[Any, Layout | None]],
    marks: Marks,
) -> list[Any]:
    """Emit what follows the product; its other operands become parameters.

    They are `found` as they are, or inside an edge. Operators with `marks` get these attributes.
    """
    outputs = outputs_of(function)
    for binding in bindings_of(function):
        if binding.var in inside or binding.var in outputs:
            continue
        for argument in binding.value.args:
            if isinstance(argument, relax.Var) and argument not in inside:
                tensor, edge = found(actual[argument])
                name, kind = f"p{len(arguments)}", tensor.ty
                arguments.append(tensor)
                value = builder.param(name, shape_of(kind), dtype_of(kind))
                inside[argument] = emit_load(builder, value, edge) if edge else value
        call = remap(binding.value, inside)
        if marked := marks.get(binding.var):
            call = Call(call.op, call.args, {**attributes(call), **marked})
        inside[binding.var] = builder.emit(call, "v")
    returned = {b.var: b.value for b in bindings_of(function) if b.var in outputs}
    return [inside[returned[output]] for output in outputs]


def laid_out(value: Any, wanted: Handed, builder: FunctionBuilder) -> list[Any]:
    """Emit a result as its readers want it: edges, then paddings."""
    edges = [emit_store(builder, value, edge) for edge in wanted.edges]
    pads = [builder.emit(remap(call, {call.args[0]: value}), "padded") for _, call in wanted.pads]
    return edges + pads


def computed(function: Any, operands: list[Any], builder: FunctionBuilder) -> Any:
    """What a composite computes, in another one."""
    values = dict(zip(function.params, operands, strict=True))
    (output,) = outputs_of(function)
    for binding in bindings_of(function):
        if binding.var.same_as(output):
            return values[binding.value]
        values[binding.var] = builder.emit(remap(binding.value, values), "v")
    raise AssertionError("a composite returns what it bound")


def stored(function: Any, edge: Layout) -> Any:
    """A plain composite with its result laid out as an edge."""
    builder = FunctionBuilder()
    operands = [builder.param(str(p.name), shape_of(p.ty), dtype_of(p.ty)) for p in function.params]
    value = emit_store(builder, computed(function, operands, builder), edge)
    return builder.finish([value], {"composite": PLAIN})
