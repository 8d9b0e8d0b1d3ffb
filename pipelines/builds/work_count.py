"""How much a built network computes: found out once a build, and kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.builds import derived
from pipelines.builds.derived import COUNTING
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.store import keys

if TYPE_CHECKING:
    from stages.kinds import Model

_TAKES = ("quantizing", "enumerating", "canonicalizing", "bitpacking")


def work(plan: Plan) -> dict[str, Any]:
    """Return `macs`, and of the layers whose kernel was a choice `layers` and predicted `cycles`.

    The recipe is built. Cycles are of one thread, by the costs of the recipe's core.
    """
    execution = PlanExecution(plan)
    ingredients = {
        "inputs": derived.outputs(execution, _TAKES),
        "code": {
            **keys.code_at_start("stages.bitpacking"),
            **keys.code_ingredients("pipelines.builds.work_count", packages=("pipelines",)),
        },
    }

    def find() -> dict[str, Any]:
        return {"macs": macs(execution), **_predicted(execution)}

    return derived.table(execution, COUNTING, ingredients, find)


def macs(execution: PlanExecution) -> int:
    """Return the multiply-accumulates of a built package's network, for all inputs of a batch."""
    from pipelines.benchmarks import kernel_work

    model = execution.load(execution.plan.step("bitpacking"))
    runs = _runs(model)
    return sum(runs[name] * each.macs for name, each in kernel_work.work_of_layers(model).items())


def _runs(model: Model) -> dict[str, int]:
    """Layer → how often it is run: once, or for each image of a batch that was split."""
    from stages.graph.bindings import calls_of
    from stages.graph.collecting import images_of, variables_per_batch

    once, count = variables_per_batch(model.module["main"]), images_of(model)
    variables = [binding.var for binding, _function in calls_of(model)]
    return {str(each.name): 1 if each in once else count for each in variables}


def _predicted(execution: PlanExecution) -> dict[str, Any]:
    """What the kernels that run were predicted to take when they were chosen."""
    from pipelines.tuning import kernels_by_layer
    from pipelines.tuning.candidates import candidate_of

    running = kernels_by_layer.running(execution)
    runs = _runs(execution.load(execution.plan.step("bitpacking")))
    chosen = {
        name: (layer_kernels, candidate_of(layer_kernels, running.get(name, "")))
        for name, layer_kernels in kernels_by_layer.of(execution).items()
    }
    cycles = [
        runs[name] * layer_kernels.workload.cycles(candidate)
        for name, (layer_kernels, candidate) in chosen.items()
        if candidate is not None
    ]
    return {"layers": len(cycles), "cycles": round(sum(cycles))}
