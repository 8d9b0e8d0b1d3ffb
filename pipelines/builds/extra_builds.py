"""Builds that commands make themselves: recipes written for them, packages published."""

from __future__ import annotations

from pathlib import Path

from pipelines.builds import agreement, plan, plan_execution, publication
from pipelines.recipe import load


def build_package(recipe: Path) -> plan.Plan:
    """Build the package of a recipe file and publish it; return its plan."""
    resolved = load.load_recipe(str(recipe))
    made = plan.of(resolved)
    agreement.check(made, resolved)
    execution = plan_execution.PlanExecution(made)
    files = execution.content(publication.package_step(made))
    plan_execution.STORE.publish(files, publication.package_folder_of(made))
    return made
