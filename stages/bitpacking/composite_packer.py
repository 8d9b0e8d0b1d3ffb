"""One composite from logical tensors to packed ones.

Its linear layer becomes a packed convolution of data in a layout, whose sums are cut to the
channels there are; its other operators follow as they were. Results are stored as they are wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.bitpacking.affine_thresholds import as_affine
from stages.bitpacking.call_graph import Caller
from stages.bitpacking.edge_layouts import Layout, load, store
from stages.bitpacking.packed_model_builder import PackedModelBuilder
from stages.bitpacking.plans import LinearPlan, Plan
from stages.bitpacking.sums import NONE, Marks, marks_of, reach, shortened
from stages.dialect import integer, names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, stated
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.builder import FunctionBuilder
from stages.graph.composites import DEPTHWISE, POOL_KINDS, TE
from stages.kernels import packed_edges
from stages.kinds import Array
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics.rescale import fits


class CompositePacker:
    """Packs one composite for one call."""

    def __init__(self, packed: PackedModelBuilder, caller: Caller, converts_slowly: bool) -> None:
        self.packed, self.caller = packed, caller
        self.results = packed.graph.results[caller.variable]
        self.plan = packed.edges.plans.get(caller.variable)
        self.converts_slowly = converts_slowly
        bindings = bindings_of(caller.function)
        self.calls = {b.var: b.value for b in bindings if isinstance(b.value, Call)}
        """Variable of the composite → the operator that gives it."""
        self.builder = FunctionBuilder()
        self.arguments: list[Any] = []
        self.values: dict[Var, Any] = {}
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
            results += self._write(self.values[returned[output]], variable)
        is_own = self.plan is not None and self.caller.kind == TE
        kind = DEPTHWISE if is_own else self.caller.kind
        return self.builder.finish(results, {"composite": kind})

    # -- operands ----------------------------------------------------------------------------

    def _argument(self, outer: Var) -> Any:
        """The parameter for a tensor of `main`."""
        for parameter, argument in zip(self.builder.params, self.arguments, strict=True):
            if outer.same_as(argument):
                return parameter
        self.arguments.append(outer)
        name = f"p{len(self.builder.params)}"
        return self.builder.param(name, shape_of(outer.ty), dtype_of(outer.ty))

    def _tensor(self, name: str, value: Array) -> Any:
        """A parameter for a tensor of this layer."""
        return self._argument(self.packed.builder.tensor(f"{self.caller.name}.{name}", value))

    def _value(self, variable: Var) -> Any:
        """An operand: computed here, as the user sees it, or what is inside an edge."""
        if variable not in self.values:
            self.values[variable] = self._shaped(self._read(variable), variable)
        return self.values[variable]

    def _read(self, variable: Var) -> Any:
        """The same, perhaps with more channels, those that fill an edge up."""
        if variable in self.values:
            return self.values[variable]
        stored, layout = self.packed.stored_or_read(self.caller.actual[variable])
        value = self._argument(stored)
        return load(self.builder, value, layout) if layout else value

    def _shaped(self, value: Expr, variable: Var) -> Any:
        """A value of all channels there are, or more, in the shape of a variable."""
        shape = shape_of(variable.ty)
        if shape and shape_of(value.ty)[-1] > shape[-1]:
            value = self.builder.emit(
                packed_edges.take_channels(value, channels=shape[-1]), "taken"
            )
        if shape_of(value.ty) != shape:
            value = self.builder.emit(relax.op.reshape(value, shape), "shaped")
        return value

    def _constant(self, parameter: Var) -> Array | None:
        """The value of a parameter, if it is known when the package is built."""
        given = self.caller.actual.get(parameter)
        return None if given is None else self.packed.constants.get(given)

    def _tensor_of(self, parameter: Var) -> Array:
        """The value of a parameter that is a tensor of the layer, before packing."""
        return self.packed.constants[self.caller.actual[parameter]]

    # -- operators ---------------------------------------------------------------------------

    def _operator(self, binding: VarBinding) -> Any:
        call = binding.value
        if self.plan is not None and binding.var.same_as(self.plan.layer.inner.var):
            return self._sums(self.plan)
        if is_op(call, names.QNN_THRESHOLD):
            return self.builder.emit(self._levels(call), "v")
        if str(call.op.name) in POOL_KINDS:
            pooled = Call(call.op, [self._read(call.args[0])], call.attrs)
            return self._shaped(self.builder.emit(pooled, "pooled"), binding.var)
        arguments = [remap(a, {v: self._value(v) for v in variables_in(a)}) for a in call.args]
        attrs = call.attrs
        if is_op(call, names.QNN_REQUANTIZE):
            tensors = map(self._tensor_of, call.args[1:])
            most = reach(call.args[0], self.calls, self._tensor_of)
            attrs = stated({**attributes(call), "fits": fits(most, *tensors)})
        if marked := self.marks.get(binding.var):
            attrs = stated({**attributes(call), **marked})
        return self.builder.emit(Call(call.op, arguments, attrs), "v")

    def _levels(self, call: Call) -> Any:
        """Thresholds in as few bits as they need, or a multiply-add where that is cheaper."""
        most = reach(call.args[0], self.calls, self._tensor_of)
        data = self._value(call.args[0])
        thresholds, falling = map(self._tensor_of, call.args[1:])
        thresholds = shortened(thresholds, most)
        affine = as_affine(thresholds, falling, most)
        if affine is not None:
            bounds = {"low": 0, "high": len(thresholds), "fits": fits(most, *affine)}
            slope, start = map(self._tensor, ("multiplier", "offset"), affine)
            return integer.requantize(data, slope, start, dtype=attributes(call)["dtype"], **bounds)
        limits, attrs = self._tensor("thresholds", thresholds), attributes(call)
        attrs.pop("of_levels", None)  # the composite says it now
        return integer.threshold(data, limits, self._value(call.args[2]), **attrs)

    # -- sums --------------------------------------------------------------------------------

    def _sums(self, plan: Plan) -> Any:
        """The sums of a layer; all that does not depend on its data is in its bias."""
        added, constant = self._added(plan)
        bias, attrs = plan.corrected()
        if len(constant):
            bias = bias + np.pad(constant, (0, bias.shape[-1] - len(constant)))
        self.marks, moved = self._marked(plan, added, constant)
        bias = bias + bias.dtype.type(moved)
        outer = [self.packed.data(plan), self.packed.weights(plan)]
        operands = [*map(self._argument, outer), self._tensor("bias", bias)]
        value = self.builder.emit(plan.convolve(*operands, **attrs), "sums")
        value = self.values[added] = self._in_channels(plan, value)
        return value

    def _in_channels(self, plan: Plan, sums: Var) -> Any:
        """Sums of whole blocks as those of the channels there are, as the layer has them."""
        if isinstance(plan, LinearPlan) and plan.is_computed and plan.kernel.offset:
            offsets = self._argument(self.packed.offsets(plan))
            channels = shape_of(plan.layer.inner.var.ty)[-1]
            sums = self.builder.emit(packed_edges.take_channels(sums, channels=channels), "taken")
            sums = self.builder.emit(relax.op.add(sums, offsets), "moved")
        return self._shaped(sums, plan.layer.inner.var)

    def _added(self, plan: Plan) -> tuple[Any, Array]:
        """What to read for the sums of a composite, once a constant per channel is added to them.

        That is what adds one in the composite, a layer's own bias, if nothing else reads the sums;
        else the sums themselves, and a constant without channels.
        """
        sums = plan.layer.inner.var
        none = sums, NONE
        readers = [b for b in bindings_of(self.caller.function) if sums in variables_in(b.value)]
        if len(readers) != 1 or not is_op(readers[0].value, names.ADD):
            return none
        others = [a for a in readers[0].value.args if not a.same_as(sums)]
        constant = self._constant(others[0]) if others else None
        channels = shape_of(sums.ty)[-1]
        if constant is None or constant.dtype != np.int32:
            return none
        if constant.shape[-1:] != (channels,) or constant.size != channels:
            return none
        return readers[0].var, constant.reshape(channels)

    def _marked(self, plan: Plan, sums: Var, constant: Array) -> tuple[Marks, int]:
        """How what reads sums is computed, and what is added to these, if it gains by that."""
        most = plan.most(constant) if self.converts_slowly else None
        if most is None:
            return {}, 0
        return marks_of(self.caller.function, sums, most, self._constant)

    # -- results -----------------------------------------------------------------------------

    def _write(self, value: Expr, variable: Var) -> list[Any]:
        """Store a result as its readers want it: as the user sees it, in layouts, or padded."""
        requests, results = self.packed.edges.of(variable), []
        if requests.is_stored_as_user:
            self.written.append((variable, None))
            results.append(value)
        for layout in requests.layouts:
            self.written.append((variable, layout))
            results.append(store(self.builder, value, layout))
        for pad, call in requests.pads:
            self.written.append((pad, None))
            results.append(self.builder.emit(remap(call, {call.args[0]: value}), "padded"))
        return results
