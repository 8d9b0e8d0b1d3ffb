"""The folder in which a reader looks for a package: what shows there, and since when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.builds import execution
from pipelines.builds.plan import Plan, Step
from pipelines.errors import shown
from pipelines.guards import asked, cleaning, plain_errors
from pipelines.store import roots


def published(plan: Plan) -> Path:
    """Return the folder that shows a recipe's package."""
    return execution.STORE.root / "packages" / plan.package


def last(plan: Plan) -> Step:
    """Return the step whose artifact is the package."""
    return plan.steps[-1]


@asked
def is_published(plan: Plan) -> bool:
    """Whether the package's folder shows what the last step gave, and its roots are noted."""
    workshop = execution.Workshop(plan)
    if not workshop.is_current(last(plan)):
        return False
    manifest = workshop.current(last(plan))
    if manifest is None or not execution.STORE.is_published(manifest, published(plan)):
        return False
    known = roots.of(execution.STORE, plan.recipe)
    if plan.package not in roots.packages(execution.STORE, plan.recipe):
        return False
    return all(key in known.get(name, []) for name, key in _keys(workshop).items())


@plain_errors
def publish(plan: Plan) -> dict[str, Any]:
    """Put the package's files where a reader looks for them, and note what the recipe uses."""
    workshop = execution.Workshop(plan)
    files = workshop.content(last(plan))
    execution.STORE.publish(files, published(plan))
    roots.note(execution.STORE, plan.recipe, _keys(workshop))
    roots.note_package(execution.STORE, plan.recipe, plan.package)
    return {"status": "written", "artifact": shown(published(plan))}


@cleaning
def unpublish(plan: Plan, dryrun: bool = False) -> None:
    """Remove the folders that show a recipe's packages, whatever command line each was built by."""
    known = roots.packages(execution.STORE, plan.recipe)
    for name in dict.fromkeys([*known, plan.package]):
        folder = execution.STORE.root / "packages" / name
        if folder.exists():
            print(f"{'would remove' if dryrun else 'removed'} {shown(folder)}")
            if not dryrun:
                execution.STORE.remove(folder)
    if not dryrun:
        roots.forget_packages(execution.STORE, plan.recipe)


def _keys(workshop: execution.Workshop) -> dict[str, str]:
    found = {step.name: workshop.current(step) for step in workshop.plan.steps}
    return {name: manifest.key for name, manifest in found.items() if manifest is not None}
