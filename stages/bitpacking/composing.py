"""One composite from logical tensors to packed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.bitpacking.choosing import is_chosen
from stages.bitpacking.depthwise import taps_for
from stages.bitpacking.edges import FORMS, LINEAR, Layout, load, readings, store
from stages.bitpacking.folding import corrected, pad_channels, stored_weights
from stages.bitpacking.lines import as_line
from stages.bitpacking.shortening import reach, shortened
from stages.bitpacking.tiles import convolve
from stages.errors import StageError
from stages.qnn import integer, packed
from stages.qnn.builder import FunctionBuilder, bindings_of, outputs_of, remap
from stages.qnn.composites import MOVED
from stages.qnn.depthwise import packed_depthwise
from stages.qnn.methods import Stored
from stages.qnn.packing import round_up
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.rescale import fits
from stages.qnn.signature import BLOCK, Form, KernelSignature

if TYPE_CHECKING:
    from stages.bitpacking.rewrite import Packer

Array = np.ndarray[Any, Any]
AnyForm = Form | Literal["float"]
OPERANDS: dict[str, tuple[tuple[str, float | None], ...]] = {
    "requantize": (("multiplier", 0), ("offset", 0)),
    "dequantize": (("scale", 1),),
    "quantize": (("scale", None), ("zero_point", None)),
}
"""Tensor operands behind the first argument: name, and what fills padded channels."""
FLOAT_OPERAND: tuple[tuple[str, float | None], ...] = (("operand", 1),)


class Composite:
    """One composite being rewritten for one call."""

    def __init__(self, packer: Packer, binding: Any, results: list[Any]) -> None:
        self.packer, self.results = packer, results
        self.variable = binding.var
        self.layer = str(binding.var.name)
        self.source = packer.source.module[binding.value.op]
        self.actual = dict(zip(self.source.params, binding.value.args, strict=True))
        bindings = bindings_of(self.source)
        self.calls = {b.var: b.value for b in bindings if isinstance(b.value, Call)}
        """Variable of the composite → the operator that gives it."""
        self.builder = FunctionBuilder()
        self.arguments: list[Any] = []
        self.values: dict[Any, Any] = {}
        self.written: list[tuple[Any, AnyForm]] = []

    def build(self) -> Any:
        """The new function; `arguments` and `written` then say how `main` calls it."""
        bindings = bindings_of(self.source)
        inner = {b.var: b.value for b in bindings if b.var in outputs_of(self.source)}
        for binding in bindings:
            if binding.var not in inner:
                self.values[binding.var] = self._binding(binding)
        outputs = []
        for output, variable in zip(outputs_of(self.source), self.results, strict=True):
            outputs += self._write(inner[output], variable)
        return self.builder.finish(outputs, {"composite": str(self.source.attrs["composite"])})

    # -- operands ----------------------------------------------------------------------------

    def _stored(self, parameter: Any, form: AnyForm) -> Any:
        """The parameter for an edge in one form."""
        return self._argument(self.packer.stored[self.actual[parameter], form])

    def _argument(self, outer: Any) -> Any:
        """The parameter for a tensor of `main`."""
        if any(outer.same_as(argument) for argument in self.arguments):
            position = next(i for i, a in enumerate(self.arguments) if outer.same_as(a))
            return self.builder.params[position]
        self.arguments.append(outer)
        return self.builder.param(f"p{len(self.arguments)}", shape_of(outer.ty), dtype_of(outer.ty))

    def _tensor(self, name: str, value: Array) -> Any:
        """A parameter for a tensor of this layer."""
        self.arguments.append(self.packer.builder.tensor(f"{self.layer}.{name}", value))
        return self.builder.param(f"p{len(self.arguments)}", value.shape, str(value.dtype))

    def _value(self, variable: Any) -> Any:
        """An operand: computed here, or the picture inside an edge stored as bytes."""
        if variable in self.values:
            return self.values[variable]
        actual = self.actual[variable]
        if not readings(self.source, variable):
            return self._stored(variable, "float")
        form: Form = "planes" if self.variable in self.packer.pools_of_planes else "bytes"
        call = load(self._stored(variable, form), self.packer.edges[actual, form])
        self.values[variable] = self.builder.emit(call, "data")
        return self.values[variable]

    def _is_tensor(self, variable: Any) -> bool:
        return variable not in self.values and self.actual.get(variable) in self.packer.tensors

    # -- operators ---------------------------------------------------------------------------

    def _binding(self, binding: Any) -> Any:
        call = binding.value
        name = str(call.op.name)
        if name.removeprefix("relax.qnn.") in LINEAR:
            make = self._linear if is_chosen(call) else self._depthwise
            return self.builder.emit(make(call), "sums")
        if name in MOVED:
            value = self._value(call.args[0])
            # On the output side channels stay last and padded until the result is written.
            if not self._is_input_picture(call.args[0]):
                return value
            return self.builder.emit(remap(call, {call.args[0]: value}), "x")
        if is_op(call, "relax.qnn.threshold"):
            return self.builder.emit(self._levels(call), "v")
        operands = OPERANDS.get(name.removeprefix("relax.qnn."), FLOAT_OPERAND)
        logical = shape_of(call.ty)[-1]
        arguments: list[Any] = []
        for position, argument in enumerate(call.args):
            if self._is_tensor(argument):
                # The activation comes first, but for `constant - x`.
                role, fill = operands[max(position - 1, 0)]
                arguments.append(self._padded(role, self._tensor_of(argument), logical, fill))
            else:
                arguments.append(self._in_blocks(self._value(argument)))
        attrs = call.attrs
        if is_op(call, "relax.qnn.requantize"):
            tensors = map(self._tensor_of, call.args[1:])
            most = reach(call.args[0], self.calls, self._tensor_of)
            attrs = {**attributes(call), "fits": fits(most, *tensors)}
        return self.builder.emit(Call(call.op, arguments, attrs), "v")

    def _levels(self, call: Any) -> Any:
        """Thresholds in as few bits as they need, or a line where that is cheaper."""
        attrs, channels = attributes(call), shape_of(call.ty)[-1]
        most = reach(call.args[0], self.calls, self._tensor_of)
        data = self._in_blocks(self._value(call.args[0]))
        thresholds, flip = map(self._tensor_of, call.args[1:])
        thresholds = shortened(thresholds, most)
        line = as_line(thresholds, flip, most)
        if line is not None:
            bounds = {"low": 0, "high": len(thresholds), "fits": fits(most, *line)}
            named = zip(OPERANDS["requantize"], line, strict=True)
            operands = [self._padded(role, value, channels, fill) for (role, fill), value in named]
            return integer.requantize(data, *operands, dtype=attrs["dtype"], **bounds)
        # A padded channel never reaches a threshold, so its packed bit is 0.
        never = np.iinfo(thresholds.dtype if thresholds.dtype == np.int16 else np.int32).max
        limits = self._padded("thresholds", thresholds, channels, never)
        return integer.threshold(data, limits, self._padded("flip", flip, channels, 0), **attrs)

    def _padded(self, role: str, value: Array, channels: int, fill: float | None) -> Any:
        """A tensor [..., C] as a parameter of whole blocks of channels, if any is filled up."""
        if fill is not None:
            value = pad_channels(value, channels, round_up(channels, BLOCK), fill)
        return self._tensor(role, value)

    def _tensor_of(self, argument: Any) -> Array:
        """A tensor of the layer, before packing."""
        return self.packer.tensors[self.actual[argument]]

    def _in_blocks(self, value: Any) -> Any:
        """A value as [1, H, W, C] with C a multiple of a block; accumulators already are."""
        if len(value.ty.shape) == 2:
            shape = (1, 1, 1, int(value.ty.shape[1]))
            value = self.builder.emit(relax.op.reshape(value, shape), "pixel")
        channels = int(value.ty.shape[-1])
        if channels % BLOCK:
            call = packed.pad_channels(value, channels=round_up(channels, BLOCK))
            value = self.builder.emit(call, "padded")
        return value

    @property
    def _from_input(self) -> bool:
        """Whether the composite computes from a float graph input."""
        return any(
            dtype_of(p.ty) == "float32" and self.actual[p] not in self.packer.tensors
            for p in self.source.params
        )

    def _is_input_picture(self, variable: Any) -> bool:
        """Whether a variable is a float graph input, reshaped or transposed at most."""
        if variable in self.actual:
            return dtype_of(variable.ty) == "float32" and not self._is_tensor(variable)
        return self._is_moved(variable) and self._is_input_picture(self.calls[variable].args[0])

    def _is_moved(self, variable: Any) -> bool:
        return str(self.calls[variable].op.name) in MOVED

    def _linear(self, call: Any) -> Any:
        attrs = attributes(call)
        data, weight = call.args
        chosen = self.packer.chosen[self.variable]
        signature, window = chosen.signature, chosen.window
        form = signature.form
        layout = self.packer.edges[self.actual[data], form]
        q = self._tensor_of(weight)
        q = q.reshape(q.shape[0], 1, 1, -1) if q.ndim == 2 else q
        if layout.stored is not None:
            self._check_axis(signature, layout.stored)
            signature = signature.reading(layout.stored)
        scale, bias, border = corrected(
            signature, q, layout.padded_channels, attrs, layout.fill, window
        )
        origin = [layout.halo[0] - window.padding[0], layout.halo[1] - window.padding[1]]
        stored = self.packer.stored[self.actual[data], form]
        if signature.is_transformed:
            stored = self.packer.transformed(stored, origin, window, self.layer)
        operands = [
            self._argument(stored),
            self._tensor("weights", stored_weights(signature, q, layout, chosen)),
            self._tensor("bias", bias),
        ]
        return convolve(
            signature,
            operands,
            origin,
            chosen,
            layout,
            inputs=q.shape[3],
            outputs=q.shape[0],
            scale=scale,
            border=border,
        )

    def _check_axis(self, signature: KernelSignature, stored: Stored) -> None:
        """StageError if planes do not lie where the recipe wants them: the readers of a tensor find
        them in one place."""
        packing = self.packer.options.packing_of(self.layer)
        is_wanted = packing is not None and packing.bit_axis == "inner"
        if is_wanted and signature.inner and not stored.inner:
            raise StageError(
                "planes cannot lie inside pixels: another layer that reads the same activations "
                "has them elsewhere",
                layer=self.layer,
                hint="give these layers the same packing",
            )

    def _depthwise(self, call: Any) -> Any:
        """A convolution of every channel on its own, by a kernel with taps side by side."""
        attrs, (data, weight) = attributes(call), call.args
        layout, q = self.packer.edges[self.actual[data], "bytes"], self._tensor_of(weight)
        levels = q[..., 0].transpose(1, 2, 0).astype(np.int32)
        taps = taps_for(self.packer.isa, levels)
        assert taps is not None, "every instruction set multiplies bytes"
        bias = -(attrs["data_zero_point_x2"] // 2) * levels.sum(axis=(0, 1))
        operands = [
            self._argument(self.packer.stored[self.actual[data], "bytes"]),
            self._tensor("weights", taps),
            self._tensor("bias", np.pad(bias.astype(np.int32), (0, -len(bias) % BLOCK))),
        ]
        return packed_depthwise(
            *operands,
            window=list(levels.shape[:2]),
            strides=attrs["strides"],
            dilation=[1, 1],
            offset=0,
            origin=[layout.halo[i] - attrs["padding"][i] for i in (0, 1)],
            output=list(shape_of(call.ty)[1:3]),
        )

    # -- results -----------------------------------------------------------------------------

    def _write(self, inner: Any, variable: Any) -> list[Any]:
        """Store a result in every form that has a reader, or as the graph's float output."""
        value = self.values[inner]
        if dtype_of(inner.ty) == "float32":
            self.written.append((variable, "float"))
            return [self._float_output(value, inner)]
        results = []
        for form in FORMS:
            layout = self.packer.edges.get((variable, form))
            if layout is not None:
                self.written.append((variable, form))
                kept = self._kept(value, layout)
                results.append(self.builder.emit(store(kept, layout), form))
        return results

    def _kept(self, value: Any, layout: Layout) -> Any:
        """Levels whose padded channels are 0: a quantized input's would be its zero point."""
        if not self._from_input or layout.channels % BLOCK == 0 or layout.block != BLOCK:
            return value
        keep = (np.arange(layout.padded_channels) < layout.channels).astype(np.uint8)
        return self.builder.emit(packed.keep_channels(value, self._tensor("keep", keep)), "kept")

    def _float_output(self, value: Any, inner: Any) -> Any:
        shape, picture, is_turned = shape_of(inner.ty), inner, False
        while self._is_moved(picture):
            is_turned |= is_op(self.calls[picture], "relax.permute_dims")
            picture = self.calls[picture].args[0]
        channels = shape_of(picture.ty)[-1]
        value = self.builder.emit(packed.take_channels(value, channels=channels), "out")
        if is_turned:
            value = self.builder.emit(relax.op.permute_dims(value, [0, 3, 1, 2]), "nchw")
        if shape_of(value.ty) != shape:
            value = self.builder.emit(relax.op.reshape(value, shape), "shaped")
        return value
