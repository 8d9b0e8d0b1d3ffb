"""Putting quantize_linear and dequantize_linear pairs into a folded float model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from tvm import relax

from stages.calibrating.grids import (
    activation_quantization,
    quantized,
    smallest_weight_scale,
    weight_grid,
)
from stages.calibrating.observe_ranges import Ranges
from stages.calibrating.roles import Roles
from stages.dialect import names
from stages.dialect.calls import is_op
from stages.graph.bindings import needed_bindings, output_names, remap, variables_in
from stages.graph.passes import Pass
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics import linear_quantizers
from stages.numerics.quantization import Quantization
from stages.numerics.quantization_grid import Grid
from stages.options import CalibrateOptions

WEIGHT_AXES = {names.CONV2D: 0, names.MATMUL: 1}
"""Where the output channels of a layer's weights are."""
LEVELS = 256


def insert(model: Model, found: Roles, ranges: Ranges, options: CalibrateOptions) -> Model:
    """The model with every quantized tensor passing its grid, weights and biases as integers.

    It still computes in float32: layers read and give real values, rounded to their grids.
    """
    return InsertQuantizers(model, found, ranges, options).run()


class InsertQuantizers(Pass):
    """Puts a pair of quantize_linear and dequantize_linear behind what gets a grid."""

    def __init__(
        self, source: Model, found: Roles, ranges: Ranges, options: CalibrateOptions
    ) -> None:
        super().__init__(source)
        self._roles, self._options = found, options
        self._steps: dict[Var, Array] = {}
        """Variable of a product → what one step of its sums is worth, float32, scalar or [O]."""
        self._readers: dict[Var, list[Expr]] = defaultdict(list)
        for binding in needed_bindings(self.main):
            for each in variables_in(binding.value):
                self._readers[each].append(binding.value)
        self._quantized = {each: self._quantization(each, ranges) for each in found.quantized}
        for parameter, variable in list(self.mapping.items()):
            self.mapping[parameter] = self._through_grid(parameter, variable)

    def _quantization(self, variable: Var, ranges: Ranges) -> Quantization:
        encoding = self._options.activations.encoding
        owner = self._roles.shared.get(variable, variable)
        while owner in self._roles.shared:
            owner = self._roles.shared[owner]
        ends = ranges[str(owner.name)](LEVELS, encoding == "symmetric")
        return activation_quantization(*ends, encoding)

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings that outputs depend on."""
        return needed_bindings(self.main)

    def finish(self, results: Sequence[Var]) -> Model:
        """The model, whose arithmetic is now that of ONNX."""
        attrs = {"numerics": "onnx", "quantization": "{}"}
        return self.builder.model(results, output_names(self.source), attrs=attrs)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """What a binding gives, rounded to its grid if it has one."""
        return self._through_grid(binding.var, self._emitted(binding.var, binding.value))

    def _emitted(self, variable: Var, value: Expr) -> Var:
        """The new variable for an old binding, in float."""
        for rule in (self._layer, self._bias):
            result = rule(variable, value) if isinstance(value, Call) else None
            if result is not None:
                return result
        operands = {each: self._operand(each, value) for each in variables_in(value)}
        return self.builder.emit(remap(value, operands), str(variable.name))

    def _through_grid(self, variable: Var, value: Var) -> Var:
        """The new variable, rounded to the grid of the old one if it has one."""
        found = self._quantized.get(variable)
        if found is None:
            return value
        name, (low, high) = str(variable.name), found.limits
        scale, zero_point = self._scale(Grid.of(found), name)
        stored = self.builder.emit(
            linear_quantizers.quantize_linear(value, scale, zero_point, low=low, high=high),
            f"{name}.quantized",
        )
        return self._dequantized(stored, scale, zero_point, name)

    def _scale(self, grid: Grid, name: str) -> tuple[Var, Var]:
        """A grid's scale and zero point as parameters."""
        stored = grid.zero_point.astype(grid.dtype)
        return (
            self.builder.tensor(f"{name}.scale", grid.scale),
            self.builder.tensor(f"{name}.zero_point", stored),
        )

    def _dequantized(self, stored: Var, scale: Var, zero_point: Var, name: str) -> Var:
        call = linear_quantizers.dequantize_linear(stored, scale, zero_point)
        return self.builder.emit(call, f"{name}.dequantized")

    def _constant(self, name: str, values: Array, grid: Grid) -> Var:
        """A tensor stored as integers of a grid, dequantized."""
        stored = self.builder.tensor(f"{name}.integers", values)
        return self._dequantized(stored, *self._scale(grid, name), name)

    def _layer(self, variable: Var, call: Call) -> Var | None:
        """A convolution or matrix product of a quantized tensor with constant weights."""
        axis = next((WEIGHT_AXES[name] for name in WEIGHT_AXES if is_op(call, name)), None)
        if axis is None or call.args[1] not in self.constants:
            return None
        origin = self._roles.origin.get(call.args[0])
        if origin is None:
            return None
        weights = self.constants[call.args[1]]
        if weights.ndim <= axis:
            return None
        data = self._quantized[origin]
        channels = weights.shape[axis]
        bias = self._bias_behind(variable)
        smallest = np.zeros(channels)
        if bias is not None:
            smallest = np.broadcast_to(
                smallest_weight_scale(bias.reshape(-1), data.scale), (channels,)
            )
        scheme = self._options.weights
        per_channel = scheme.granularity == "per_channel"
        grid = weight_grid(weights, axis, scheme.encoding, per_channel, smallest)
        name = str(variable.name)
        stored = self._constant(f"{name}.weight", quantized(weights, grid), grid)
        step = (data.scale * grid.scale).astype(np.float32)
        self._steps[variable] = step if step.size == 1 else step.reshape(-1)
        mapping = {call.args[0]: self.mapping[call.args[0]], call.args[1]: stored}
        return self.builder.emit(remap(call, mapping), name)

    def _bias_behind(self, variable: Var) -> Array | None:
        """The constant that the product's one reader adds."""
        readers = self._readers[variable]
        if variable in self._quantized or len(readers) != 1 or not is_op(readers[0], names.ADD):
            return None
        return next(
            (self.constants[each] for each in readers[0].args if each in self.constants), None
        )

    def _bias(self, variable: Var, call: Call) -> Var | None:
        """The addition of a constant to a product: int32 on the grid of its sums."""
        if not is_op(call, names.ADD):
            return None
        products = (each for each in call.args if each in self._steps)
        product = next((each for each in products if each not in self._quantized), None)
        constant = next((each for each in call.args if each in self.constants), None)
        if product is None or constant is None:
            return None
        values, step = self.constants[constant], self._steps[product]
        if step.size > 1:
            step = step.reshape([1 if extent == 1 else -1 for extent in values.shape])
        limit = np.iinfo(np.int32)
        stored = np.clip(np.rint(values.astype(np.float64) / step), limit.min, limit.max)
        grid = Grid(step, np.zeros((), np.int64), "int32")
        addend = self._constant(str(constant.name), stored.astype(np.int32), grid)
        name = str(variable.name)
        return self.builder.emit(relax.op.add(self.mapping[product], addend), name)

    def _operand(self, variable: Var, reader: Expr) -> Var:
        """The new variable of an operand; a constant beside a quantized tensor gets a grid."""
        if variable in self.mapping:
            return self.mapping[variable]
        values, name = self.constants[variable], str(variable.name)
        beside = [each for each in variables_in(reader) if each in self._roles.origin]
        if values.size == 1 or values.dtype != np.float32 or not beside or not _combines(reader):
            return self.read(variable)
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        grid = Grid.of(activation_quantization(low, high, self._options.activations.encoding))
        return self._constant(name, quantized(values, grid), grid)


def _combines(expr: Expr) -> bool:
    """Whether an operator computes with its operands on equal terms."""
    summed = (names.ADD, names.SUBTRACT, names.MULTIPLY)
    return is_op(expr, *summed, names.CONCAT, names.MAXIMUM, names.MINIMUM)
