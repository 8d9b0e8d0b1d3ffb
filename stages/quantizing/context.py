"""What every lowering of the rewrite sees: values so far, the builder, and the current layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from tvm import relax

from stages.dialect.float_linear import float_conv2d
from stages.dialect.levels import Levels
from stages.errors import NoIntegerFormError, StageError
from stages.graph import interpret
from stages.graph.bindings import variables_in
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model
from stages.nodes import Call, Var
from stages.numerics.quantization import Quantization
from stages.quantizing.chain import Step, step
from stages.quantizing.level_boundaries import ExactConvolution, resummed
from stages.quantizing.nhwc_layers import convolution, padded
from stages.quantizing.quantized_constants import integer_constant
from stages.quantizing.requantizing import quantize_chain
from stages.quantizing.source_quantizers import Quantizer, UniformQuantizer
from stages.quantizing.values import (
    Chain,
    FloatTensor,
    Known,
    KnownQuantized,
    Quantized,
    Value,
)

RANKS = (2, 4)
"""Ranks of activations that are levels: features, or an image."""
INPUT_INTEGERS = {"UINT8": (0, 255), "INT8": (-128, 127)}
"""Annotations of float graph inputs that hold integers (FINN-ONNX)."""


class Context:
    """The state of one walk; the accessors raise StageError for what is not supported."""

    def __init__(self, source: Model) -> None:
        self.source = source
        self.builder = ModelBuilder()
        self.values: dict[Var, Value] = {}
        self.layer = ""
        self._transposed: dict[Var, Var] = {}
        """Image → the same with its channels last, and back."""
        self._sums: dict[Var, tuple[ExactConvolution, Callable[[], Var]]] = {}
        """Sums of float32 → what they are of, and how they are taken exactly."""
        self._exact: dict[Var, Var] = {}
        self._levels: dict[Var, Quantized] = {}
        """Floats that are levels moved about → these levels."""

    def error(self, message: str, hint: str | None = None) -> StageError:
        """An error about the current layer."""
        return StageError(message, layer=self.layer, hint=hint)

    def no_form(self, message: str) -> NoIntegerFormError:
        """The error that says why the current layer can only be computed in float."""
        return NoIntegerFormError(message, layer=self.layer)

    def constant(self, argument: Var) -> Array | None:
        """The value of a constant operand; None for one that is computed."""
        value = self.values[argument]
        if isinstance(value, Known):
            return value.value
        return value.floats if isinstance(value, KnownQuantized) else None

    def folded(self, call: Call) -> Known:
        """What an operator gives whose arguments are all constant."""
        tensors = {variable: self.constant(variable) for variable in variables_in(call)}
        return Known(np.asarray(interpret.evaluate(call, tensors), np.float32))

    def known(self, argument: Var, what: str) -> Array:
        """A constant operand."""
        value = self.constant(argument)
        if value is None:
            raise self.error(f"{what} is computed at run time; it must be constant")
        return value

    def channels_last(self, variable: Var) -> Var:
        """A float tensor of the source with the channels of an image last."""
        return self._transpose(variable, [0, 2, 3, 1], f"{variable.name}.nhwc")

    def channels_first(self, variable: Var) -> Var:
        """A float tensor with the channels of an image where the source has them."""
        return self._transpose(variable, [0, 3, 1, 2], f"{variable.name}.nchw")

    def _transpose(self, variable: Var, order: list[int], name: str) -> Var:
        if len(variable.ty.shape) != 4:
            return variable
        if variable not in self._transposed:
            result = self.builder.emit(relax.op.permute_dims(variable, order), name)
            self._transposed |= {variable: result, result: variable}
        return self._transposed[variable]

    def chain(self, argument: Var) -> Chain:
        """An activation as a chain of float steps over integers (or over floats)."""
        value = self._leveled(argument)
        if isinstance(value, Chain):
            return value
        if isinstance(value, FloatTensor):
            return Chain(self.channels_last(value.variable), ())
        if not isinstance(value, Quantized):
            raise self.error("a constant stands where an activation is expected")
        channels = int(value.variable.ty.shape[-1])
        of = value.quantization
        steps: tuple[Step, ...] = (step("multiply", of.scale),)
        if of.zero_point:
            steps = (step("subtract", of.zero_point.number), *steps)
        low, high = np.zeros(channels, np.int32), np.full(channels, of.levels.high, np.int32)
        return Chain(value.variable, steps, low, high, quantized=value, flattened=value.flattened)

    def step(self, op: str, operand: ArrayLike) -> Step:
        """A step with a constant operand, which must be finite and, to divide by, not 0."""
        if not np.all(np.isfinite(operand)) or (op == "divide" and np.any(operand == 0)):
            raise self.error(f"the constant of this {op} is not finite, or 0 where it divides")
        return step(op, operand)

    def activation(self, argument: Var) -> Quantized:
        """An activation that a convolution or matrix product reads."""
        value = self._leveled(argument)
        if isinstance(value, Quantized):
            return value
        if isinstance(value, Chain):
            absorbed = value.as_quantized()
            if absorbed is not None:
                return absorbed
        if isinstance(value, FloatTensor):
            return self._integer_input(value)
        raise self.no_form("the input of this layer is not quantized")

    def quantization(self, argument: Var) -> Quantization | None:
        """What the values of an activation are, of one that is levels."""
        value = self.values[argument]
        found = value.as_quantized() if isinstance(value, Chain) else value
        if isinstance(found, FloatTensor):
            return found.quantization
        if not isinstance(found, Quantized) or not found.quantization.scale > 0:
            return None
        return found.quantization

    def _leveled(self, argument: Var) -> Value:
        """A value; of floats that are levels moved about, these."""
        value = self.values[argument]
        if not isinstance(value, FloatTensor) or value.quantization is None:
            return value
        if len(value.variable.ty.shape) not in RANKS:
            return value
        if value.variable not in self._levels:
            quantizer = UniformQuantizer(value.quantization, "ROUND")
            moved = Chain(self.channels_last(value.variable), ())
            self._levels[value.variable] = self.quantize(moved, quantizer)
        return self._levels[value.variable]

    def _integer_input(self, value: FloatTensor) -> Quantized:
        annotations = self.source.module["main"].attrs.get("finn_datatypes", {})
        datatype = str(annotations.get(value.variable.name, ""))
        if datatype not in INPUT_INTEGERS:
            raise self.no_form("the input of this layer is not quantized")
        low, high = INPUT_INTEGERS[datatype]
        quantizer = UniformQuantizer(Quantization(np.float32(1), Levels(low, high)), "ROUND")
        return self.quantize(Chain(self.channels_last(value.variable), ()), quantizer)

    def weight(self, argument: Var) -> KnownQuantized:
        """The quantized weights of a layer."""
        value = self.values[argument]
        if isinstance(value, Known):
            found = integer_constant(value.value)
            if found is not None:
                return found
        if not isinstance(value, KnownQuantized):
            raise self.no_form("the weights are not quantized")
        return value

    def summed(self, call: Call, data: Var, weight: Array) -> Var:
        """Sums of a float convolution [O, I, KH, KW]; `quantize` makes them exact, near level
        boundaries or everywhere."""
        read = padded(self.builder, call, data, self.layer)
        strides = tuple(int(n) for n in call.attrs.strides)
        last = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
        tensor = self.builder.tensor(f"{call.args[1].name}.ohwi", last)
        of = ExactConvolution(read, tensor, last, strides)
        product = float_conv2d(read, tensor, strides=list(strides), groups=1, is_direct=True)
        result = self.builder.emit(product, self.layer)
        name = f"{result.name}.exact"

        def exactly() -> Var:
            made = convolution(self.builder, call, data, weight, name, is_exact=True)
            return self.builder.emit(made, name)

        self._sums[result] = of, exactly
        return result

    def exact(self, base: Var) -> Var:
        """What a chain begins with, with exact sums."""
        if base in self._sums and base not in self._exact:
            self._exact[base] = self._sums[base][1]()
        return self._exact.get(base, base)

    def quantize(self, chain: Chain, quantizer: Quantizer) -> Quantized:
        """Emit the quantized form of a chain."""
        if chain.base in self._sums:
            of, _ = self._sums[chain.base]
            base = resummed(self.builder, chain.base, of, chain.steps, quantizer)
            chain = replace(chain, base=self.exact(chain.base) if base is None else base)
        rank = len(chain.base.ty.shape)
        if rank not in RANKS:
            raise self.error(
                f"an activation of rank {rank}",
                "activations are [1, features] or [1, channels, height, width]",
            )
        return quantize_chain(self.builder, chain, quantizer, self.layer)
