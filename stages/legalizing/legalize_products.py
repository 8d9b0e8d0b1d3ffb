"""Legalizing the products of a quantized model: each gets an algorithm, and operands in its form.

Where both operands are stored in a few bits, popcounts or look-ups may be cheapest. Where a
micro-kernel of 8-bit products can compute one, it gets unsigned activations and signed weights. The
others become products for TE kernels; `stages/graph/layer_forms.py` says which. The four terms of
a convolution with zero points (Jain et al. 2020, section IV-A, equation 4) are

    sum (a - za) (w - zw) = sum a (w - zw) - za * sum (w - zw)

once the image is padded with the zero point: the second sum is known at compile time and goes
into the bias, and the weights' own zero point is subtracted where they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from hw.profile import Hardware
from stages.dialect import integer, names
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.padding import Padding
from stages.dialect.zero_point import AT_ZERO, ZeroPoint
from stages.errors import StageError
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.composites import is_depthwise, is_linear
from stages.graph.layer_forms import (
    IS_DEPTHWISE,
    fits_bytes,
    form_of,
    is_level_layer,
    obstacle_to_bits,
)
from stages.graph.passes import Pass
from stages.kernels import direct_operators as direct
from stages.kernels.byte_shift import SHIFT, as_unsigned
from stages.kernels.channel_groups import dense
from stages.kernels.kernel_candidates import KernelAlgorithm
from stages.kinds import Array, Model, Table
from stages.layer_options import Algorithm
from stages.legalizing.choice import (
    BUILDERS,
    ON_BITS,
    Layer,
    algorithm_error,
    choose,
    layer_of,
    shared_algorithm,
)
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics import rule_names
from stages.numerics.division import rounds_alike
from stages.numerics.linear_quantizers import quantize_linear
from stages.numerics.rescale import table

ARM = ("aarch64", "armv7")
"""Architectures whose processors had rather multiply than divide."""
INT32_MAX = np.iinfo(np.int32).max


class LegalizeProducts(Pass):
    """Has each product computed on bits, by look-ups, on bytes or in loops."""

    def __init__(
        self,
        source: Model,
        overrides: Mapping[str, Algorithm],
        candidates: Table,
        choices: Table,
        hardware: Hardware,
    ) -> None:
        super().__init__(source)
        self.candidates, self.choices = candidates, choices
        self.wanted: dict[str, KernelAlgorithm] = {**overrides, **self._shared(overrides)}
        """Layer → the algorithm that it must have."""
        self.divides_by_products = hardware.architecture in ARM
        self.unsigned: dict[Var, Var] = {}
        """Old variable of signed bytes → the new one of unsigned bytes."""
        self.readers: dict[Var, list[VarBinding]] = {}
        self.origins: dict[Var, Expr] = {}
        for binding in bindings_of(self.main):
            self.origins[binding.var] = binding.value
            for variable in variables_in(binding.value):
                self.readers.setdefault(variable, []).append(binding)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A product for a kernel or for loops, and what is cheaper for knowing its operands."""
        call = binding.value
        if is_linear(call):
            return self._layer(binding)
        if self._is_moved(binding):
            origin = call.args[0]
            return remap(call, {origin: self._as_unsigned(origin)})
        if (
            self.divides_by_products
            and is_op(call, rule_names.QNN_QUANTIZE_LINEAR)
            and self._rounds_alike(call)
        ):
            attrs = {**attributes(call), "rounds_alike": True}
            return quantize_linear(*map(self.remapped, call.args), **attrs)
        return None

    def _rounds_alike(self, call: Call) -> bool:
        """Whether products give the same integers as a division by a constant scale."""
        scale, zero_point = (self.constants.get(argument) for argument in call.args[1:])
        attrs = attributes(call)
        if scale is None or zero_point is None or attrs.get("reciprocal"):
            return False
        if scale.size + zero_point.size > 2:
            return False
        bounds = (attrs[name] - int(zero_point.item()) for name in ("low", "high"))
        return rounds_alike(NUMPY, float(scale.item()), *bounds)

    def _is_moved(self, binding: VarBinding) -> bool:
        """Whether signed bytes are only moved about, for products on bytes alone.

        These want them unsigned, which is done in front of that, where they are computed.
        """
        call, readers = binding.value, [b.value for b in self.readers.get(binding.var, [])]
        if not is_op(call, *names.REARRANGEMENTS) or dtype_of(call.ty) != "int8":
            return False
        is_inside = binding.var not in outputs_of(self.main) and bool(readers)
        return is_inside and all(map(self._takes_bytes, readers))

    def _takes_bytes(self, call: Expr) -> bool:
        """Whether an expression is a product that a kernel of bytes computes."""
        return is_linear(call) and form_of(call, self.constants.get(call.args[1])) == "bytes"

    # -- layers --------------------------------------------------------------------------------

    def _shared(self, overrides: Mapping[str, Algorithm]) -> dict[str, KernelAlgorithm]:
        """Layer → the algorithm that it shares with other readers of its input."""
        readers: dict[Var, list[Layer]] = {}
        for binding in bindings_of(self.main):
            if is_linear(binding.value) and str(binding.var.name) not in overrides:
                data, weight = binding.value.args
                if weight in self.constants:
                    readers.setdefault(data, []).append(layer_of(binding, self.constants[weight]))
        found: dict[str, KernelAlgorithm] = {}
        for layers in readers.values():
            if len(layers) > 1 and (algorithm := shared_algorithm(layers, self.candidates)):
                found |= {layer.name: algorithm for layer in layers}
        return found

    def _layer(self, binding: VarBinding) -> Expr | None:
        """A layer with its algorithm, by name or by its operands; StageError if it cannot have the
        one that the recipe wants."""
        call, name = binding.value, str(binding.var.name)
        weight, wanted = self.constants.get(call.args[1]), self.wanted.get(name)
        form = form_of(call, weight)
        if form in ("bytes", "zero_filled") and weight is not None:
            layer = layer_of(binding, weight)
            algorithm = choose(layer, wanted, self.candidates, self.choices)
            if algorithm != "mac8":
                build = BUILDERS[algorithm, is_op(call, names.QNN_CONV2D)]
                return build(*map(self.read, call.args), **attributes(call))
            return self._on_bytes(call, layer)
        if wanted not in (None, "mac8") and is_depthwise(call):
            raise algorithm_error(name, wanted, IS_DEPTHWISE, is_named=True)
        if wanted in ON_BITS:
            raise algorithm_error(
                name, wanted, obstacle_to_bits(call, weight) or "no kernel takes it"
            )
        if form == "taps" and weight is not None:
            return self._on_bytes(call, layer_of(binding, weight))
        return self._in_loops(binding, attributes(call)) if form == "loops" else None

    def _on_bytes(self, call: Call, layer: Layer) -> Expr:
        """A product of u8 activations and weights, whose own zero point is taken off them: s8, or
        s16 where no byte holds the difference."""
        attrs, data = dict(layer.attrs), self.read(call.args[0])
        if dtype_of(call.args[0].ty) == "int8":
            data = self._as_unsigned(call.args[0]) if dtype_of(data.ty) == "int8" else data
            attrs["data_zero_point"] = attrs["data_zero_point"].moved(SHIFT)
        fits = fits_bytes(call, layer.weight)
        if not fits and is_level_layer(call):
            raise StageError(
                "the weights do not fit 8 bits with their zero point", layer=layer.name
            )
        numerators = layer.numerators.astype(np.int8 if fits else np.int16)
        if form_of(call, layer.weight) == "zero_filled":
            numerators, attrs["groups"] = dense(numerators, attrs["groups"]), 1
        attrs["weight_zero_point"] = AT_ZERO
        tensor = self.builder.tensor(str(call.args[1].name), numerators)
        build = integer.conv2d if is_op(call, names.QNN_CONV2D) else integer.dense
        return build(data, tensor, **attrs)

    def _as_unsigned(self, variable: Var) -> Var:
        """A tensor with 128 added, made once however many products read it."""
        if variable not in self.unsigned:
            origin: Any = self.origins.get(variable)
            name = f"{variable.name}.rebased"
            if is_op(origin, rule_names.QNN_TABLE) and origin.args[1] in self.constants:
                values = self.constants[origin.args[1]].astype(np.int16) + SHIFT
                moved = self.builder.tensor(f"{name}.table", values.astype(np.uint8))
                call = table(self.read(origin.args[0]), moved)
            else:
                call = as_unsigned(self.read(variable))
            self.unsigned[variable] = self.builder.emit(call, name)
        return self.unsigned[variable]

    def _in_loops(self, binding: VarBinding, attrs: dict[str, Any]) -> Expr | None:
        """A product for loops, with its zero point in the bias where that fits."""
        call, name = binding.value, str(binding.var.name)
        data, weight = self.read(call.args[0]), self.constants[call.args[1]]
        weight_name = str(call.args[1].name)
        offset, stored = attrs["data_zero_point"].whole, attrs["weight_zero_point"]
        dtype = str(attrs.get("dtype", "int32"))
        is_conv = is_op(call, names.QNN_CONV2D)
        padding = Padding.of(attrs)
        if any(padding.sides):
            padded = self._padded(data, padding, attrs["data_zero_point"], name)
            if padded is None:  # what surrounds the image has no stored value
                return None
            data = padded
        numerators = weight.astype(np.int64) - stored.whole
        sums = numerators.reshape(len(numerators), -1).sum(axis=1)
        is_folded = bool(offset) and self._fits(numerators, dtype_of(data.ty), dtype)
        kept = {
            "data_zero_point": 0 if is_folded else offset,
            "weight_zero_point": stored,
            "dtype": dtype,
        }
        if is_conv:
            tensor = self.builder.tensor(weight_name, weight.transpose(1, 2, 3, 0))
            kept |= {key: attrs.get(key, [1, 1]) for key in ("strides", "dilation")}
            call = direct.direct_conv2d(data, tensor, groups=attrs["groups"], **kept)
        else:
            tensor = self.builder.tensor(weight_name, weight.T)
            call = direct.direct_dense(data, tensor, **kept)
        if not is_folded:
            return call
        self.mapping[binding.var] = self.builder.emit(call, name)
        self.redefined.add(name)  # its sums lack what the bias adds
        self._bias(binding, -offset * sums)
        return None

    def _fits(self, numerators: Array, data_dtype: str, dtype: str) -> bool:
        """Whether sums of stored activations, zero point included, stay within the accumulator."""
        largest = max(abs(np.iinfo(data_dtype).min), np.iinfo(data_dtype).max)
        rows = np.abs(numerators).reshape(len(numerators), -1)
        bound = int(rows.sum(axis=1).max(initial=0)) * largest
        return 2 * bound <= np.iinfo(dtype).max

    def _padded(self, data: Var, padding: Padding, zero_point: ZeroPoint, name: str) -> Var | None:
        """The image with its padding around it; None where its type cannot hold that."""
        limits, value = np.iinfo(dtype_of(data.ty)), padding.stored(zero_point)
        if not limits.min <= value <= limits.max:
            return None
        padded = relax.op.nn.pad(data, padding.sides.pad_width(), pad_value=value)
        return self.builder.emit(padded, f"{name}.padded")

    def _bias(self, binding: VarBinding, offsets: Array) -> None:
        """Add what is known at compile time, within the bias that follows where there is one."""
        readers = self.readers.get(binding.var, [])
        if len(readers) == 1 and is_op(readers[0].value, names.ADD):
            add = readers[0]
            left, right = add.value.args
            other = right if left.same_as(binding.var) else left
            if other in self.constants and self.constants[other].shape == offsets.shape:
                total = self.constants[other].astype(np.int64) + offsets
                if np.abs(total).max(initial=0) <= INT32_MAX:
                    self._add(binding.var, total, add.var, str(other.name))
                    return
        self._add(binding.var, offsets, binding.var, f"{binding.var.name}.offset")

    def _add(self, product: Var, addend: Array, result: Var, name: str) -> None:
        dtype = dtype_of(product.ty)
        tensor = self.builder.tensor(name, addend.astype(dtype))
        call = relax.op.add(self.mapping[product], tensor)
        self.mapping[result] = self.builder.emit(call, str(result.name))
