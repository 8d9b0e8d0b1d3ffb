"""The float fallback: layers of a network with quantizers that have no integer form.

A first layer that reads pixels as they are, a last one with float weights, a softmax between two
quantizers. What they read is made float: an accumulator with all the steps that follow it, or a
tensor of levels. Convolutions, pools and what computes position by position work on images with
their channels last; anything else is the operator of the source, in the source's layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from stages.dialect import integer, names
from stages.dialect.calls import attributes, is_op, shape_of, tensor_types
from stages.dialect.elementwise import ELEMENTWISE
from stages.dialect.operators import OPERATORS
from stages.dialect.relax_numpy import STANDARD
from stages.graph.bindings import remap, variables_in
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics import rule_names
from stages.numerics.qonnx_operators import quant_range
from stages.numerics.quantization import Quantization
from stages.quantizing.chain import Step
from stages.quantizing.context import Context
from stages.quantizing.lower_elementwise import normalization
from stages.quantizing.nhwc_layers import (
    convolution,
    dense,
    is_convolution,
    is_dense,
    is_pool,
    is_simple,
    pool,
)
from stages.quantizing.requantizing import emit_steps
from stages.quantizing.values import Chain, FloatTensor, Value, joined

ROUNDING = {
    **dict.fromkeys(("ROUND", "HALF_EVEN", "ROUND_HALF_EVEN"), relax.op.round),
    "FLOOR": relax.op.floor,
    "CEIL": relax.op.ceil,
}
"""QONNX's rounding modes that are operators."""

ON_OPERANDS_GRID = names.RESHAPES | {
    names.CONCAT,
    names.FLIP,
    names.PERMUTE_DIMS,
    names.STRIDED_SLICE,
}
"""Operators whose results are said to lie on the grid of what they read. Of `names.MOVEMENTS` those
that stand between quantizers; what others move is a float without a grid."""


class FloatFallback:
    """Float tensors of a walk, each made once."""

    def __init__(self, context: Context, quantized: set[Var], only_quantized: set[Var]) -> None:
        """`quantized` are the source's variables from which something is quantized later,
        `only_quantized` those that nothing but quantizers reads, behind steps at most."""
        self.context, self.quantized, self.only_quantized = context, quantized, only_quantized
        self._made: dict[Var, Var] = {}
        """Variable of the source → its float32 values, channels last."""

    def layer(self, binding: VarBinding) -> Value:
        """A layer of the source in float; StageError for an operator that is unknown."""
        call, layer, builder = binding.value, self.context.layer, self.context.builder
        name, is_exact = str(call.op.name), binding.var in self.quantized
        if name == rule_names.QNN_BATCH_NORM:
            return self._normalized(call)
        if (name not in STANDARD and name not in OPERATORS) or len(tensor_types(call.ty)) > 1:
            raise self.context.error(f"there is no operator {name} in networks with quantizers")
        second = call.args[1] if len(call.args) > 1 else None
        weight = self.context.constant(second) if isinstance(second, Var) else None
        if is_convolution(call) and weight is not None:
            data = self.pixels(call.args[0])
            if (
                binding.var in self.only_quantized
                and is_simple(call)
                and int(call.attrs.groups) == 1
            ):
                return Chain(self.context.summed(call, data, weight), ())
            result = convolution(builder, call, data, weight, layer, is_exact=is_exact)
        elif is_pool(call):
            result = pool(builder, call, self.pixels(call.args[0]), layer)
        elif self._is_by_pixel(call):
            result = self._with(call, self.pixels)
        elif is_dense(call) and weight is not None and not is_exact:
            return FloatTensor(dense(builder, call, self.tensor(call.args[0]), weight, layer))
        else:
            return FloatTensor(
                builder.emit(self._with(call, self.tensor), layer), self._quantization(call)
            )
        return Chain(builder.emit(result, layer), ())

    def share(self, variable: Var) -> None:
        """Compute the steps of floats once for all that read them, quantizers too."""
        value = self.context.values[variable]
        if isinstance(value, Chain) and not value.is_integer and (value.steps or value.pools):
            self.context.values[variable] = Chain(self._real(variable), ())

    def simulated(self, call: Call) -> FloatTensor:
        """A Quant whose levels no byte holds, or of several scales, as it is defined."""
        attrs, context, layer = attributes(call), self.context, self.context.layer
        rounding = ROUNDING.get(attrs["rounding"])
        if rounding is None:
            raise context.error(
                f"several scales or more than 8 bits, and {attrs['rounding']} rounding",
                f"such activations are rounded by {', '.join(ROUNDING)}",
            )
        parts = (
            context.known(call.args[1], "the scale"),
            context.known(call.args[2], "the zero point"),
        )
        if not np.all(parts[0] > 0):
            raise context.error("a quantizer's scale is not positive everywhere")
        scale = context.builder.tensor(f"{layer}.scale", parts[0])
        zero_point = context.builder.tensor(f"{layer}.zero_point", parts[1])
        low, high = quant_range(attrs["bits"], attrs["signed"], attrs["narrow"])
        value = self.tensor(call.args[0])
        steps = (
            lambda x: relax.op.divide(x, scale),
            lambda x: relax.op.add(x, zero_point),
            lambda x: relax.op.clip(x, float(low), float(high)),
            rounding,
            lambda x: relax.op.subtract(x, zero_point),
            lambda x: relax.op.multiply(x, scale),
        )
        for number, step in enumerate(steps):
            value = context.builder.emit(step(value), f"{layer}.step{number}")
        return FloatTensor(value)

    def tensor(self, variable: Var) -> Var:
        """A tensor of the source as float32, in the source's layout."""
        value, shape = self.context.values[variable], shape_of(variable.ty)
        if isinstance(value, FloatTensor):
            return value.variable
        if self.context.constant(variable) is not None:
            return self._constant(variable)
        result = self._real(variable)
        if len(shape) == 4 or getattr(value, "flattened", None) is not None:
            result = self.context.channels_first(result)
        return self._shaped(result, shape)

    def pixels(self, variable: Var) -> Var:
        """An image of the source, or one value for all pixels, as float32, channels last."""
        if self.context.constant(variable) is not None:
            return self._constant(variable)
        n, c, h, w = shape_of(variable.ty)
        return self._shaped(self._real(variable), (n, h, w, c))

    def _constant(self, variable: Var) -> Var:
        value = self.context.constant(variable)
        if variable not in self._made and value is not None:
            self._made[variable] = self.context.builder.tensor(str(variable.name), value)
        return self._made[variable]

    def _real(self, variable: Var) -> Var:
        """An activation with all the steps that belong to it, channels last."""
        value = self.context.values[variable]
        if isinstance(value, FloatTensor):
            return self.context.channels_last(value.variable)
        if variable not in self._made:
            self._made[variable] = self._chained(self.context.chain(variable))
        return self._made[variable]

    def _chained(self, chain: Chain) -> Var:
        builder, name = self.context.builder, self.context.layer
        variable, steps = self.context.exact(chain.base), chain.steps
        if chain.is_integer:
            scale = np.ones((), np.float32)
            if steps and steps[0].op == "multiply":
                scale, steps = np.asarray(steps[0].operand), steps[1:]
            tensor = builder.tensor(f"{name}.scale", scale)
            call = integer.dequantize(variable, tensor, zero_point=0)
            variable = builder.emit(call, f"{name}.float")
        variable = emit_steps(builder, variable, steps, name)
        for number, window in enumerate(chain.pools):
            variable = builder.emit(integer.max_pool2d(variable, **window), f"{name}.pool{number}")
        return variable

    def _shaped(self, variable: Var, shape: Sequence[int]) -> Var:
        if shape_of(variable.ty) == tuple(shape):
            return variable
        call = relax.op.reshape(variable, tuple(shape))
        return self.context.builder.emit(call, f"{self.context.layer}.shape")

    def _with(self, call: Call, read: Callable[[Var], Var]) -> Expr:
        """An operator of the source over what `read` gives for its operands."""
        return remap(call, {variable: read(variable) for variable in variables_in(call)})

    def _is_by_pixel(self, call: Call) -> bool:
        """Whether an operator computes every position of images on its own, from equal ones."""
        if str(call.op.name) not in ELEMENTWISE or len(call.ty.shape) != 4:
            return False
        operands = [(a, self.context.constant(a)) for a in variables_in(call)]
        return all(
            shape_of(a.ty) == shape_of(call.ty) if c is None else c.size == 1 for a, c in operands
        )

    def _quantization(self, call: Call) -> Quantization | None:
        """What the values of a result are that are levels, moved about."""
        is_padding = is_op(call, names.PAD)
        if str(call.op.name) not in ON_OPERANDS_GRID and not is_padding:
            return None
        found = [self.context.quantization(variable) for variable in variables_in(call)]
        total = found[0]
        for each in found[1:]:
            total = joined(total, each) if total and each else None
        if total and is_padding and not (_pads_with_zeros(call) and total.levels.has_zero):
            return None
        return total

    def _normalized(self, call: Call) -> FloatTensor:
        """Batch normalization along any axis."""
        steps, axis = normalization(self.context, call)
        behind = [1] * (len(call.ty.shape) - 1 - axis % len(call.ty.shape))
        aligned = [Step(s.op, s.operand.reshape(-1, *behind)) for s in steps]
        data = self.tensor(call.args[0])
        return FloatTensor(emit_steps(self.context.builder, data, aligned, self.context.layer))


def _pads_with_zeros(call: Call) -> bool:
    """Whether a padding is of zeros, and not of what is inside."""
    return str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0
