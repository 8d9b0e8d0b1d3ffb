"""From a packed model to a package's program: one call per composite, one object per kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call as RelaxCall

from hw.profile import Hardware
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.graph.bindings import bindings_of, output_names, outputs_of, quantization_of
from stages.graph.collecting import images_of, is_collect, variables_per_batch
from stages.graph.composites import TE, is_reshape
from stages.kinds import Model, Table
from stages.nodes import Expr, Function, GlobalVar, TensorType, Var, VarBinding
from stages.packaging.compiling.kernel_objects import (
    Lowered,
    Memo,
    code_ingredients,
    compiled_assembly,
    compiled_objects,
)
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.kernel import Kernel, digest_of
from stages.packaging.lowering import lower
from stages.packaging.program.kernel_program import Call, Fallback, Program, Slot, TensorSpec
from stages.packaging.program.memory_check import check_fits
from stages.packaging.program.small_calls import is_small

ARITHMETIC = tuple(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
)
"""Operators of floats that may stand between an input and its quantizer."""


def program_of(
    model: Model,
    bodies: Table,
    schedules: Table,
    hardware: Hardware,
    memo: Memo,
    as_text: bool = False,
) -> Program:
    """Lower every composite and order calls; then compile each through `memo`, by its own problem:
    into assembly if `as_text`, else into objects.

    StageError if the program does not fit into the board's memory: nothing is compiled then.
    """
    builder = ProgramBuilder(model, bodies, schedules, hardware)
    program = builder.run()
    check_fits(program, hardware)
    kernels = builder.kernels.values()
    if as_text:
        return replace(program, texts=compiled_assembly(kernels, hardware, memo))
    return replace(program, objects=compiled_objects(kernels, hardware, memo))


class ProgramBuilder:
    """Lowers every composite of a model and orders the calls; `kernels` are then all of them."""

    def __init__(self, model: Model, bodies: Table, schedules: Table, hardware: Hardware) -> None:
        self.model, self.bodies, self.schedules = model, bodies, schedules
        self.hardware = hardware
        self.images = images_of(model)
        self.slots: dict[Var, Slot] = {}
        self.tuples: dict[Var, list[Slot]] = {}
        self.buffers: dict[str, int] = {}
        self.collected: set[str] = set()
        self.kernels: dict[tuple[GlobalVar, bool], Lowered] = {}

    def run(self) -> Program:
        """The program, its objects left out; `kernels` are then all that it calls."""
        main = self.model.module["main"]
        count = int(main.attrs["num_input"])
        stored = quantization_of(self.model)
        inputs = [
            self._spec(p.name, p.ty, stored.get(p.name) or self._input_quantization(p))
            for p in main.params[:count]
        ]
        for parameter in main.params[:count]:
            self.slots[parameter] = Slot("input", parameter.name)
        constants: dict[str, np.ndarray[Any, Any]] = {}
        for parameter in main.params[count:]:
            self.slots[parameter] = Slot("constant", parameter.name)
            constants[parameter.name] = self.model.params[parameter.name]
        results = {
            b.value: name
            for b in bindings_of(main)
            for output, name in zip(outputs_of(main), output_names(self.model), strict=True)
            if b.var.same_as(output)
        }
        once = variables_per_batch(main)
        outputs = [
            self._spec(name, v.ty, stored.get(name), is_whole=v in once)
            for v, name in results.items()
        ]
        calls: list[Call] = []
        calls_per_batch: list[Call] = []
        for binding in bindings_of(main):
            if is_collect(binding.value):
                self.slots[binding.var] = self._collected(binding.value.args[0])
            elif is_reshape(binding.value):
                self.slots[binding.var] = self._read(binding.value.args[0])
            elif isinstance(binding.value, RelaxCall):
                run = calls_per_batch if binding.var in once else calls
                run.append(self._call(binding, results))
            elif isinstance(binding.value, relax.TupleGetItem):
                taken = self.tuples[binding.value.tuple_value]
                self.slots[binding.var] = taken[binding.value.index]
        return Program(
            tuple(inputs),
            tuple(outputs),
            self.buffers,
            constants,
            (*calls, *calls_per_batch),
            {},
            self.images,
            len(calls_per_batch),
        )

    def _call(self, binding: VarBinding, results: Mapping[Var, str]) -> Call:
        callee = binding.value.op
        symbol, kernel = self._kernel(callee)
        fallback, scratch = None, kernel.scratch_bytes
        if kernel.uses_tiles:
            other_symbol, other = self._kernel(callee, with_tiles=False)
            fallback = Fallback(other_symbol, other.max_tasks, other.few)
            scratch = max(scratch, other.scratch_bytes)
        reads = tuple(self._read(argument) for argument in binding.value.args)
        kind = binding.var.ty
        fields = list(kind.fields) if hasattr(kind, "fields") else [kind]
        writes = []
        for index, field in enumerate(fields):
            result = self._result(binding.var, index, len(fields), results)
            writes.append(result or self._buffer(f"{binding.var.name}.{index}", field))
        if len(writes) == 1:
            self.slots[binding.var] = writes[0]
        else:
            self.tuples[binding.var] = list(writes)
        for index, size in enumerate(kernel.temporaries):
            name = f"{binding.var.name}.temporary{index}"
            self.buffers[name] = size
            writes.append(Slot("buffer", name))
        layer, small = binding.var.name, is_small(self.model.module[callee], self.hardware)
        tasks = kernel.max_tasks
        return Call(
            symbol, layer, reads, tuple(writes), scratch, tasks, fallback, small, kernel.few
        )

    def _read(self, argument: Var) -> Slot:
        slot = self.slots[argument]
        assert isinstance(slot, Slot), f"{argument.name} is several tensors"
        return slot

    def _collected(self, argument: Var) -> Slot:
        """The buffer that an image is in, with all of them one behind the other."""
        slot = self._read(argument)
        is_own = slot.kind == "buffer" and slot.name not in self.collected
        assert is_own, f"{argument.name} has no buffer of its own to collect images in"
        self.collected.add(slot.name)
        self.buffers[slot.name] *= self.images
        return slot

    def _result(
        self, variable: Var, index: int, count: int, results: Mapping[Var, str]
    ) -> Slot | None:
        """The graph output that a result is, if it is one."""
        if count == 1:
            return Slot("output", results[variable]) if variable in results else None
        for binding in bindings_of(self.model.module["main"]):
            value = binding.value
            if (
                isinstance(value, relax.TupleGetItem)
                and value.tuple_value.same_as(variable)
                and value.index == index
                and binding.var in results
            ):
                return Slot("output", results[binding.var])
        return None

    def _spec(
        self,
        name: str,
        tensor_type: TensorType,
        quantization: Mapping[str, Any] | None,
        is_whole: bool = False,
    ) -> TensorSpec:
        """An input or output as the user sees it: all images of a batch."""
        shape = shape_of(tensor_type)
        if self.images > 1 and not is_whole:
            shape = (self.images, *shape[1:])
        return TensorSpec(str(name), dtype_of(tensor_type), shape, quantization)

    def _input_quantization(self, parameter: Var) -> dict[str, Any] | None:
        """How the package quantizes a float input first thing, if that is one scale and range."""
        for binding in bindings_of(self.model.module["main"]):
            call = binding.value
            if not isinstance(call, RelaxCall) or parameter not in list(call.args):
                continue
            if not isinstance(call.op, GlobalVar):
                return None  # a view of the input comes first
            function = self.model.module[call.op]
            actual = dict(zip(function.params, call.args, strict=True))
            inner = next((b.value for b in bindings_of(function) if _is_quantize(b.value)), None)
            steps = [b.value for b in bindings_of(function) if _is_arithmetic(b.value)]
            if inner is None or steps:
                return None
            scale, zero_point = (self.model.params[actual[a].name] for a in inner.args[1:])
            attrs = attributes(inner)
            return {
                "scale": float(scale.reshape(-1)[0]),
                "zero_point": float(zero_point.reshape(-1)[0]),
                "low": attrs["low"],
                "high": attrs["high"],
                "rounding": attrs["rounding"],
            }
        return None

    def _buffer(self, name: str, tensor_type: TensorType) -> Slot:
        size = prod(shape_of(tensor_type)) * storage_dtype(dtype_of(tensor_type)).itemsize
        self.buffers[name] = size
        return Slot("buffer", name)

    def _kernel(self, callee: GlobalVar, with_tiles: bool = True) -> tuple[str, Kernel]:
        """The kernel of a composite; equal composites share it, also across models."""
        if (callee, with_tiles) not in self.kernels:
            function = self.model.module[callee]
            schedule = self.schedules[callee.name_hint]
            bodies = {name: self.bodies[name] for name in _signatures(function, with_tiles)}
            problem = {
                "function": str(function.script()),
                "schedule": schedule,
                "bodies": bodies,
                "hardware": code_ingredients(self.hardware),
            }
            symbol = f"{function.attrs['composite']}_{digest_of(problem)}"
            kernel = lower(function, symbol, schedule, bodies, self.hardware, with_tiles)
            self.kernels[callee, with_tiles] = Lowered(symbol, kernel, problem)
        lowered = self.kernels[callee, with_tiles]
        return lowered.symbol, lowered.kernel


def _signatures(function: Function, with_tiles: bool) -> list[str]:
    """The micro-kernels of a composite, by name."""
    if str(function.attrs["composite"]) == TE:
        return []
    composite = Composite(function, with_tiles)
    return [composite.signature.name] if composite.is_convolution else []


def _is_quantize(expr: Expr) -> bool:
    return is_op(expr, names.QNN_QUANTIZE)


def _is_arithmetic(expr: Expr) -> bool:
    return isinstance(expr, RelaxCall) and str(expr.op.name) in ARITHMETIC
