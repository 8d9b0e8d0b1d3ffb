"""Fewer than 8 bits, for performance studies: QONNX's quantizers put into a folded float model.

Inputs and weights of every layer pass a quantizer; the first and last layer and depthwise ones
keep 8 bits, and so do the operands of additions and means. All scales are powers of two, so that
the float32 model with its quantizers computes without rounding and the integer form that
`quantizing` gives it is exact. Nothing is trained: low bits cost accuracy, not speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.calibrating.observe_ranges import Ranges
from stages.dialect import names
from stages.dialect.calls import is_op
from stages.errors import StageError
from stages.graph.bindings import needed_bindings, output_names, remap, variables_in
from stages.graph.passes import Pass
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics import qonnx_operators
from stages.options import CalibrateOptions

CONV, MATMUL, ADD = names.CONV2D, names.MATMUL, names.ADD
_WIDE = (names.MEAN, names.AVG_POOL2D)
"""Operators whose operand keeps 8 bits."""
_WEIGHT_AXES = {CONV: 0, MATMUL: 1}
CANDIDATES = 4


def quantized_reads(model: Model) -> list[Var]:
    """The variables of `main` that some operator reads through a quantizer."""
    main = model.module["main"]
    constants = set(main.params[int(main.attrs["num_input"]) :])
    found: dict[Var, None] = {}
    for binding in needed_bindings(main):
        if is_op(binding.value, CONV, MATMUL, *_WIDE):
            found[binding.value.args[0]] = None
        elif is_op(binding.value, ADD) and not constants & set(binding.value.args):
            found.update(dict.fromkeys(binding.value.args))
    return list(found)


def insert(model: Model, ranges: Ranges, options: CalibrateOptions) -> Model:
    """The model with quantizers of QONNX; it still computes in float32."""
    return InsertLowBitQuantizers(model, ranges, options).run()


class InsertLowBitQuantizers(Pass):
    """Puts quantizers of QONNX in front of what layers read."""

    def __init__(self, source: Model, ranges: Ranges, options: CalibrateOptions) -> None:
        super().__init__(source)
        self._ranges, self._options = ranges, options
        self._quantized: dict[tuple[Var, int, float], Var] = {}
        self._layers = [
            binding.var
            for binding in needed_bindings(self.main)
            if is_op(binding.value, CONV, MATMUL)
        ]

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings that outputs depend on."""
        return needed_bindings(self.main)

    def finish(self, results: Sequence[Var]) -> Model:
        """The model, whose arithmetic is now that of quantizers."""
        attrs = {"numerics": "simulated", "quantization": "{}"}
        return self.builder.model(results, output_names(self.source), attrs=attrs)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """An operator of quantized operands."""
        variable, value = binding.var, binding.value
        if variable in self._layers and isinstance(value, Call):
            return self._layer(variable, value)
        operands = {each: self.read(each) for each in variables_in(value)}
        if is_op(value, ADD) and not any(each in self.constants for each in value.args):
            scale = max(self._activation_scale(each, 8)[0] for each in value.args)
            operands = {each: self._activation(each, 8, scale) for each in value.args}
        elif is_op(value, *_WIDE):
            operands[value.args[0]] = self._activation(value.args[0], 8)
        return remap(value, operands)

    def _layer(self, variable: Var, call: Call) -> Var:
        """A convolution or matrix product behind the quantizers of its operands."""
        name = str(variable.name)
        if call.args[1] not in self.constants:
            raise StageError("its weights are computed; with fewer than 8 bits they must be "
                             "constant", layer=name)  # fmt: skip
        is_wide = variable in (self._layers[0], self._layers[-1]) or (
            is_op(call, CONV) and int(call.attrs.groups) > 1
        )
        options = self._options
        data = self._activation(call.args[0], 8 if is_wide else options.activations.bits)
        axis = _WEIGHT_AXES[str(call.op.name)]
        weight = self._weight(
            name, self.constants[call.args[1]], axis, 8 if is_wide else options.weights.bits
        )
        mapping = {call.args[0]: data, call.args[1]: weight}
        return self.builder.emit(remap(call, mapping), name)

    def _activation_scale(self, variable: Var, bits: int) -> tuple[float, bool]:
        """Distance of two levels of a variable at a width, and whether it falls below 0."""
        low, high = self._ranges[str(variable.name)](1 << bits, False)
        limit = max(-low, high) or 1.0
        if low >= 0:
            return _power_of_two(limit / ((1 << bits) - 1)), False
        return _power_of_two(limit / (1 << (bits - 1))), True

    def _activation(self, variable: Var, bits: int, scale: float | None = None) -> Var:
        """A variable behind its quantizer, made once for each width and scale."""
        step, is_signed = self._activation_scale(variable, bits)
        step = step if scale is None else scale
        key = (variable, bits, step)
        if key not in self._quantized:
            name = f"{variable.name}.a{bits}"
            value = self.read(variable)
            self._quantized[key] = self.builder.emit(
                self._quantizer(name, value, np.asarray(step), bits, is_signed), name
            )
        return self._quantized[key]

    def _weight(self, layer: str, values: Array, axis: int, bits: int) -> Var:
        name = f"{layer}.weight"
        per_channel = self._options.weights.granularity == "per_channel"
        scale = weight_scale(values, axis, bits, per_channel)
        stored = self.builder.tensor(name, values)
        call = self._quantizer(name, stored, scale, bits, is_signed=True, narrow=bits > 1)
        return self.builder.emit(call, f"{name}.w{bits}")

    def _quantizer(
        self, name: str, value: Expr, scale: Array, bits: int, is_signed: bool, narrow: bool = False
    ) -> Call:
        factor = self.builder.tensor(f"{name}.scale", scale.astype(np.float32))
        if bits == 1 and is_signed:
            return qonnx_operators.bipolar_quant(value, factor)
        zero_point = self.builder.tensor(f"{name}.zero_point", np.zeros((), np.float32))
        return qonnx_operators.quant(
            value, factor, zero_point, bits=bits, signed=is_signed, narrow=narrow, rounding="ROUND"
        )


def weight_scale(values: Array, axis: int, bits: int, per_channel: bool) -> Array:
    """Powers of two with the least squared error, a scalar or one per channel along `axis`."""
    others = tuple(i for i in range(values.ndim) if i != axis)
    wide = values.astype(np.float64)
    if not per_channel:
        others = tuple(range(values.ndim))
    largest = np.abs(wide).max(axis=others, keepdims=True)
    levels = max((1 << (bits - 1)) - 1, 1)
    finest = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1.0) / levels)))
    best, least = finest, np.full(finest.shape, np.inf)
    for shift in range(CANDIDATES):
        scale = finest / 2.0**shift
        if bits == 1:
            nearest = np.where(wide >= 0, scale, -scale)
        else:
            nearest = np.clip(np.rint(wide / scale), -levels, levels) * scale
        error = ((wide - nearest) ** 2).sum(axis=others, keepdims=True)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return best if per_channel else best.reshape(())


def _power_of_two(scale: float) -> float:
    return float(np.exp2(np.rint(np.log2(scale))))
