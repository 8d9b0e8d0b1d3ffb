"""A float graph made ready: constants computed, batch norms folded, convolutions NCHW.

A convolution or matrix product with constant weights takes in whatever scales or shifts its
channels behind it: biases, batch normalizations, multiplications by constants. It ends as one
product with one bias, which is what is quantized.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from stages.calibrating.to_nchw import convolution, on_nchw, output_channel_axis
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.operators import OPERATORS
from stages.dialect.relax_numpy import STANDARD
from stages.graph.bindings import needed_bindings, output_names, outputs_of, variables_in
from stages.graph.passes import Pass
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Op, Var, VarBinding
from stages.numerics.qonnx_operators import batch_norm


@dataclass(frozen=True)
class Linear:
    """A convolution or matrix product that is not emitted yet.

    `weight` is float64 in the source's layout with output channels along `axis`; the result is
    `call(data, weight)`, plus `bias` [O] along `channel_axis` where there is one.
    """

    name: str
    call: Call
    weight: Array
    axis: int
    channel_axis: int
    bias: Array | None = None

    def then(self, factor: Array, shift: Array) -> Linear:
        """The product with `factor * result + shift` [O] behind it."""
        extents = [1] * self.weight.ndim
        extents[self.axis] = -1
        weight = self.weight * factor.reshape(extents)
        bias = shift if self.bias is None else self.bias * factor + shift
        return replace(self, weight=weight, bias=bias if np.any(bias) or self.bias is not None
                       or np.any(shift) else None)  # fmt: skip


def fold(model: Model) -> Model:
    """A model of the same function with less to quantize; attributes of `main` stay."""
    return FoldIntoLayers(model).run()


class FoldIntoLayers(Pass):
    """Computes what is constant, and has layers take in what acts on their channels."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self._pending: dict[Var, Linear] = {}
        self._readers = Counter(
            each for binding in needed_bindings(self.main) for each in variables_in(binding.value)
        )
        self._readers.update(outputs_of(self.main))

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings that outputs depend on."""
        return needed_bindings(self.main)

    def finish(self, results: Sequence[Var]) -> Model:
        """The model with all attributes of the source."""
        attrs = {
            str(key): value
            for key, value in self.main.attrs.items()
            if key not in ("global_symbol", "num_input", "output_names")
        }
        return self.builder.model(results, output_names(self.source), attrs=attrs)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A constant, a layer that waits for what acts on its channels, or a layer in NCHW."""
        variable, value = binding.var, binding.value
        constant = self._computed(value)
        if constant is not None:
            self.constants[variable] = constant
            return None
        linear = self._linear(variable, value) or self._folded(value)
        if linear is None:
            return on_nchw(self.builder, self.remapped(value), str(variable.name))
        self._pending[variable] = linear
        self.defer(variable, lambda: self._emit(linear))
        return None

    def _emit(self, linear: Linear) -> Var:
        data = self.read(linear.call.args[0])
        weight = linear.weight.astype(np.float32)
        bias = None if linear.bias is None else linear.bias.astype(np.float32)
        if is_op(linear.call, names.CONV2D):
            return convolution(self.builder, linear.name, linear.call, data, weight, bias)
        tensor = self.builder.tensor(f"{linear.name}.weight", weight)
        result = self.builder.emit(relax.op.matmul(data, tensor), linear.name)
        if bias is None:
            return result
        addend = self.builder.tensor(f"{linear.name}.bias_values", bias)
        return self.builder.emit(relax.op.add(result, addend), f"{linear.name}.bias")

    def _computed(self, value: Expr) -> Array | None:
        """The value of an expression over constants alone."""
        if not (isinstance(value, Call) and isinstance(value.op, Op)):
            return None
        operands = variables_in(value)
        if not operands or any(each not in self.constants for each in operands):
            return None
        tensors, name = [self.constants[each] for each in operands], str(value.op.name)
        if name in OPERATORS:
            return np.asarray(OPERATORS[name].meaning(*tensors, **attributes(value)))
        if name in STANDARD and isinstance(value.ty, relax.TensorType):
            return np.asarray(STANDARD[name](value, *tensors)).reshape(shape_of(value.ty))
        return None

    def _linear(self, variable: Var, value: Expr) -> Linear | None:
        """A new product with constant weights."""
        if not is_op(value, names.CONV2D, names.MATMUL) or dtype_of(value.ty) != "float32":
            return None
        weight = self.constants.get(value.args[1])
        if weight is None or value.args[0] in self.constants:
            return None
        if is_op(value, names.CONV2D):
            axis, channel_axis = output_channel_axis(value)
        elif weight.ndim == 2:
            axis, channel_axis = 1, len(shape_of(value.ty)) - 1
        else:
            return None
        wide = weight.astype(np.float64)
        return Linear(str(variable.name), value, wide, axis, channel_axis)

    def _folded(self, value: Expr) -> Linear | None:
        """A pending product with one more step that acts on its channels."""
        if not isinstance(value, Call):
            return None
        for place, operand in enumerate(value.args):
            linear = self._pending.get(operand)
            if linear is None or self._readers[operand] != 1 or operand in self.mapping:
                continue
            step = self._step(value, place, linear)
            return None if step is None else linear.then(*step)
        return None

    def _step(self, call: Call, place: int, linear: Linear) -> tuple[Array, Array] | None:
        """`factor` and `shift` [O] of a step behind a product, which is operand `place`."""
        shape = shape_of(call.args[place].ty)
        channels = shape[linear.channel_axis]
        if is_op(call, batch_norm.name) and place == 0:
            return self._normalization(call, len(shape), linear.channel_axis, channels)
        if len(call.args) != 2 or shape_of(call.ty) != shape:
            return None
        constant = self.constants.get(call.args[1 - place])
        if constant is None:
            return None
        other = _along(constant, len(shape), linear.channel_axis, channels)
        if other is None:
            return None
        one, zero = np.ones(channels), np.zeros(channels)
        if is_op(call, names.ADD):
            return one, other
        if is_op(call, names.SUBTRACT):
            return (one, -other) if place == 0 else (-one, other)
        if is_op(call, names.MULTIPLY):
            return other, zero
        if is_op(call, names.DIVIDE) and place == 0 and np.all(other != 0):
            return 1 / other, zero
        return None

    def _normalization(
        self, call: Call, rank: int, axis: int, channels: int
    ) -> tuple[Array, Array] | None:
        attrs = attributes(call)
        if attrs.get("channel_axis", 1) % rank != axis:
            return None
        found = [self.constants.get(each) for each in call.args[1:]]
        tensors = [each.astype(np.float64).reshape(-1) for each in found if each is not None]
        if len(tensors) != len(found) or any(each.size not in (1, channels) for each in tensors):
            return None
        gamma, beta, mean, variance = (np.broadcast_to(each, (channels,)) for each in tensors)
        factor = gamma / np.sqrt(variance + attrs["epsilon"])
        return factor, beta - mean * factor


def _along(constant: Array, rank: int, axis: int, channels: int) -> Array | None:
    """A constant as float64 [channels], if it varies along the channel axis at most."""
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(extent != 1 and i != axis for i, extent in enumerate(shape)):
        return None
    flat = constant.astype(np.float64).reshape(-1)
    return np.broadcast_to(flat, (channels,)).copy()
