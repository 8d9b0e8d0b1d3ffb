"""Choose a kernel for every product of a module: the one measured best, or predicted to be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.ir import Call

from stages.bitpacking.edges import LINEAR, narrow_inputs, nhwc, pictures
from stages.bitpacking.window import Chosen, Window
from stages.kinds import Table
from stages.qnn.builder import bindings_of, variables_in
from stages.qnn.composites import calls_in, is_float_product
from stages.qnn.measured import Subject, Workload, pick, products_problem
from stages.qnn.offers import FLOAT_PROBLEMS, Geometry, Problem, best, from_table, products_for
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.signature import BLOCK, WORD_BYTES
from stages.qnn.terms import encoding_of

Tensors = dict[str, np.ndarray[Any, Any]]
DRAWING = {"relax.permute_dims", "relax.qnn.quantize"}
"""Operators that a pass over an input picture may consist of."""


def choose(module: Any, tensors: Tensors, offers: Table, choices: Table) -> dict[Any, Chosen]:
    """Call of a composite in `main` → what is chosen for its convolution or matrix product."""
    chosen: dict[Any, Chosen] = {}
    drawn = _drawn(module)
    for binding in bindings_of(module["main"]):
        if not isinstance(binding.value, Call):
            continue
        function = module[binding.value.op]
        actual = dict(zip(function.params, binding.value.args, strict=True))
        for inner in bindings_of(function):
            if isinstance(inner.value, Call) and linear_name(inner.value):
                data, weight = (actual[argument] for argument in inner.value.args)
                unit = WORD_BYTES if data in drawn else BLOCK
                chosen[binding.var] = kernel_of(
                    inner.value, tensors[weight.name], offers, choices, unit
                )
    return chosen


def _drawn(module: Any) -> set[Any]:
    """Pictures of few channels, from a float input to one product, that a pass of their own makes:
    their rows can be stacked."""
    bindings = bindings_of(module["main"])
    readers = Counter(v for b in bindings for v in variables_in(b.value))
    narrow, found = narrow_inputs(module), set()
    for binding in bindings:
        if binding.var in narrow and readers[binding.var] == 1 and isinstance(binding.value, Call):
            function = module[binding.value.op]
            source = function.params[0].ty
            is_picture = dtype_of(source) == "float32" and len(shape_of(source)) == 4
            if is_picture and {str(call.op.name) for call in calls_in(function)} <= DRAWING:
                found.add(binding.var)
    return found


def linear_name(call: Any) -> str:
    """The name of a convolution or matrix product in the dialect, else nothing."""
    name = str(call.op.name).removeprefix("relax.qnn.")
    return name if name in LINEAR else ""


def subject_of(
    call: Any, weight: np.ndarray[Any, Any], offers: Table, unit: int = BLOCK
) -> Subject:
    """The kernels there are for a product whose algorithm is chosen; `weight` is [O, ..., K].

    Bytes of its data are padded to a multiple of `unit` channels.
    """
    data, stored = call.args
    kernel = (1, 1) if weight.ndim == 2 else weight.shape[1:3]
    height, width, outputs = nhwc(call.ty)
    batch = pictures(call.ty)
    height *= batch
    attrs = attributes(call)
    strides = tuple(attrs.get("strides", (1, 1)))
    if is_float_product(call):
        problem = FLOAT_PROBLEMS[dtype_of(data.ty)].name
        geometry = Geometry(kernel, weight.shape[-1], width, height, strides, 1, batch)
        workload = Workload(problem, geometry, outputs)
        return Subject((workload,), tuple(from_table(offers[problem])))
    bits = int(dtype_of(data.ty).lstrip("uint"))
    geometry = Geometry(kernel, weight.shape[-1], width, height, strides, unit, batch)
    algorithm, dtype = linear_name(call).rpartition("_")[0], dtype_of(stored.ty)
    if algorithm:
        encoding = encoding_of(dtype, attrs["weight_zero_point_x2"])
        problem = Problem(bits, int(dtype.lstrip("uint")), encoding).name
        offered = [o for o in from_table(offers[problem]) if o.algorithm == algorithm]
    else:
        limit = int(np.abs(weight.astype(np.int32)).max(initial=0))
        problem = products_problem(bits, limit)
        offered = products_for(offers, bits, limit)
    subject = Subject((Workload(problem, geometry, outputs),), tuple(offered))
    return subject if algorithm else _cheaper(subject)


def _cheaper(subject: Subject) -> Subject:
    """The same with rows of its data stacked, if that is predicted to be cheaper."""
    work = subject.workload
    if (geometry := work.geometry.as_stacked) is None:
        return subject
    stacked = replace(work, geometry=geometry)
    mine, other = (w.cycles(best(subject.offers, w.geometry)) for w in (work, stacked))
    return replace(subject, workloads=(stacked,)) if other < mine else subject


def kernel_of(
    call: Any,
    weight: np.ndarray[Any, Any],
    offers: Table,
    choices: Table,
    unit: int = BLOCK,
) -> Chosen:
    """What is picked for a product, among the kernels that `subject_of` gives."""
    subject = subject_of(call, weight, offers, unit)
    picked, geometry = pick(subject.offers, subject.workload, choices), subject.workload.geometry
    attrs = attributes(call)
    window = Window(
        kernel=(1, 1) if weight.ndim == 2 else weight.shape[1:3],
        strides=tuple(attrs.get("strides", (1, 1))),
        padding=tuple(attrs.get("padding", (0, 0, 0, 0))),
        size=nhwc(call.args[0].ty)[:2],
        output=nhwc(call.ty)[:2],
    )
    return Chosen(picked.fitted(geometry), window, geometry.stacked)
