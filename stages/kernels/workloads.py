"""What measuring may decide: the kernel a workload gets, and the schedule by which it runs.

A table of choices maps the names of workloads to `{"kernel": NAME, "order": ORDER or None}`, with
"rows" and "threads" where these were chosen too (`AXES`), and where that was measured beside
another kernel, with its name, as "against". It is an input of the stages that choose; where it says
nothing, names a kernel that is no candidate, or was measured beside one that is no longer predicted
to be the best, predicted cycles decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import BYTE_LIMIT, SPAN_LIMIT
from stages.kernels.selection import best, ranked
from stages.kinds import Table

AXES = ("order", "rows", "threads")
"""What a choice may state of a schedule: the order of work items, output rows of a row block, and
the most tasks that a call is split into. What it does not state is as predicted: without row
blocks, and as many tasks as a call can use."""


@dataclass(frozen=True)
class Workload:
    """A layer's products, as far as the time of their kernel depends on them."""

    problem: str
    """Name of the product of levels, or of `products_problem`."""
    geometry: Geometry
    outputs: int
    """Channels of the output."""

    @property
    def name(self) -> str:
        """Its key in a table of choices."""
        return f"{self.problem} {self.shape}"

    @property
    def shape(self) -> str:
        """For example `3x3s1x1_64to128_56x56`: window, strides, channels, size of the output."""
        return shape_name(
            self.geometry.window,
            self.geometry.strides,
            (self.geometry.channels, self.outputs),
            (self.geometry.output_rows, self.geometry.output_width),
            self.geometry.groups.count,
        )

    def cycles(self, candidate: KernelCandidate) -> float:
        """Predicted cycles of the whole layer with the kernel of a candidate."""
        return candidate.layer(self.geometry, self.outputs)


@dataclass(frozen=True)
class LayerKernels:
    """The kernels among which there is a choice for one layer."""

    workloads: tuple[Workload, ...]
    """The keys that the layer has in a table of choices, one for each stage that chooses, in their
    order; all candidates are kernels for the first one."""
    candidates: tuple[KernelCandidate, ...]

    @property
    def workload(self) -> Workload:
        """The workload that the layer is known by, the first one."""
        return self.workloads[0]

    def ranked(self) -> list[KernelCandidate]:
        """The candidates that fit, those predicted to be cheapest first."""
        return ranked(self.candidates, self.workload.geometry, self.workload.outputs)

    def kernel(self, candidate: KernelCandidate) -> str:
        """The name of a candidate's kernel as this layer runs it."""
        return candidate.fitted(self.workload.geometry).name


def shape_name(
    window: Sequence[int],
    strides: Sequence[int],
    channels: Sequence[int],
    output: Sequence[int],
    groups: int,
) -> str:
    """The part of a workload's name that says nothing of what is multiplied."""
    sides, steps, size = ("x".join(map(str, pair)) for pair in (window, strides, output))
    grouped = f"g{groups}" if groups > 1 else ""
    return f"{sides}s{steps}_{channels[0]}to{channels[1]}{grouped}_{size}"


def products_problem(activation_bits: int, weight_limit: int) -> str:
    """The problem of 8-bit products whose weights go up to `weight_limit`, for example `u8s8`.

    Weights are told apart by the bits of their magnitude: narrower sums suit smaller ones. Those
    that no signed byte holds have 9 bits.
    """
    if weight_limit > BYTE_LIMIT:
        return f"u{activation_bits}s{SPAN_LIMIT.bit_length()}"
    return f"u{activation_bits}s{min(weight_limit.bit_length(), 7) + 1}"


def pick(
    candidates: Sequence[KernelCandidate], workload: Workload, choices: Table
) -> KernelCandidate:
    """The candidate that a table of choices names for a workload, else the cheapest predicted."""
    geometry = workload.geometry
    predicted = best(candidates, geometry, workload.outputs)
    if (choice := choices.get(workload.name)) is not None:
        fitting = {o.fitted(geometry).name: o for o in candidates if geometry.takes(o.signature)}
        is_stale = fitting.get(choice.get("against"), predicted) is not predicted
        if not is_stale and (chosen := fitting.get(choice["kernel"])) is not None:
            return chosen
    return predicted


def schedule_of(kernel: str, shape: str, choices: Mapping[str, Any]) -> Table:
    """What a table of choices states of `AXES` for a kernel on a shape."""
    for workload, choice in choices.items():
        if workload.endswith(f" {shape}") and choice["kernel"] == kernel:
            return {axis: choice[axis] for axis in AXES if choice.get(axis) is not None}
    return {}
