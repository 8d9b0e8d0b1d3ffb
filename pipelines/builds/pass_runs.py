"""The passes of a recipe's stages: run again on what each stage took, one after the other.

Stages keep what their last pass gives. What lies between two passes is made anew where somebody
asks for it, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipelines.builds.plan_execution import PlanExecution
from pipelines.builds.stage_calls import call

if TYPE_CHECKING:
    from stages.graph.pass_table import Applied


def of_stage(execution: PlanExecution, stage: str) -> list[Applied]:
    """Return the passes of a stage, in order, each with its model; none for one without passes."""
    step = execution.plan.step(stage)
    if not step.stage.has_passes:
        return []
    found: list[Applied] = []
    call(step, {**execution.taken(step), "observe": found.append}, execution.memo(step))
    return found


def of_recipe(execution: PlanExecution) -> Iterator[tuple[str, Applied]]:
    """Yield each stage's name with each of its passes, building what is missing."""
    for step in execution.plan.steps:
        for applied in of_stage(execution, step.name):
            yield step.name, applied
