"""One composite from logical tensors to packed ones.

Its linear layer becomes a packed convolution of data in a layout; its other operators follow as
they were, on sums. Levels are finished by whole blocks of channels, so the operands of what follows
sums are filled up to these, in one place (`Composite._padded`). In all other composites sums are
cut to the channels there are, and operands remain as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.bitpacking.folding import pad_channels
from stages.bitpacking.graph import Caller
from stages.bitpacking.layouts import Layout, load, store
from stages.bitpacking.lines import as_line
from stages.bitpacking.places import Places
from stages.bitpacking.plans import LinearPlan, Plan
from stages.bitpacking.sums import NONE, Marks, marks_of, reach, shortened
from stages.qnn import integer, packed
from stages.qnn.builder import FunctionBuilder, bindings_of, outputs_of, remap, variables_in
from stages.qnn.composites import DEPTHWISE, MOVED, PLAIN
from stages.qnn.packing import round_up
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.rescale import fits
from stages.qnn.signature import BLOCK

Array = np.ndarray[Any, Any]
OPERANDS: dict[str, tuple[tuple[str, float | None], ...]] = {
    "requantize": (("multiplier", 0), ("offset", 0)),
    "dequantize": (("scale", 1),),
    "quantize": (("scale", None), ("zero_point", None)),
}
"""Tensor operands behind the first argument: name, and what fills padded channels."""
FLOAT_OPERAND: tuple[tuple[str, float | None], ...] = (("operand", 1),)


class Composite:
    """One composite being rewritten for one call."""

    def __init__(self, places: Places, caller: Caller, converts_slowly: bool) -> None:
        self.places, self.caller = places, caller
        self.results = places.graph.results[caller.variable]
        self.plan = places.edges.plans.get(caller.variable)
        self.converts_slowly = converts_slowly
        bindings = bindings_of(caller.function)
        self.calls = {b.var: b.value for b in bindings if isinstance(b.value, Call)}
        """Variable of the composite → the operator that gives it."""
        self.builder = FunctionBuilder()
        self.arguments: list[Any] = []
        self.values: dict[Any, Any] = {}
        self.marks: Marks = {}
        self.written: list[tuple[Any, Layout | None]] = []

    def build(self) -> Any:
        """The new function; `arguments` and `written` then say how `main` calls it."""
        function = self.caller.function
        bindings, outputs = bindings_of(function), outputs_of(function)
        returned = {b.var: b.value for b in bindings if b.var in outputs}
        for binding in bindings:
            if binding.var not in returned and binding.var not in self.values:
                self.values[binding.var] = self._operator(binding)
        results = []
        for output, variable in zip(outputs, self.results, strict=True):
            results += self._write(returned[output], variable)
        is_own = self.plan is not None and self.caller.kind == PLAIN
        kind = DEPTHWISE if is_own else self.caller.kind
        return self.builder.finish(results, {"composite": kind})

    # -- operands ----------------------------------------------------------------------------

    def _argument(self, outer: Any) -> Any:
        """The parameter for a tensor of `main`."""
        for parameter, argument in zip(self.builder.params, self.arguments, strict=True):
            if outer.same_as(argument):
                return parameter
        self.arguments.append(outer)
        name = f"p{len(self.builder.params)}"
        return self.builder.param(name, shape_of(outer.ty), dtype_of(outer.ty))

    def _tensor(self, name: str, value: Array) -> Any:
        """A parameter for a tensor of this layer."""
        return self._argument(self.places.builder.tensor(f"{self.caller.name}.{name}", value))

    def _value(self, variable: Any) -> Any:
        """An operand: computed here, as the user sees it, or what is inside an edge."""
        if variable not in self.values:
            stored, layout = self.places.found(self.caller.actual[variable])
            value = self._argument(stored)
            self.values[variable] = load(self.builder, value, layout) if layout else value
        return self.values[variable]

    def _operand(self, call: Any, position: int) -> Any:
        """An argument of an operator; of levels, in whole blocks of channels."""
        argument = call.args[position]
        if not self.caller.in_blocks:
            return remap(argument, {v: self._value(v) for v in variables_in(argument)})
        tensor = self._constant(argument)
        if tensor is None:
            return self._in_blocks(self._value(argument))
        operands = OPERANDS.get(str(call.op.name).removeprefix("relax.qnn."), FLOAT_OPERAND)
        # The activation comes first, but for `constant - x`.
        role, fill = operands[max(position - 1, 0)]
        return self._padded(role, tensor, shape_of(call.ty)[-1], fill)

    def _padded(self, role: str, value: Array, channels: int, fill: float | None) -> Any:
        """A tensor [..., C] as a parameter of whole blocks of channels, if any is filled up."""
        if fill is not None:
            value = pad_channels(value, channels, round_up(channels, BLOCK), fill)
        return self._tensor(role, value)

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

    def _constant(self, parameter: Any) -> Array | None:
        """The value of a parameter, if it is known when the package is built."""
        return self.places.constants.get(self.caller.actual.get(parameter))

    def _tensor_of(self, parameter: Any) -> Array:
        """The value of a parameter that is a tensor of the layer, before packing."""
        return self.places.constants[self.caller.actual[parameter]]

    # -- operators ---------------------------------------------------------------------------

    def _operator(self, binding: Any) -> Any:
        call = binding.value
        if self.plan is not None and binding.var.same_as(self.plan.layer.inner.var):
            return self._sums(self.plan)
        if is_op(call, "relax.qnn.threshold"):
            return self.builder.emit(self._levels(call), "v")
        if self.caller.in_blocks and str(call.op.name) in MOVED:
            value = self._value(call.args[0])
            # On the output side channels stay last and padded until the result is written.
            if not self._is_input_picture(call.args[0]):
                return value
            return self.builder.emit(remap(call, {call.args[0]: value}), "x")
        arguments = [self._operand(call, position) for position in range(len(call.args))]
        attrs = call.attrs
        if is_op(call, "relax.qnn.requantize"):
            tensors = map(self._tensor_of, call.args[1:])
            most = reach(call.args[0], self.calls, self._tensor_of)
            attrs = {**attributes(call), "fits": fits(most, *tensors)}
        if marked := self.marks.get(binding.var):
            attrs = {**attributes(call), **marked}
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

    def _is_input_picture(self, variable: Any) -> bool:
        """Whether a variable is a float graph input, reshaped or transposed at most."""
        if variable in self.caller.actual:
            return dtype_of(variable.ty) == "float32" and self._constant(variable) is None
        return self._is_moved(variable) and self._is_input_picture(self.calls[variable].args[0])

    def _is_moved(self, variable: Any) -> bool:
        return str(self.calls[variable].op.name) in MOVED

    # -- sums --------------------------------------------------------------------------------

    def _sums(self, plan: Plan) -> Any:
        """The sums of a layer; all that does not depend on its data is in its bias."""
        added, constant = self._added(plan)
        bias, attrs = plan.corrected()
        if len(constant):
            bias = bias + np.pad(constant, (0, bias.shape[-1] - len(constant)))
        self.marks, moved = self._marked(plan, added, constant)
        bias = bias + bias.dtype.type(moved)
        outer = [self.places.data(plan), self.places.weights(plan)]
        operands = [*map(self._argument, outer), self._tensor("bias", bias)]
        value = self.builder.emit(plan.convolve(*operands, **attrs), "sums")
        if not self.caller.in_blocks:
            value = self._in_channels(plan, value)
        self.values[added] = value
        return value

    def _in_channels(self, plan: Plan, sums: Any) -> Any:
        """Sums of whole blocks as those of the channels there are, as the layer has them."""
        shape = shape_of(plan.layer.inner.var.ty)
        value = self.builder.emit(packed.take_channels(sums, channels=shape[-1]), "taken")
        if isinstance(plan, LinearPlan) and plan.is_computed and plan.kernel.offset:
            offsets = self._argument(self.places.offsets(plan))
            value = self.builder.emit(relax.op.add(value, offsets), "moved")
        if shape_of(value.ty) != shape:
            value = self.builder.emit(relax.op.reshape(value, shape), "shaped")
        return value

    def _added(self, plan: Plan) -> tuple[Any, Array]:
        """What to read for the sums of a composite, once a constant per channel is added to them.

        That is what adds one in the composite, a layer's own bias, if nothing else reads the sums;
        else the sums themselves, and a constant without channels.
        """
        sums = plan.layer.inner.var
        none = sums, NONE
        readers = [b for b in bindings_of(self.caller.function) if sums in variables_in(b.value)]
        if len(readers) != 1 or not is_op(readers[0].value, "relax.add"):
            return none
        others = [a for a in readers[0].value.args if not a.same_as(sums)]
        constant = self._constant(others[0]) if others else None
        channels = shape_of(sums.ty)[-1]
        if constant is None or constant.dtype != np.int32:
            return none
        if constant.shape[-1:] != (channels,) or constant.size != channels:
            return none
        return readers[0].var, constant.reshape(channels)

    def _marked(self, plan: Plan, sums: Any, constant: Array) -> tuple[Marks, int]:
        """How what reads sums is computed, and what is added to these, if it gains by that."""
        most = plan.most(constant) if self.converts_slowly else None
        if most is None:
            return {}, 0
        return marks_of(self.caller.function, sums, most, self._constant)

    # -- results -----------------------------------------------------------------------------

    def _write(self, inner: Any, variable: Any) -> list[Any]:
        """Store a result as its readers want it: as the user sees it, in layouts, or padded."""
        value, requests = self.values[inner], self.places.edges.of(variable)
        results = []
        if requests.as_user:
            self.written.append((variable, None))
            results.append(self._cut(value, inner) if self.caller.in_blocks else value)
        for layout in requests.layouts:
            self.written.append((variable, layout))
            results.append(store(self.builder, self._kept(value, layout), layout))
        for pad, call in requests.pads:
            self.written.append((pad, None))
            results.append(self.builder.emit(remap(call, {call.args[0]: value}), "padded"))
        return results

    def _kept(self, value: Any, layout: Layout) -> Any:
        """Levels whose padded channels are 0: a quantized input's would be its zero point."""
        is_of_input = any(map(self._is_input_picture, self.caller.function.params))
        is_even = layout.channels % BLOCK == 0 or layout.block != BLOCK
        if is_even or not is_of_input:
            return value
        keep = (np.arange(layout.padded_channels) < layout.channels).astype(np.uint8)
        return self.builder.emit(packed.keep_channels(value, self._tensor("keep", keep)), "kept")

    def _cut(self, value: Any, inner: Any) -> Any:
        """Floats as the user sees them: in their order, without what fills up blocks."""
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
