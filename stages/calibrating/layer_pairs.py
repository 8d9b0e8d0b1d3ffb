"""The layers of a calibrated model, each in float32 and with its quantizers.

A layer is a product, a sum of tensors or another operator of its own, with whatever follows it
element by element: bias, activation function, clip. It is called as the first of them. What it
quantizes are its constants and the tensor it gives.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of
from stages.dialect.dtypes import parse
from stages.dialect.elementwise import ELEMENTWISE
from stages.graph import interpret
from stages.graph.bindings import needed_bindings, output_names, outputs_of, variables_in
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Var

_QUANTIZERS = ("quantize_linear", "dequantize_linear", "quant", "bipolar_quant")
_FOLLOWING = (names.RELU, names.CLIP, names.ADD, names.MULTIPLY, names.SUBTRACT)


@dataclass
class Layer:
    """A layer of both models; variables are those of the one with quantizers."""

    name: str
    members: list[str]
    """The names of all variables that belong to it."""
    end: str
    """The one whose value it gives."""
    weight_bits: int | None = None
    """Bits of the layer's weights; None where it has none."""
    constants: dict[Var, Array] = field(default_factory=dict)
    """What a quantizer gives → the constant in float32 that it was made of."""
    quantizers: dict[Var, Any] = field(default_factory=dict)
    """What a quantizer gives → the variable that it rounds."""


class LayerPairs:
    """A float model as it was folded, and the same with quantizers; both compute in float32."""

    def __init__(self, in_float: Model, quantized: Model) -> None:
        self.in_float, self.quantized = in_float, quantized
        main = quantized.module["main"]
        self._bindings = [
            (binding.var, binding.value, set(variables_in(binding.value)))
            for binding in needed_bindings(main)
        ]
        self._roots = _roots(quantized)
        self.layers = [layer for layer in self._found() if layer.constants or layer.quantizers]

    def values(self, sample: Mapping[str, Array]) -> dict[Var, Any]:
        """The value of every variable of the model with quantizers."""
        main, params = self.quantized.module["main"], self.quantized.params
        count = int(main.attrs["num_input"])
        values = {each: sample[str(each.name)] for each in main.params[:count]}
        values |= {each: params[str(each.name)] for each in main.params[count:]}
        for variable, value, _reads in self._bindings:
            values[variable] = interpret.evaluate(value, values)
        return values

    def without(self, layer: Layer, values: Mapping[Var, Array]) -> dict[Var, Any]:
        """The values that change where one layer computes in float32 and rounds nothing.

        What it reads stays as quantized as it was.
        """
        changed: dict[Var, Any] = dict(layer.constants)
        both = ChainMap(changed, dict(values))
        for variable, value, reads in self._bindings:
            if variable in layer.constants:
                continue
            if variable in layer.quantizers:
                changed[variable] = both[layer.quantizers[variable]]
            elif not reads.isdisjoint(changed):
                changed[variable] = interpret.evaluate(value, both)
        return changed

    def outputs(self, values: Mapping[Var, Array]) -> dict[str, Array]:
        """The outputs by their names."""
        found = outputs_of(self.quantized.module["main"])
        return dict(
            zip(output_names(self.quantized), (values[each] for each in found), strict=True)
        )

    def given(self, layer: Layer, values: Mapping[Var, Array]) -> Array:
        """What the layers behind read of a layer: rounded, if all of them read it so."""
        named = next(v for v in values if str(v.name) == layer.end)
        rounded = [v for v, root in layer.quantizers.items() if root is named or root == named]
        return np.asarray(values[rounded[0] if len(rounded) == 1 else named])

    def _found(self) -> Iterator[Layer]:
        main = self.in_float.module["main"]
        tensors = set(main.params[int(main.attrs["num_input"]) :])
        bindings = needed_bindings(main)
        readers = Counter(each for b in bindings for each in variables_in(b.value))
        owner: dict[Var, Layer] = {}
        layers: list[Layer] = []
        for binding in bindings:
            variable, value = binding.var, binding.value
            if not isinstance(value, Call):
                continue
            read = [each for each in variables_in(value) if each not in tensors]
            name = str(value.op.name)
            before = owner.get(read[0]) if len(read) == 1 else None
            follows = name in ELEMENTWISE or name in _FOLLOWING
            if before is not None and (
                name in names.MOVEMENTS
                or name == names.MAX_POOL2D
                or (follows and readers[read[0]] == 1)
            ):
                layer = before
                layer.members.append(str(variable.name))
                if follows:
                    layer.end = str(variable.name)
            else:
                layer = Layer(str(variable.name), [str(variable.name)], str(variable.name))
                layers.append(layer)
            owner[variable] = layer
        calls = {str(b.var.name): b.value for b in bindings}
        for layer in layers:
            self._complete(layer, calls, tensors)
        yield from layers

    def _complete(self, layer: Layer, calls: Mapping[str, Expr], tensors: set[Var]) -> None:
        """Find what a layer quantizes."""
        here = {str(variable.name): value for variable, value, _ in self._bindings}
        for name in layer.members:
            if name not in here:
                continue
            pairs = zip(variables_in(calls[name]), variables_in(here[name]), strict=False)
            for operand, quantized in pairs:
                if operand in tensors and quantized in self._roots:
                    layer.constants[quantized] = self.in_float.params[str(operand.name)]
                    if name == layer.name:
                        layer.weight_bits = self._bits(quantized)
        layer.quantizers = {
            variable: root
            for variable, root in self._roots.items()
            if str(root.name) in layer.members and not _is_integer(variable)
        }

    def _bits(self, variable: Var) -> int:
        value = next(value for each, value, _ in self._bindings if each.same_as(variable))
        if str(value.op.name).endswith(".bipolar_quant"):
            return 1
        return int(attributes(value).get("bits", 8))


def _roots(model: Model) -> dict[Var, Any]:
    """What each quantizer gives → the variable that was to be rounded."""
    roots: dict[Var, Any] = {}
    for binding in needed_bindings(model.module["main"]):
        value = binding.value
        name = str(value.op.name) if isinstance(value, Call) else ""
        if name.rpartition(".")[2] in _QUANTIZERS:
            roots[binding.var] = roots.get(value.args[0], value.args[0])
    return roots


def _is_integer(variable: Var) -> bool:
    kind = variable.ty
    return isinstance(kind, relax.TensorType) and not parse(dtype_of(kind)).is_float
