"""What doit's tasks do: plain functions of plain data that turn known errors into messages."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.builds import plan_execution
from pipelines.builds.plan import Plan
from pipelines.builds.publication import package_folder_of
from pipelines.errors import UserError, shown
from pipelines.guards import asked, cleaning, plain_errors
from pipelines.store import roots
from stages.errors import StageError

if TYPE_CHECKING:
    from pipelines.recipe.resolved import Resolved


@asked
def is_current(plan: Plan, name: str) -> bool:
    """Whether a step's artifact is in the store; evaluated after the steps before it ran."""
    return plan_execution.PlanExecution(plan).is_current(plan.step(name))


@plain_errors
def build(plan: Plan, name: str, scheduler: str | None = None) -> dict[str, Any]:
    """Build one step unless another process just did; the result is for the progress line.

    With a scheduler a worker of its cluster builds it, and it is fetched from there.
    """
    started = time.monotonic()
    step = plan.step(name)
    execution, found, ordered = plan_execution.PlanExecution(plan), None, None
    if scheduler is not None:
        from pipelines.cluster import cluster

        if not cluster.is_ordered(plan, step, scheduler):
            found = execution.find(step)
        if found is None:
            ordered = cluster.build(plan, step, scheduler)
    try:
        manifest, origin = found or execution.produce(step)
    except StageError as error:
        raise UserError(f"{name}: {error}") from error
    if origin == "cached":
        return {"status": "cached"}
    artifact = shown(plan_execution.STORE.folder(name, manifest.key))
    if ordered is not None and origin == "fetched":
        note = f"{artifact}, on {ordered.worker}"
        return {"status": ordered.origin, "seconds": ordered.seconds, "note": note}
    if ordered is not None:
        lost = f"{name}: what {ordered.worker} gave is not in the shared store; built here"
        print(f"warning: {lost}", file=sys.stderr)
    seconds = round(time.monotonic() - started, 3)
    return {"status": origin, "seconds": seconds, "artifact": artifact}


@plain_errors
def measure(plan: Plan, resolved: Resolved, boards: str | None = None) -> dict[str, Any]:
    """Run the trials that the ledger lacks; the result is for the progress line."""
    from pipelines.output import build_progress
    from pipelines.remote.transport import reached
    from pipelines.tuning.trials import Tuner

    started = time.monotonic()
    tuner = Tuner(
        plan, resolved.hardware, build_progress.detail, reached(boards, resolved.hardware)
    )
    tuner.run(plan.measured_choices.trials)
    gains = " and ".join(f"{group.gain():.2f}" for group in tuner.groups)
    gain = f"{gains} of the time of the predicted kernels"
    return {"status": "built", "seconds": round(time.monotonic() - started, 3), "note": gain}


@cleaning
def clean(plan: Plan, name: str, dryrun: bool = False) -> None:
    """Remove what this step of this recipe left, unless another recipe uses it too."""
    for removed in roots.clean(plan_execution.STORE, plan.recipe, name, dryrun=dryrun):
        said = "would remove" if dryrun else "removed"
        print(f"{said} {shown(plan_execution.STORE.root / removed)}")


@plain_errors
def command(module: str, given: dict[str, Any], files: Sequence[str] = ()) -> None:
    """Run a command; `files` are the words behind its name, for the one that takes such."""
    words = {"files": tuple(files or ())} if "files" in given else {}
    importlib.import_module(f"pipelines.commands.{module}").run(**given | words)


@plain_errors
def check(module: str, given: dict[str, Any]) -> None:
    """Refuse what a command cannot do, before anything is built for it."""
    importlib.import_module(f"pipelines.commands.{module}").check(**given)


@plain_errors
def verify(plan: Plan) -> dict[str, Any]:
    """Replay the golden vectors in the package; note the result beside the artifacts."""
    from pipelines.evaluation import verification

    return verification.build(plan)


@asked
def is_verified(plan: Plan) -> bool:
    """Whether this very package was verified before."""
    from pipelines.evaluation import verification

    return verification.is_current(plan)


def verdict(plan: Plan) -> str | None:
    """What was said of a package when it was verified; nothing where that cannot be read."""
    from pipelines.evaluation import verification
    from pipelines.store.manifest import DamagedError

    try:
        return verification.said(plan)
    except (DamagedError, OSError, ValueError, KeyError):
        return None


@plain_errors
def summarize(plan: Plan, resolved: Resolved) -> dict[str, Any]:
    """Say what was built; the result is for the last lines of a build."""
    from pipelines.builds import summary

    return {"summary": summary.text(plan, resolved, package_folder_of(plan))}


@plain_errors
def agree(plan: Plan, resolved: Resolved) -> None:
    """Fail if the recipe says anything that its model file contradicts."""
    from pipelines.builds import agreement

    agreement.check(plan, resolved)


@asked
def is_agreed(plan: Plan, resolved: Resolved) -> bool:
    """Whether recipe and model file are known to agree."""
    from pipelines.builds import agreement

    return agreement.is_agreed(plan, resolved)


@plain_errors
def refuse_without_recipe(word: str) -> None:
    """Fail, saying which recipes there are."""
    raise UserError(without_recipe(word))


def without_recipe(word: str) -> str:
    """Return what to do about a missing recipe, with the recipes there are."""
    from pipelines.recipe import load

    names = [name for name, _description in load.list_recipes()]
    lines = "\n".join(f"  {name}" for name in names) or "  none yet; doit import FILE writes one"
    return f"say which recipe: doit {word} recipe=NAME; there are\n{lines}"
