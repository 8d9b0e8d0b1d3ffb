"""The kernels that each layer of a built recipe could run, as predicted and as measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.recipe.layer_patterns import is_meant
from pipelines.recipe.resolved import Resolved
from pipelines.tuning import kernels_by_layer, ledger
from pipelines.tuning.candidates import candidate_name
from pipelines.tuning.ledger import Trial
from pipelines.tuning.measured_choices import best_of, capped_of
from stages.kernels.packing_choices import packing_text
from stages.kernels.workloads import LayerKernels


def rows(execution: PlanExecution, resolved: Resolved, pattern: str) -> list[dict[str, Any]]:
    """Return a row a kernel, for every layer with a choice that a pattern matches, cheapest
    prediction first.

    UserError if the recipe is not built.
    """
    check_built(execution, resolved, pattern)
    found = kernels_by_layer.of(execution)
    matched = [name for name in found if is_meant(pattern, name)]
    running = kernels_by_layer.running(execution)
    hardware = resolved.hardware
    machine = ledger.machine_for(hardware.core, hardware.isa, hardware.architecture)
    trials = ledger.trials(machine)
    return [row for name in matched for row in _of_layer(name, found[name], running[name], trials)]


def check_built(execution: PlanExecution, resolved: Resolved, pattern: str) -> None:
    """UserError if the layers of a recipe are not known yet."""
    if not execution.is_current(execution.plan.step("scheduling")):
        raise UserError(
            f"layer={pattern}: the layers of {resolved.name} are known once it is built; "
            f"run: doit build {resolved.arguments()}"
        )


def _of_layer(
    name: str, layer_kernels: LayerKernels, running: str, trials: list[Trial]
) -> Iterator[dict[str, Any]]:
    own = [trial for trial in trials if trial.workloads[0] == layer_kernels.workload.name]
    for candidate in layer_kernels.ranked():
        kernel = layer_kernels.kernel(candidate)
        tried = [trial for trial in own if trial.kernel == kernel]
        best = best_of(tried)
        yield {
            "layer": name,
            "kernel": kernel,
            "algorithm": candidate.algorithm,
            "packing": packing_text(candidate.signature) if candidate.signature.plan else None,
            "predicted_cycles": round(layer_kernels.workload.cycles(candidate)),
            "measured_seconds": best.seconds if best else _as_default(own, kernel),
            "schedule": _schedules(own, kernel, best),
            "failed": next((trial.failed for trial in reversed(tried) if trial.failed), None),
            "chosen": kernel == candidate_name(running),
        }


def _as_default(trials: list[Trial], kernel: str) -> float | None:
    """What a kernel took where it was the one that others were measured beside."""
    best = best_of(trial for trial in trials if candidate_name(trial.against) == kernel)
    return best.against_seconds if best else None


def _schedules(trials: list[Trial], kernel: str, best: Trial | None) -> str | None:
    """The loops in which a kernel was the fastest, and in how many tasks; None as predicted."""
    loops = (best.order, best.rows) if best else (None, None)
    capped = capped_of(trials, kernel, *loops)
    found = capped or best
    return found.schedule or None if found is not None else None
