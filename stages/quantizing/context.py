"""What every lowering of the rewrite sees: values so far, the builder, and the current layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.errors import StageError
from stages.kinds import Model
from stages.qnn.builder import ModelBuilder
from stages.quantizing.chain import Step, step
from stages.quantizing.constants import integer_constant
from stages.quantizing.quantizers import Quantizer, UniformQuantizer
from stages.quantizing.requantizing import quantize_chain
from stages.quantizing.values import Chain, Known, KnownQuantized, Quantized, Value

Array = np.ndarray[Any, Any]
INPUT_INTEGERS = {"UINT8": (0, 255), "INT8": (-128, 127)}
"""Annotations of float graph inputs that hold integers (FINN-ONNX)."""


class Context:
    """The state of one walk; the accessors turn what is not supported into a StageError."""

    def __init__(self, source: Model) -> None:
        self.source = source
        self.builder = ModelBuilder()
        self.values: dict[Any, Value] = {}
        self.layer = ""

    def error(self, message: str, hint: str | None = None) -> StageError:
        """An error about the current layer."""
        return StageError(message, layer=self.layer, hint=hint)

    def known(self, argument: Any, what: str) -> Array:
        """A constant operand."""
        value = self.values[argument]
        if not isinstance(value, Known):
            raise self.error(f"{what} is computed at run time; it must be constant")
        return value.value

    def chain(self, argument: Any) -> Chain:
        """An activation as a chain of float steps over integers (or over a float input)."""
        value = self.values[argument]
        if isinstance(value, Chain):
            return value
        if not isinstance(value, Quantized):
            raise self.error("a constant stands where an activation is expected")
        channels = int(value.variable.ty.shape[-1])
        steps: tuple[Step, ...] = (step("multiply", value.scale),)
        if value.zero_point_x2:
            steps = (step("subtract", value.zero_point_x2 / 2), *steps)
        low, high = np.zeros(channels, np.int32), np.full(channels, value.levels - 1, np.int32)
        return Chain(value.variable, steps, low, high, quantized=value, flattened=value.flattened)

    def step(self, op: str, operand: Any) -> Step:
        """A step with a constant operand, which must be finite and, to divide by, not 0."""
        if not np.all(np.isfinite(operand)) or (op == "divide" and np.any(operand == 0)):
            raise self.error(f"the constant of this {op} is not finite, or 0 where it divides")
        return step(op, operand)

    def activation(self, argument: Any) -> Quantized:
        """An activation that a convolution or matrix product reads."""
        value = self.values[argument]
        if isinstance(value, Quantized):
            return value
        if isinstance(value, Chain):
            absorbed = value.as_quantized()
            if absorbed is not None:
                return absorbed
            if not value.is_integer and not value.steps:
                return self._integer_input(value)
        raise self.error(
            "the input of this layer is not quantized",
            "put a Quant, BipolarQuant or MultiThreshold in front of it",
        )

    def _integer_input(self, chain: Chain) -> Quantized:
        annotations = self.source.module["main"].attrs.get("finn_datatypes", {})
        datatype = str(annotations.get(chain.base.name, ""))
        if datatype not in INPUT_INTEGERS:
            raise self.error(
                f"the graph input '{chain.base.name}' is not quantized",
                f"put a Quant behind it, or annotate it as {' or '.join(INPUT_INTEGERS)}",
            )
        low, high = INPUT_INTEGERS[datatype]
        quantizer = UniformQuantizer(np.float32(1), np.float32(0), low, high, "ROUND")
        return self.quantize(chain, quantizer)

    def weight(self, argument: Any) -> KnownQuantized:
        """The quantized weights of a layer."""
        value = self.values[argument]
        if isinstance(value, Known):
            found = integer_constant(value.value)
            if found is not None:
                return found
        if not isinstance(value, KnownQuantized):
            raise self.error(
                "the weights are not quantized", "put a Quant or BipolarQuant over them"
            )
        return value

    def quantize(self, chain: Chain, quantizer: Quantizer) -> Quantized:
        """Emit the quantized form of a chain; a float picture becomes NHWC first."""
        rank = len(chain.base.ty.shape)
        if rank not in (2, 4):
            raise self.error(
                f"an activation of rank {rank}",
                "activations are [1, features] or [1, channels, height, width]",
            )
        if not chain.is_integer and rank == 4:
            transposed = relax.op.permute_dims(chain.base, [0, 2, 3, 1])
            base = self.builder.emit(transposed, f"{chain.base.name}.nhwc")
            chain = Chain(base, chain.steps, pools=chain.pools)
        return quantize_chain(self.builder, chain, quantizer, self.layer)
