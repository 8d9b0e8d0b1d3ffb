"""Builds that commands make themselves: recipes written for them, packages published."""

from __future__ import annotations

from pathlib import Path

from pipelines.builds import agreement, execution, plan, publication
from pipelines.recipe import load


def published(recipe: Path) -> plan.Plan:
    """Build the package of a recipe file and publish it; return its plan."""
    resolved = load.load_recipe(str(recipe))
    made = plan.of(resolved)
    agreement.check(made, resolved)
    workshop = execution.Workshop(made)
    files = workshop.content(publication.last(made))
    execution.STORE.publish(files, publication.published(made))
    return made
