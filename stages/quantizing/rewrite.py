"""Walk a source graph once and emit its integer form, NHWC, value by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.errors import StageError
from stages.kinds import Model
from stages.qnn import integer
from stages.qnn.builder import bindings_of, output_names
from stages.qnn.registry import shape_of
from stages.qnn.standard import STANDARD
from stages.quantizing import lower_elementwise as elementwise
from stages.quantizing import lower_linear as linear
from stages.quantizing import lower_quantizers as quantizers
from stages.quantizing import lower_shapes as shapes
from stages.quantizing.context import Context
from stages.quantizing.requantizing import emit_steps
from stages.quantizing.values import Chain, Known, Value

LOWERINGS: Mapping[str, Callable[[Context, Any], Value]] = {
    "relax.qnn.quant": quantizers.quant,
    "relax.qnn.bipolar_quant": quantizers.bipolar_quant,
    "relax.qnn.multi_threshold": quantizers.multi_threshold,
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
"""Source operator → what it becomes."""


def rewrite(model: Model) -> Model:
    """The integer form of an imported model; StageError names a layer that has none."""
    context = Context(model)
    main = model.module["main"]
    inputs = int(main.attrs["num_input"])
    for parameter in main.params[:inputs]:
        if shape_of(parameter.ty)[:1] != (1,):
            raise StageError(
                f"the input '{parameter.name}' has the shape {list(shape_of(parameter.ty))}; "
                "the batch size, its first extent, must be 1",
                hint="state a shape under inputs in the recipe",
            )
        variable = context.builder.input(parameter.name, shape_of(parameter.ty), "float32")
        context.values[parameter] = Chain(variable, ())
    for parameter in main.params[inputs:]:
        context.values[parameter] = Known(model.params[parameter.name])
    for binding in _needed(main):
        context.layer = str(binding.var.name)
        context.values[binding.var] = _value(context, binding.value)
    body, names = main.body.body, output_names(model)
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    outputs = [_output(context, r, name) for r, name in zip(results, names, strict=True)]
    return context.builder.model_after(model, outputs)


def _needed(main: Any) -> list[Any]:
    """The bindings that outputs depend on, in order."""
    body = main.body.body
    needed = set(body.fields if isinstance(body, relax.Tuple) else [body])
    result = []
    for binding in reversed(bindings_of(main)):
        if binding.var in needed:
            needed.update(getattr(binding.value, "args", [binding.value]))
            result.append(binding)
    return result[::-1]


def _value(context: Context, expr: Any) -> Value:
    if isinstance(expr, relax.Var):
        return context.values[expr]
    if not isinstance(expr, Call):
        raise context.error(f"cannot quantize a {type(expr).__name__}")
    name = str(expr.op.name)
    known = _fold(context, name, expr)
    if known is not None:
        return known
    if name not in LOWERINGS:
        raise context.error(f"operator {name} has no integer form")
    return LOWERINGS[name](context, expr)


def _fold(context: Context, name: str, call: Any) -> Known | None:
    """The value of a standard operator whose arguments are all constants."""
    arguments = [context.values.get(a) for a in call.args if isinstance(a, relax.Var)]
    if name not in STANDARD or not all(isinstance(a, Known) for a in arguments):
        return None
    tensors = [a.value for a in arguments if isinstance(a, Known)]
    return Known(np.asarray(STANDARD[name](call, *tensors)).reshape(shape_of(call.ty)))


def _output(context: Context, result: Any, name: str) -> Any:
    """A graph output as the source lays it out: float32, NCHW."""
    context.layer = name
    chain, builder, shape = context.chain(result), context.builder, shape_of(result.ty)
    if not chain.is_integer:
        raise StageError(
            "this output is float arithmetic on a graph input, without a quantizer",
            layer=name,
            hint="quantize the input, or leave this output out of the model",
        )
    if chain.pools:
        raise StageError("max pooling of a float output has no integer form", layer=name)
    variable = chain.base
    steps = chain.steps
    scale = np.ones((), np.float32)
    if steps and steps[0].op == "multiply":
        scale, steps = np.asarray(steps[0].operand), steps[1:]
    call = integer.dequantize(variable, builder.tensor(f"{name}.scale", scale), zero_point=0)
    variable = builder.emit(call, f"{name}.float")
    variable = emit_steps(builder, variable, Chain(variable, steps), name)
    if len(variable.ty.shape) == 4 and (len(shape) == 4 or chain.flattened is not None):
        variable = builder.emit(relax.op.permute_dims(variable, [0, 3, 1, 2]), f"{name}.nchw")
    if shape_of(variable.ty) != shape:
        variable = builder.emit(relax.op.reshape(variable, shape), f"{name}.shape")
    return variable
