"""Choose a kernel for every product of a module: the one measured best, or predicted to be."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.ir import Call

from stages.bitpacking.edges import LINEAR, nhwc, pictures
from stages.kinds import Table
from stages.qnn.builder import bindings_of
from stages.qnn.composites import is_float_product
from stages.qnn.measured import Subject, Workload, pick, products_problem
from stages.qnn.offers import FLOAT_PROBLEMS, Geometry, Problem, from_table, products_for
from stages.qnn.registry import attributes, dtype_of
from stages.qnn.signature import BLOCK, KernelSignature
from stages.qnn.terms import encoding_of

Tensors = dict[str, np.ndarray[Any, Any]]


def choose(
    module: Any, tensors: Tensors, offers: Table, choices: Table
) -> dict[Any, KernelSignature]:
    """Call of a composite in `main` → the signature of its convolution or matrix product."""
    chosen: dict[Any, KernelSignature] = {}
    for binding in bindings_of(module["main"]):
        if not isinstance(binding.value, Call):
            continue
        function = module[binding.value.op]
        actual = dict(zip(function.params, binding.value.args, strict=True))
        for inner in bindings_of(function):
            if isinstance(inner.value, Call) and linear_name(inner.value):
                weight = tensors[actual[inner.value.args[1]].name]
                chosen[binding.var] = signature_of(inner.value, weight, offers, choices)
    return chosen


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
    height *= pictures(call.ty)
    attrs = attributes(call)
    strides = tuple(attrs.get("strides", (1, 1)))
    if is_float_product(call):
        problem = FLOAT_PROBLEMS[dtype_of(data.ty)].name
        geometry = Geometry(kernel, weight.shape[-1], width, height, strides, unit=1)
        workload = Workload(problem, geometry, outputs)
        return Subject((workload,), tuple(from_table(offers[problem])))
    bits = int(dtype_of(data.ty).lstrip("uint"))
    geometry = Geometry(kernel, weight.shape[-1], width, height, strides, unit)
    algorithm, dtype = linear_name(call).rpartition("_")[0], dtype_of(stored.ty)
    if algorithm:
        encoding = encoding_of(dtype, attrs["weight_zero_point_x2"])
        problem = Problem(bits, int(dtype.lstrip("uint")), encoding).name
        offered = [o for o in from_table(offers[problem]) if o.algorithm == algorithm]
    else:
        limit = int(np.abs(weight.astype(np.int32)).max(initial=0))
        problem = products_problem(bits, limit)
        offered = products_for(offers, bits, limit)
    return Subject((Workload(problem, geometry, outputs),), tuple(offered))


def signature_of(
    call: Any,
    weight: np.ndarray[Any, Any],
    offers: Table,
    choices: Table,
    unit: int = BLOCK,
) -> KernelSignature:
    """The kernel picked for a product."""
    subject = subject_of(call, weight, offers, unit)
    picked = pick(subject.offers, subject.workload, choices)
    return picked.fitted(subject.workload.geometry)
