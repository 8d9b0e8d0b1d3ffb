"""Choose a kernel for every product of a module among those offered, by predicted cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.ir import Call

from stages.bitpacking.edges import LINEAR, nhwc
from stages.kinds import Table
from stages.qnn.builder import bindings_of
from stages.qnn.offers import Geometry, Offer, Problem, best, from_table, products_for
from stages.qnn.registry import attributes, dtype_of
from stages.qnn.signature import KernelSignature
from stages.qnn.terms import encoding_of

Tensors = dict[str, np.ndarray[Any, Any]]


def choose(module: Any, tensors: Tensors, offers: Table) -> dict[Any, KernelSignature]:
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
                chosen[binding.var] = _signature(inner.value, weight, offers)
    return chosen


def linear_name(call: Any) -> str:
    """The name of a convolution or matrix product in the dialect, else nothing."""
    name = str(call.op.name).removeprefix("relax.qnn.")
    return name if name in LINEAR else ""


def _signature(call: Any, weight: np.ndarray[Any, Any], offers: Table) -> KernelSignature:
    data, stored = call.args
    kh, kw = (1, 1) if weight.ndim == 2 else weight.shape[1:3]
    geometry = Geometry((kh, kw), weight.shape[-1], nhwc(call.ty)[1])
    bits = int(dtype_of(data.ty).lstrip("uint"))
    return best(_candidates(call, bits, dtype_of(stored.ty), weight, offers), geometry).fitted(
        geometry
    )


def _candidates(
    call: Any, bits: int, dtype: str, weight: np.ndarray[Any, Any], offers: Table
) -> list[Offer]:
    algorithm = linear_name(call).rpartition("_")[0]
    if algorithm:
        encoding = encoding_of(dtype, attributes(call)["weight_zero_point_x2"])
        problem = Problem(bits, int(dtype.lstrip("uint")), encoding)
        return [o for o in from_table(offers[problem.name]) if o.algorithm == algorithm]
    return products_for(offers, bits, int(np.abs(weight.astype(np.int32)).max(initial=0)))
