"""Every kernel of a package alone, on its own tensors, beside the processor's measured peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hw.host import may_use_tiles
from hw.profile import Hardware
from pipelines.benchmarks.loaded_program import Steps, loaded
from pipelines.benchmarks.peaks import least_seconds
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels import operator_names
from stages.kernels.operation_counts import macs_of
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.signature_text import parse_signature
from stages.kernels.winograd_transforms import transform_for

if TYPE_CHECKING:
    from stages.kinds import Model
    from stages.nodes import Call

Array = np.ndarray[Any, Any]
RUNS = 15


@dataclass(frozen=True)
class Work:
    """What a kernel multiplies."""

    how: str
    """A family of kernels, `tiles` or `tiles_bf16`; `plain` for tensor expressions."""
    macs: int
    popcounts: int
    """Popcounts a pair of operands, for `popcount`."""
    saved: float = 1
    """Multiply-accumulates that each product stands for, for `mac16`."""


def times(steps: Steps, hardware: Hardware, inputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return layer, work and seconds of one thread for every call of a package, in order."""
    program = loaded(steps, hardware, inputs)
    work = work_of_layers(steps.load(steps.plan.step("bitpacking")))
    rows = []
    for call in program.program.calls:
        found = work.get(call.layer, Work("plain", 0, 0))
        rows.append(
            {"layer": call.layer, "how": found.how, "macs": found.macs,
             "popcounts": found.popcounts, "saved": found.saved,
             "seconds": least_seconds(*program.kernel(call), RUNS)}
        )  # fmt: skip
    return rows


def work_of_layers(model: Model) -> dict[str, Work]:
    """Return what each call of a bit-packed model multiplies, by its name."""
    found = {}
    for binding, function in calls_of(model):
        for inner in bindings_of(function):
            work = _work(inner.value)
            if work is not None:
                found[str(binding.var.name)] = work
    return found


def _work(call: Call) -> Work | None:
    macs = macs_of(call)
    if is_convolution(call):
        attrs = attributes(call)
        signature = parse_signature(attrs["signature"])
        terms = len(signature.plan.terms) if signature.plan else 0
        tiled = "tiles_bf16" if signature.is_float else "tiles"
        is_tiled = signature.is_tiled and may_use_tiles()
        saved: float = 1
        if signature.is_transformed:
            saved = transform_for(attrs["strides"], attrs["tile"]).saved
        return Work(tiled if is_tiled else signature.family, macs, terms, saved)
    how = "mac8" if is_op(call, operator_names.QNN_PACKED_DEPTHWISE) else "plain"
    return Work(how, macs, 0) if macs else None
