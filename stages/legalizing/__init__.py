"""Legalizing: every layer gets an algorithm the chip has, and operands in the form it takes.

Afterwards each convolution and matrix product is `bitserial_*` (bit planes and popcounts) or
`lookup_*` (tables of activations and bits of weights), or computes 8-bit products u8 x s8 (weights
as int8 numerators, without zero point). Which one is a function of the layer's precision and shape
and of what the synthesis engine offers on the core; the recipe may say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from hw.profile import Hardware
from stages.dialect import batch_matmul, integer
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.numerators import numerators
from stages.errors import StageError
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.composites import ON_FLOATS, has_own, is_float_product, is_plain, takes_depthwise
from stages.graph.rewriting import Rewriting
from stages.kernels.candidates import Method
from stages.kernels.channel_groups import dense
from stages.kernels.workloads import Subject
from stages.kinds import Model, Table
from stages.layer_options import is_match
from stages.legalizing.choice import BUILDERS, ON_BYTES, Layer, choose, layer_of, shared, subject
from stages.legalizing.legalize_products import legalize
from stages.options import LegalizeOptions

__all__ = ["check", "run", "subjects"]

LINEAR = ("relax.qnn.conv2d", "relax.qnn.dense")
NAMED = (*LINEAR, *ON_FLOATS, batch_matmul.BATCH_DENSE)
"""Operators whose algorithm a recipe may name."""


def run(
    *, model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """Choose an algorithm per layer; StageError for a pattern without a match or a bad override."""
    if is_plain(model):
        for wish in options.layers:
            if wish.algorithm not in ON_BYTES:
                raise StageError(
                    f"the layers '{wish.match}' cannot choose {wish.algorithm}: the model's "
                    "operators come with their arithmetic",
                    hint="leave algorithm out, or write mac8 or winograd; models trained with "
                    "quantizers have the choice",
                )
        wanted = set(_wishes(model.module["main"], options))
        return legalize(model, wanted, offers, choices, hardware)
    wishes = _wishes(model.module["main"], options)
    result = Legalizer(model, wishes, offers, choices).run()
    check(result)
    return result


def subjects(*, model: Model, options: LegalizeOptions, offers: Table) -> dict[str, Subject]:
    """Layer → what there is to choose for it, in a model whose layers choose their algorithm."""
    wishes: Mapping[str, Any] = _wishes(model.module["main"], options)
    found = {}
    for binding in bindings_of(model.module["main"]):
        if any(is_op(binding.value, name) for name in LINEAR):
            weight = model.params[str(binding.value.args[1].name)]
            if takes_depthwise(binding.value, weight):
                continue
            name = str(binding.var.name)
            layer, packing = layer_of(binding, weight), options.packing_of(name)
            found[name] = subject(layer, wishes.get(name), packing, offers)
    return found


def check(model: Model) -> None:
    """Raise AssertionError unless every product has operands its algorithm takes."""
    for binding in bindings_of(model.module["main"]):
        if any(is_op(binding.value, name) for name in LINEAR):
            data, weight = binding.value.args
            assert dtype_of(weight.ty) == "int8", binding.var.name
            assert dtype_of(data.ty).startswith("uint"), binding.var.name
            assert attributes(binding.value)["weight_zero_point_x2"] == 0, binding.var.name


def _wishes(main: Any, options: LegalizeOptions) -> dict[str, str]:
    """The algorithm wanted for each layer that has one; StageError for a pattern of no layer."""
    products = {
        str(binding.var.name): binding.value
        for binding in bindings_of(main)
        if any(is_op(binding.value, name) for name in NAMED)
    }
    wishes: dict[str, str] = {}
    for override in options.layers:
        matched = [name for name in products if is_match(override.match, name)]
        if not matched:
            raise StageError(
                f"the pattern '{override.match}' matches no layer",
                hint=f"the layers are {', '.join(products)}",
            )
        for name in matched if override.algorithm not in ON_BYTES else ():
            if is_float_product(products[name]):
                raise StageError(
                    f"cannot choose {override.algorithm}: it stays in float",
                    layer=name,
                    hint="use algorithm: mac8",
                )
        wishes |= dict.fromkeys(matched, override.algorithm)
    return wishes


class Legalizer(Rewriting):
    """One pass over `main`."""

    def __init__(
        self, source: Model, wishes: Mapping[str, Any], offers: Table, choices: Table
    ) -> None:
        super().__init__(source)
        self.offers, self.choices = offers, choices
        self.wishes = {**wishes, **self._shared(wishes)}

    def run(self) -> Model:
        """The model with algorithms chosen."""
        for binding in bindings_of(self.main):
            if isinstance(binding.value, relax.Var):
                self.mapping[binding.var] = self.read(binding.value)
                continue
            linear = any(is_op(binding.value, name) for name in LINEAR)
            call = self._linear(binding) if linear else self.remapped(binding.value)
            self.mapping[binding.var] = self.builder.emit(call, binding.var.name)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        return self.builder.model_after(self.source, results)

    def _shared(self, wishes: Mapping[str, Any]) -> dict[str, Method]:
        """Layer → the algorithm that it shares with other readers of its input."""
        readers: dict[Any, list[Layer]] = {}
        for binding in bindings_of(self.main):
            is_free = str(binding.var.name) not in wishes
            if is_free and any(is_op(binding.value, name) for name in LINEAR):
                data, weight = binding.value.args
                readers.setdefault(data, []).append(layer_of(binding, self.constants[weight]))
        found: dict[str, Method] = {}
        for layers in readers.values():
            if len(layers) > 1 and (algorithm := shared(layers, self.offers)):
                found |= {layer.name: algorithm for layer in layers}
        return found

    def _linear(self, binding: Any) -> Any:
        call, name = binding.value, str(binding.var.name)
        attrs = attributes(call)
        data, weight = call.args
        q = self.constants[weight]
        is_conv = is_op(call, "relax.qnn.conv2d")
        layer = layer_of(binding, q)
        if takes_depthwise(call, q):
            return self._depthwise(call, layer)
        algorithm = choose(layer, self.wishes.get(name), self.offers, self.choices)
        if algorithm != "mac8":
            tensor = self.builder.tensor(weight.name, q, dtype_of(weight.ty))
            build = BUILDERS[algorithm, is_conv]
        else:
            tensor = self.builder.tensor(weight.name, _products_weight(layer))
            attrs["weight_zero_point_x2"] = 0
            if has_own(call):
                attrs["groups"] = 1
            build = integer.conv2d if is_conv else integer.dense
        return build(self.read(data), tensor, **attrs)

    def _depthwise(self, call: Any, layer: Layer) -> Any:
        """A convolution of every channel on its own, which there is one way to compute."""
        wish = self.wishes.get(layer.name, "mac8")
        if wish != "mac8":
            raise StageError(
                f"cannot choose {wish}: it multiplies every channel on its own",
                layer=layer.name,
                hint="use algorithm: mac8",
            )
        weight = str(call.args[1].name)
        tensor = self.builder.tensor(weight, layer.numerators.astype(np.int8))
        attrs = {**attributes(call), "weight_zero_point_x2": 0}
        return integer.conv2d(self.read(call.args[0]), tensor, **attrs)


def _products_weight(layer: Layer) -> np.ndarray[Any, Any]:
    """Weights as int8 numerators; channels that are multiplied on their own are one group, with
    zeros between."""
    values = numerators(layer.weight, layer.attrs["weight_zero_point_x2"])
    if values.max() > 127 or values.min() < -128:
        raise StageError("the weights do not fit 8 bits with their zero point", layer=layer.name)
    levels = values.astype(np.int8)
    groups = layer.attrs.get("groups", 1)
    return dense(levels, groups) if groups > 1 and levels.shape[-1] == 1 else levels
