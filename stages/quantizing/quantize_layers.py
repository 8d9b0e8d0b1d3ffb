"""Walk a source graph once and emit its integer form, NHWC, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax
from tvm.ir import Call

from stages.dialect.calls import shape_of
from stages.errors import NoIntegerFormError, StageError
from stages.graph.bindings import (
    bindings_of,
    needed_bindings,
    output_names,
    outputs_of,
    variables_in,
)
from stages.kinds import Model
from stages.quantizing import lower_elementwise as elementwise
from stages.quantizing import lower_linear as linear
from stages.quantizing import lower_quantizers as quantizers
from stages.quantizing import lower_shapes as shapes
from stages.quantizing.channels_last import sources_of
from stages.quantizing.context import Context
from stages.quantizing.float_fallback import Floats
from stages.quantizing.values import Known, KnownQuantized, Stayed, Value

QUANTIZERS: Mapping[str, Callable[[Context, Any], Value]] = {
    "relax.qnn.quant": quantizers.quant,
    "relax.qnn.bipolar_quant": quantizers.bipolar_quant,
    "relax.qnn.multi_threshold": quantizers.multi_threshold,
}
LOWERINGS: Mapping[str, Callable[[Context, Any], Value]] = {
    "relax.qnn.batch_norm": elementwise.batch_norm,
    "relax.nn.conv2d": linear.conv2d,
    "relax.matmul": linear.matmul,
    "relax.nn.relu": elementwise.relu,
    "relax.clip": elementwise.clip,
    "relax.nn.max_pool2d": shapes.max_pool,
    "relax.nn.avg_pool2d": shapes.average_pool,
    "relax.mean": shapes.mean,
    "relax.reshape": shapes.reshape,
    "relax.squeeze": shapes.reshape,
    "relax.expand_dims": shapes.reshape,
    "relax.flatten": shapes.reshape,
    "relax.permute_dims": shapes.permute,
    **{name: elementwise.arithmetic for name in elementwise.STEPS},
}
"""Operator of the source → what it becomes; NoIntegerFormError where that can only be float."""
CHAINED = {
    *("relax.qnn.batch_norm", "relax.nn.relu", "relax.clip", "relax.nn.max_pool2d"),
    *elementwise.STEPS,
}
"""Operators that a quantizer takes along."""


def rewrite(model: Model) -> Model:
    """The integer form of an imported model, with layers in float where these have none."""
    context = Context(model)
    main = model.module["main"]
    quantized = sources_of(main, lambda b: _is_quantizer(b.value))
    settled = _settled(main)
    floats = Floats(context, quantized, settled)
    readers = Counter(v for b in needed_bindings(main) for v in variables_in(b.value))
    inputs = int(main.attrs["num_input"])
    for parameter in main.params[:inputs]:
        if shape_of(parameter.ty)[:-1][:1] not in ((), (1,)):
            raise StageError(
                f"the input '{parameter.name}' has the shape {list(shape_of(parameter.ty))}; "
                "the batch size, its first extent, must be 1",
                hint="state a shape under inputs in the recipe",
            )
        variable = context.builder.input(parameter.name, shape_of(parameter.ty), "float32")
        context.values[parameter] = Stayed(variable)
    for parameter in main.params[inputs:]:
        context.values[parameter] = Known(model.params[parameter.name])
    for binding in needed_bindings(main):
        context.layer = str(binding.var.name)
        context.values[binding.var] = _value(context, floats, binding)
        if readers[binding.var] > 1 and binding.var not in settled:
            floats.share(binding.var)
    outputs = []
    for result, name in zip(outputs_of(main), output_names(model), strict=True):
        context.layer = name
        if context.constant(result) is not None:
            raise context.error("a constant stands where an activation is expected")
        outputs.append(floats.tensor(result))
    context.builder.prune(outputs)  # of what was begun in integers, and ended in float
    return context.builder.model_after(model, outputs)


def _value(context: Context, floats: Floats, binding: Any) -> Value:
    expr = binding.value
    if isinstance(expr, relax.Var):
        return context.values[expr]
    if not isinstance(expr, Call):
        raise context.error(f"cannot quantize a {type(expr).__name__}")
    if _is_quantizer(expr):
        return _quantized(context, floats, expr)
    if _is_constant(context, expr):
        return context.folded(expr)
    try:
        if (lowering := LOWERINGS.get(str(expr.op.name))) is not None:
            return lowering(context, expr)
    except NoIntegerFormError:
        pass
    return floats.stay(binding)


def _quantized(context: Context, floats: Floats, call: Any) -> Value:
    """What a quantizer gives: levels, of the floats that it reads where there is no other way, or
    floats where no levels are."""
    lowering, data = QUANTIZERS[str(call.op.name)], call.args[0]
    before = context.values[data]
    try:
        return lowering(context, call)
    except NoIntegerFormError:
        context.values[data] = Stayed(floats.tensor(data))
    try:
        return lowering(context, call)
    except NoIntegerFormError:
        return floats.simulated(call)
    finally:
        context.values[data] = before


def _settled(main: Any) -> set[Any]:
    """The variables that nothing reads but quantizers, if need be behind arithmetic with constants
    and maximum pools."""
    computed = set(main.params[: int(main.attrs["num_input"])])
    for binding in bindings_of(main):
        if not computed.isdisjoint(variables_in(binding.value)):
            computed.add(binding.var)
    others = set(outputs_of(main))
    for binding in reversed(bindings_of(main)):
        read = computed.intersection(variables_in(binding.value))
        is_chained = isinstance(binding.value, Call) and str(binding.value.op.name) in CHAINED
        if _is_quantizer(binding.value) or (len(read) == 1 and is_chained):
            read = read if binding.var in others and is_chained else set()
        others |= read
    return computed - others


def _is_quantizer(expr: Any) -> bool:
    return isinstance(expr, Call) and str(expr.op.name) in QUANTIZERS


def _is_constant(context: Context, call: Any) -> bool:
    """Whether an operator is computed now; transposed weights stay quantized."""
    values = [context.values[variable] for variable in variables_in(call)]
    if str(call.op.name) == "relax.permute_dims" and isinstance(values[0], KnownQuantized):
        return False
    return all(isinstance(value, (Known, KnownQuantized)) for value in values)
