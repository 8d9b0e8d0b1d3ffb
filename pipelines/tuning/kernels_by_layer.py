"""The layers of a built recipe whose kernels can be chosen, and what they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.benchmarks.loaded_program import Steps
from pipelines.builds.stage_calls import validated
from stages import bitpacking, legalizing
from stages.dialect.calls import attributes
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.signature_text import parse_signature
from stages.kernels.workloads import LayerKernels
from stages.options import LegalizeOptions


def of(steps: Steps) -> dict[str, LayerKernels]:
    """Layer → what there is to choose for it."""
    plan = steps.plan
    candidates = steps.load(plan.step("enumerating"))
    model = steps.load(plan.step("quantizing"))
    data = plan.step("legalizing").options["options"]
    options: LegalizeOptions = validated("stages.options", "LegalizeOptions", data)
    canonical = steps.load(plan.step("canonicalizing"))
    found = bitpacking.kernels_by_layer(model=canonical, options=options, candidates=candidates)
    # Where the algorithm is open too, it is chosen first, of all kernels there are.
    own = legalizing.kernels_by_layer(model=model, options=options, candidates=candidates)
    is_open = {name for name, kernels in own.items() if len(kernels.workloads) > 1}
    return own | {name: kernels for name, kernels in found.items() if name not in is_open}


def running(steps: Steps) -> dict[str, str]:
    """Layer → the name of the kernel that computes its sums."""
    return {
        layer: parse_signature(attributes(call)["signature"]).alone.name
        for layer, _, call in _products(steps)
    }


def orders(steps: Steps) -> dict[str, str]:
    """Layer → the order of its work items."""
    schedules = steps.load(steps.plan.step("scheduling"))
    return {layer: schedules[composite]["order"] for layer, composite, _ in _products(steps)}


def _products(steps: Steps) -> Iterator[tuple[str, str, Any]]:
    """Yield layer, composite and packed convolution of every call that has one."""
    for binding, function in calls_of(steps.load(steps.plan.step("bitpacking"))):
        for inner in bindings_of(function):
            if is_convolution(inner.value):
                yield str(binding.var.name), str(binding.value.op.name_hint), inner.value
