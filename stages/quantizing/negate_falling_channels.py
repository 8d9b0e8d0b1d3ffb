"""Negating channels whose thresholds fall: weights are negated, so that no comparison has to be.

    conv2d(x, w) < t   is   conv2d(x, -w) >= 1 - t

A batch normalization with a negative gain makes its channel fall. Kernels would look up at every
value which channels do; the weights of those are negated once instead, exactly, where that fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.dialect import integer, names
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.dtypes import limits
from stages.graph.bindings import bindings_of, variables_in
from stages.graph.composites import is_linear
from stages.graph.passes import Pass
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Var, VarBinding

LOWEST = 1 - np.iinfo(np.int32).max
"""The lowest limit `t` whose `1 - t` is an int32."""


class NegateFallingChannels(Pass):
    """Has thresholds rise in every channel, behind all weights that can be negated.

    Only sums that nothing but thresholds read are negated, a layer's falling channels all or none.
    """

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.readers: dict[Var, list[Any]] = {}
        for binding in bindings_of(self.main):
            for variable in variables_in(binding.value):
                self.readers.setdefault(variable, []).append(binding.value)
        self.sums: set[Var] = set()
        """Old variables whose falling channels have been negated."""

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A layer with negated channels, or the thresholds behind it."""
        call = binding.value
        if is_linear(call):
            weights = self._weights(binding)
            if weights is None:
                return None
            self.sums.add(binding.var)
            self.redefined.add(str(binding.var.name))
            name, kind = str(call.args[1].name), dtype_of(call.args[1].ty)
            negated = self.builder.tensor(name, weights, kind)
            return Call(call.op, [self.read(call.args[0]), negated], call.attrs)
        if is_op(call, names.QNN_THRESHOLD) and call.args[0] in self.sums:
            return self._rising(call)
        return None

    def _weights(self, binding: VarBinding) -> Array | None:
        """A layer's weights with falling channels negated; None where none is negated."""
        readers = self.readers[binding.var]
        if not all(is_op(reader, names.QNN_THRESHOLD) for reader in readers):
            return None
        falling = self._falling(readers[0])
        if not falling.any() or any(
            np.any(self._falling(reader) != falling) or np.any(self._limits(reader) < LOWEST)
            for reader in readers
        ):
            return None
        stored = self.constants[binding.value.args[1]]
        weights = stored.astype(np.int32)
        doubled = attributes(binding.value)["weight_zero_point"].doubled
        weights[falling] = doubled - weights[falling]
        low, high = limits(dtype_of(binding.value.args[1].ty))
        fits = low <= weights.min() and weights.max() <= high
        return weights.astype(stored.dtype) if fits else None

    def _falling(self, call: Call) -> Array:
        return self.constants[call.args[2]] != 0

    def _limits(self, call: Call) -> Array:
        return self.constants[call.args[1]]

    def _rising(self, call: Call) -> Any:
        """Thresholds of a negated layer."""
        falling, limits = self._falling(call), self._limits(call)
        name, falling_name = (str(operand.name) for operand in call.args[1:])
        return integer.threshold(
            self.mapping[call.args[0]],
            self.builder.tensor(name, np.where(falling, 1 - limits, limits)),
            self.builder.tensor(falling_name, np.zeros(falling.size, np.uint8)),
            **{**attributes(call), "rising": True},
        )
