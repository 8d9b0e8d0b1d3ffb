"""How the layers of a built recipe become kernels: by which row of packaging's table."""

from __future__ import annotations

from pipelines.builds.plan_execution import PlanExecution
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.resolved import Resolved
from pipelines.tuning.alternatives import check_built
from stages.graph.bindings import calls_of
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.lowering import described


def rows(execution: PlanExecution, resolved: Resolved, pattern: str) -> list[dict[str, str]]:
    """Return, for every layer that a pattern matches, the row and the parts that it takes.

    UserError if the recipe is not built, or no layer matches.
    """
    check_built(execution, resolved, pattern)
    plan = execution.plan
    schedules = execution.load(plan.step("scheduling"))
    layers = {
        str(binding.var.name): LoweringInput(
            function, schedules[str(binding.value.op.name_hint)], resolved.hardware
        )
        for binding, function in calls_of(execution.load(plan.step("bitpacking")))
    }
    matched = matching(pattern, list(layers), "layer")
    return [{"layer": name, **described(layers[name])} for name in matched]
