"""The folder in which a reader looks for a package: what shows there, and since when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.builds import plan_execution
from pipelines.builds.plan import Plan, Step
from pipelines.errors import shown
from pipelines.guards import asked, cleaning, plain_errors
from pipelines.store import roots


def package_folder_of(plan: Plan) -> Path:
    """Return the folder that shows a recipe's package."""
    return plan_execution.STORE.root / "packages" / plan.package


def package_step(plan: Plan) -> Step:
    """Return the step whose artifact is the package."""
    return plan.steps[-1]


@asked
def is_published(plan: Plan) -> bool:
    """Whether the package's folder shows what the last step gave, and its roots are noted."""
    execution = plan_execution.PlanExecution(plan)
    if not execution.is_current(package_step(plan)):
        return False
    manifest = execution.current(package_step(plan))
    if manifest is None or not plan_execution.STORE.is_published(manifest, package_folder_of(plan)):
        return False
    known = roots.of(plan_execution.STORE, plan.recipe)
    if plan.package not in roots.packages(plan_execution.STORE, plan.recipe):
        return False
    return all(key in known.get(name, []) for name, key in _keys(execution).items())


@plain_errors
def publish(plan: Plan) -> dict[str, Any]:
    """Put the package's files where a reader looks for them, and note what the recipe uses."""
    execution = plan_execution.PlanExecution(plan)
    files = execution.content(package_step(plan))
    plan_execution.STORE.publish(files, package_folder_of(plan))
    roots.note(plan_execution.STORE, plan.recipe, _keys(execution))
    roots.note_package(plan_execution.STORE, plan.recipe, plan.package)
    return {"status": "written", "artifact": shown(package_folder_of(plan))}


@cleaning
def unpublish(plan: Plan, dryrun: bool = False) -> None:
    """Remove the folders that show a recipe's packages, whatever command line each was built by."""
    known = roots.packages(plan_execution.STORE, plan.recipe)
    for name in dict.fromkeys([*known, plan.package]):
        folder = plan_execution.STORE.root / "packages" / name
        if folder.exists():
            print(f"{'would remove' if dryrun else 'removed'} {shown(folder)}")
            if not dryrun:
                plan_execution.STORE.remove(folder)
    if not dryrun:
        roots.forget_packages(plan_execution.STORE, plan.recipe)


def _keys(execution: plan_execution.PlanExecution) -> dict[str, str]:
    found = {step.name: execution.current(step) for step in execution.plan.steps}
    return {name: manifest.key for name, manifest in found.items() if manifest is not None}
