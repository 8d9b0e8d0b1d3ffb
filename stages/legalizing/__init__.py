"""Legalizing: every layer gets an algorithm the chip has, and operands in the form it takes.

Afterwards each convolution and matrix product is `bitserial_*` (bit planes and popcounts) or
`lookup_*` (LUTs of activations and bits of weights), or computes 8-bit products u8 x s8 (weights
as int8 numerators, without zero point), or is left to loops. Which one is a function of the layer's
precision and shape (`stages/graph/layer_forms.py`) and of the kernels that enumeration finds for
the core; the recipe may say otherwise, for any model.
"""

from __future__ import annotations

from functools import partial

from hw.profile import Hardware
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.errors import StageError
from stages.graph.bindings import bindings_of
from stages.graph.composites import is_float_product, is_linear
from stages.graph.layer_forms import form_of, is_level_layer
from stages.graph.pass_table import Observer, Passes, PassRow, run_passes
from stages.kernels.workloads import LayerKernels
from stages.kinds import Model, Table
from stages.layer_options import Algorithm, is_match
from stages.legalizing.choice import ON_BYTES, algorithm_error, layer_kernels, layer_of
from stages.legalizing.legalize_products import LegalizeProducts
from stages.nodes import Call, Function
from stages.options import LegalizeOptions

__all__ = ["check", "kernels_by_layer", "passes", "run"]

NAMED = (*names.INTEGER_LINEAR, *names.FLOAT_LINEAR, names.QNN_BATCH_DENSE)
"""Operators whose algorithm a recipe may name."""


def passes(
    model: Model, options: LegalizeOptions, candidates: Table, choices: Table, hardware: Hardware
) -> Passes:
    """The one pass there is; StageError for a pattern without a match or a bad override."""
    return (
        PassRow(
            partial(
                LegalizeProducts,
                overrides=overrides_of(model, options),
                candidates=candidates,
                choices=choices,
                hardware=hardware,
            ),
            "gives each product its algorithm: bit-serial, look-ups, unsigned bytes, or loops",
            "layers that read the same levels choose together, so it sees the whole graph",
        ),
    )


def run(
    *,
    model: Model,
    options: LegalizeOptions,
    candidates: Table,
    choices: Table,
    hardware: Hardware,
    observe: Observer | None = None,
) -> Model:
    """Choose an algorithm per layer; StageError for a pattern without a match or a bad override."""
    rows = passes(model, options, candidates, choices, hardware)
    result = run_passes(rows, model, observe)
    check(result)
    return result


def kernels_by_layer(
    *, model: Model, options: LegalizeOptions, candidates: Table
) -> dict[str, LayerKernels]:
    """Layer → what there is to choose for it, the algorithm included, where a kernel takes it."""
    overrides = overrides_of(model, options)
    found = {}
    for binding in bindings_of(model.module["main"]):
        if is_linear(binding.value):
            weight = model.params.get(str(binding.value.args[1].name))
            if weight is None or form_of(binding.value, weight) not in ("bytes", "zero_filled"):
                continue
            name = str(binding.var.name)
            layer, packing = layer_of(binding, weight), options.packing_of(name)
            found[name] = layer_kernels(layer, overrides.get(name), packing, candidates)
    return found


def check(model: Model) -> None:
    """Raise AssertionError unless every product of levels has operands its algorithm takes."""
    for binding in bindings_of(model.module["main"]):
        if is_linear(binding.value) and is_level_layer(binding.value):
            data, weight = binding.value.args
            assert dtype_of(weight.ty) == "int8", binding.var.name
            assert dtype_of(data.ty).startswith("uint"), binding.var.name
            assert not attributes(binding.value)["weight_zero_point"], binding.var.name


def overrides_of(model: Model, options: LegalizeOptions) -> dict[str, Algorithm]:
    """The algorithm wanted for each layer that has one; StageError for a pattern of no layer."""
    products = _products(model.module["main"])
    overrides: dict[str, Algorithm] = {}
    for override in options.layers:
        matched = [name for name in products if is_match(override.match, name)]
        if not matched:
            raise StageError(
                f"the pattern '{override.match}' matches no layer",
                hint=f"the layers are {', '.join(products)}",
            )
        for name in matched if override.algorithm not in ON_BYTES else ():
            if not is_linear(products[name]):
                is_float = is_float_product(products[name])
                obstacle = "it stays in float" if is_float else "its weights are computed"
                raise algorithm_error(name, override.algorithm, obstacle, is_named=True)
        overrides |= dict.fromkeys(matched, override.algorithm)
    return overrides


def _products(main: Function) -> dict[str, Call]:
    """Layer → the operator whose algorithm a recipe may name."""
    return {
        str(binding.var.name): binding.value
        for binding in bindings_of(main)
        if any(is_op(binding.value, name) for name in NAMED)
    }
