"""Quantizing layers: one walk over a source graph emits its integer form, NHWC, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from stages.dialect import names
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
from stages.nodes import Call, Expr, Function, Var, VarBinding
from stages.numerics import rule_names
from stages.quantizing.context import Context
from stages.quantizing.float_fallback import FloatFallback
from stages.quantizing.lower_elementwise import STEPS, arithmetic, batch_norm, clip, relu
from stages.quantizing.lower_linear import conv2d, matmul
from stages.quantizing.lower_quantizers import bipolar_quant, multi_threshold, quant
from stages.quantizing.lower_shapes import average_pool, max_pool, mean, permute, reshape
from stages.quantizing.nhwc_layers import sources_of
from stages.quantizing.values import FloatTensor, Known, KnownQuantized, Value

QUANTIZERS: Mapping[str, Callable[[Context, Call], Value]] = {
    rule_names.QNN_QUANT: quant,
    rule_names.QNN_BIPOLAR_QUANT: bipolar_quant,
    rule_names.QNN_MULTI_THRESHOLD: multi_threshold,
}
LOWERINGS: Mapping[str, Callable[[Context, Call], Value]] = {
    rule_names.QNN_BATCH_NORM: batch_norm,
    names.CONV2D: conv2d,
    names.MATMUL: matmul,
    names.RELU: relu,
    names.CLIP: clip,
    names.MAX_POOL2D: max_pool,
    names.AVG_POOL2D: average_pool,
    names.MEAN: mean,
    names.RESHAPE: reshape,
    names.SQUEEZE: reshape,
    names.EXPAND_DIMS: reshape,
    names.FLATTEN: reshape,
    names.PERMUTE_DIMS: permute,
    **{name: arithmetic for name in STEPS},
}
"""Operator of the source → what it becomes; NoIntegerFormError where that can only be float."""
CHAINED = {
    *(rule_names.QNN_BATCH_NORM, names.RELU, names.CLIP, names.MAX_POOL2D),
    *STEPS,
}
"""Operators that a quantizer takes along."""


class QuantizeLayers:
    """Gives the integer form of an imported model, with layers in float where these have none.

    It runs as a pass and is no `Pass`: a variable of the source does not become a variable but a
    value (`values.py`), which may be a chain of steps that nothing has computed yet.
    """

    def __init__(self, source: Model) -> None:
        self.source = source
        self.rewrites = 0
        self.redefined: set[str] = set()
        self.main: Function = source.module["main"]
        self.context = Context(source)
        self.unread = only_quantized(self.main)
        quantized = sources_of(self.main, lambda b: _is_quantizer(b.value))
        self.floats = FloatFallback(self.context, quantized, self.unread)

    def run(self) -> Model:
        """Walk over what outputs need, and emit it value by value."""
        context, main = self.context, self.main
        self._declare()
        readers = Counter(v for b in needed_bindings(main) for v in variables_in(b.value))
        for binding in needed_bindings(main):
            context.layer = str(binding.var.name)
            context.values[binding.var] = _value(context, self.floats, binding)
            self.rewrites += isinstance(binding.value, Call)
            if readers[binding.var] > 1 and binding.var not in self.unread:
                self.floats.share(binding.var)
        outputs = []
        for result, name in zip(outputs_of(main), output_names(self.source), strict=True):
            context.layer = name
            if context.constant(result) is not None:
                raise context.error("a constant stands where an activation is expected")
            outputs.append(self.floats.tensor(result))
        context.builder.prune(outputs)  # of what was begun in integers, and ended in float
        return context.builder.model_after(self.source, outputs)

    def _declare(self) -> None:
        """Graph inputs, of one image, and the tensors of the source."""
        context, inputs = self.context, int(self.main.attrs["num_input"])
        for parameter in self.main.params[:inputs]:
            shape = shape_of(parameter.ty)
            if shape[:-1][:1] not in ((), (1,)):
                raise StageError(
                    f"the input '{parameter.name}' has the shape {list(shape)}; "
                    "the batch size, its first extent, must be 1",
                    hint="state a shape under inputs in the recipe",
                )
            variable = context.builder.input(parameter.name, shape, "float32")
            context.values[parameter] = FloatTensor(variable)
        for parameter in self.main.params[inputs:]:
            context.values[parameter] = Known(self.source.params[parameter.name])


def _value(context: Context, floats: FloatFallback, binding: VarBinding) -> Value:
    expr = binding.value
    if isinstance(expr, Var):
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
    return floats.layer(binding)


def _quantized(context: Context, floats: FloatFallback, call: Call) -> Value:
    """What a quantizer gives: levels, of the floats that it reads where there is no other way, or
    floats where no levels are."""
    lowering, data = QUANTIZERS[str(call.op.name)], call.args[0]
    before = context.values[data]
    try:
        return lowering(context, call)
    except NoIntegerFormError:
        context.values[data] = FloatTensor(floats.tensor(data))
    try:
        return lowering(context, call)
    except NoIntegerFormError:
        return floats.simulated(call)
    finally:
        context.values[data] = before


def only_quantized(main: Function) -> set[Var]:
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


def _is_quantizer(expr: Expr) -> bool:
    return isinstance(expr, Call) and str(expr.op.name) in QUANTIZERS


def _is_constant(context: Context, call: Call) -> bool:
    """Whether an operator is computed now; transposed weights stay quantized."""
    values = [context.values[variable] for variable in variables_in(call)]
    if str(call.op.name) == names.PERMUTE_DIMS and isinstance(values[0], KnownQuantized):
        return False
    return all(isinstance(value, (Known, KnownQuantized)) for value in values)
