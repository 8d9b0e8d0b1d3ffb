"""Choosing the algorithm of every layer of levels, and the form of operands that it takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stages.dialect import integer
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.zero_point import AT_ZERO
from stages.errors import StageError
from stages.graph.bindings import bindings_of
from stages.graph.composites import has_own, is_linear, takes_depthwise
from stages.graph.passes import Pass
from stages.kernels.channel_groups import dense
from stages.kernels.kernel_candidates import Method
from stages.kinds import Array, Model, Table
from stages.layer_options import Algorithm
from stages.legalizing.choice import BUILDERS, Layer, choose, layer_of, shared
from stages.nodes import Call, Expr, Var, VarBinding


class ChooseAlgorithms(Pass):
    """Has each convolution and matrix product computed on bits, by look-ups or on bytes."""

    def __init__(
        self, source: Model, overrides: Mapping[str, Algorithm], offers: Table, choices: Table
    ) -> None:
        super().__init__(source)
        self.offers, self.choices = offers, choices
        self.overrides: dict[str, Method] = {**overrides, **self._shared(overrides)}

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A layer with its algorithm, by name or by its operands."""
        return self._linear(binding) if is_linear(binding.value) else None

    def _shared(self, overrides: Mapping[str, Algorithm]) -> dict[str, Method]:
        """Layer → the algorithm that it shares with other readers of its input."""
        readers: dict[Var, list[Layer]] = {}
        for binding in bindings_of(self.main):
            if is_linear(binding.value) and str(binding.var.name) not in overrides:
                data, weight = binding.value.args
                readers.setdefault(data, []).append(layer_of(binding, self.constants[weight]))
        found: dict[str, Method] = {}
        for layers in readers.values():
            if len(layers) > 1 and (algorithm := shared(layers, self.offers)):
                found |= {layer.name: algorithm for layer in layers}
        return found

    def _linear(self, binding: VarBinding) -> Expr:
        call, name = binding.value, str(binding.var.name)
        attrs = attributes(call)
        data, weight = call.args
        q = self.constants[weight]
        is_conv = is_op(call, "relax.qnn.conv2d")
        layer = layer_of(binding, q)
        if takes_depthwise(call, q):
            return self._depthwise(call, layer)
        algorithm = choose(layer, self.overrides.get(name), self.offers, self.choices)
        if algorithm != "mac8":
            tensor = self.builder.tensor(weight.name, q, dtype_of(weight.ty))
            build = BUILDERS[algorithm, is_conv]
        else:
            tensor = self.builder.tensor(weight.name, _products_weight(layer))
            attrs["weight_zero_point"] = AT_ZERO
            if has_own(call):
                attrs["groups"] = 1
            build = integer.conv2d if is_conv else integer.dense
        return build(self.read(data), tensor, **attrs)

    def _depthwise(self, call: Call, layer: Layer) -> Expr:
        """A convolution of every channel on its own, which there is one way to compute."""
        wanted = self.overrides.get(layer.name, "mac8")
        if wanted != "mac8":
            raise StageError(
                f"cannot choose {wanted}: it multiplies every channel on its own",
                layer=layer.name,
                hint="use algorithm: mac8",
            )
        weight = str(call.args[1].name)
        tensor = self.builder.tensor(weight, layer.numerators.astype(np.int8))
        attrs = {**attributes(call), "weight_zero_point": AT_ZERO}
        return integer.conv2d(self.read(call.args[0]), tensor, **attrs)


def _products_weight(layer: Layer) -> Array:
    """Weights as int8 numerators; channels that are multiplied on their own are one group, with
    zeros between."""
    values = layer.numerators
    if values.max() > 127 or values.min() < -128:
        raise StageError("the weights do not fit 8 bits with their zero point", layer=layer.name)
    levels = values.astype(np.int8)
    groups = layer.attrs.get("groups", 1)
    return dense(levels, groups) if groups > 1 and levels.shape[-1] == 1 else levels
