"""Trials made ready for a board: a dry build with other kernels, and what each runs on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.benchmarks.loaded_program import Steps
from pipelines.builds.plan_execution import PlanExecution
from pipelines.remote import board_programs
from pipelines.remote.runnable_layers import RunnableLayer, runnable_layers
from pipelines.store import keys
from pipelines.tuning import kernels_by_layer
from pipelines.tuning.candidates import Candidate, TunedWorkload, candidate_name
from pipelines.tuning.dry_build import DryBuild
from stages.packaging.program_builder import program_of

Array = np.ndarray[Any, Any]


@dataclass
class KernelLibrary:
    """The kernels of a trial, linked when a board first wants them."""

    objects: Mapping[str, bytes]
    kernels: Mapping[str, int]
    hardware: Hardware
    _made: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """Their symbols, which are digests of all that decides their code."""
        return keys.digest(" ".join(sorted(self.kernels)))

    def shared(self) -> bytes:
        """A library that a runner loads."""
        return self._linked("shared")

    def static(self) -> bytes:
        """A runner that has the kernels in it."""
        return self._linked("static")

    def _linked(self, form: str) -> bytes:
        make = {"shared": board_programs.library, "static": board_programs.static}[form]
        with self._lock:
            if form not in self._made:
                self._made[form] = make(self.objects, self.kernels, self.hardware)
            return self._made[form]


@dataclass(frozen=True)
class Prepared:
    """One candidate of one layer, beside the kernel that was predicted to be best."""

    layer: TunedWorkload
    candidate: Candidate
    base: RunnableLayer
    """What it is timed beside."""
    side: RunnableLayer
    library: KernelLibrary
    threads: int = 1
    """On which both are timed."""


class Preparing:
    """What is made ready for the trials of one built recipe; TVM works in one thread alone."""

    def __init__(self, base: PlanExecution, hardware: Hardware) -> None:
        self.base, self.hardware = base, hardware
        golden = base.load(base.plan.step("golden"))
        self.inputs: dict[str, Array] = {name: array[0] for name, array in golden.inputs.items()}
        self._base: tuple[dict[str, RunnableLayer], Mapping[str, bytes]] | None = None

    def base_sides(self) -> tuple[dict[str, RunnableLayer], Mapping[str, bytes]]:
        """The sides of all layers as predicted, and the objects that have their kernels."""
        if self._base is None:
            self._base = self._sides(self.base)
        return self._base

    def trial(
        self, wanted: Mapping[str, tuple[TunedWorkload, Candidate]], threads: int = 1
    ) -> list[Prepared | str]:
        """Return, for each layer, its candidate made ready, or why it cannot be.

        On one thread it is beside the predicted kernel; on several beside the same kernel and loops
        without a limit of its tasks.
        """
        steps = self._dry_build(wanted)
        found, objects = self._sides(steps)
        used = kernels_by_layer.running(steps)
        if threads == 1:
            before, base_objects = self.base_sides()
        else:
            whole = {name: (layer, layer.uncapped) for name, (layer, _) in wanted.items()}
            before, base_objects = self._sides(self._dry_build(whole))
        kernels: dict[str, int] = {}
        for name in wanted:
            kernels |= before[name].kernels() | found[name].kernels()
        library = KernelLibrary({**base_objects, **objects}, kernels, self.hardware)
        return [
            Prepared(layer, candidate, before[name], found[name], library, threads)
            if candidate_name(used[name]) == candidate.kernel
            else f"the layer ran {used[name]} instead"
            for name, (layer, candidate) in wanted.items()
        ]

    def _dry_build(self, wanted: Mapping[str, tuple[TunedWorkload, Candidate]]) -> DryBuild:
        choices = {
            workload.name: candidate.choice
            for layer, candidate in wanted.values()
            for workload in layer.kernels.workloads
        }
        return DryBuild(self.base, choices)

    def _sides(self, steps: Steps) -> tuple[dict[str, RunnableLayer], Mapping[str, bytes]]:
        plan = steps.plan
        model = steps.load(plan.step("bitpacking"))
        bodies, schedules = (steps.load(plan.step(name)) for name in ("synthesizing", "scheduling"))
        made = program_of(
            model, bodies, schedules, self.hardware, steps.memo(plan.step("packaging"))
        )
        layers = [call.layer for call in made.calls]
        near = 1024 * self.hardware.l2_kib
        return runnable_layers(made, model, self.inputs, near, layers), made.objects
