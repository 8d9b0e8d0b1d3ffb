"""The passes of a recipe's stages: run again on what each stage took, one after the other.

Stages keep what their last pass gives. What lies between two passes is made anew where somebody
asks for it, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipelines.builds.execution import Workshop
from pipelines.builds.stage_calls import call

if TYPE_CHECKING:
    from stages.graph.pass_table import Applied


def of_stage(workshop: Workshop, stage: str) -> list[Applied]:
    """Return the passes of a stage, in order, each with its model; none for one without passes."""
    step = workshop.plan.step(stage)
    if not step.stage.has_passes:
        return []
    found: list[Applied] = []
    call(step, {**workshop.taken(step), "observe": found.append}, workshop.memo(step))
    return found


def of_recipe(workshop: Workshop) -> Iterator[tuple[str, Applied]]:
    """Yield each stage's name with each of its passes, building what is missing."""
    for step in workshop.plan.steps:
        for applied in of_stage(workshop, step.name):
            yield step.name, applied
