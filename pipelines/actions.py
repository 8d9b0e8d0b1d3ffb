"""What doit's tasks do: plain functions of plain data that turn known errors into messages."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import exit_status
from pipelines.builds import execution
from pipelines.builds.plan import Plan, Step
from pipelines.errors import CheckError, UserError, of_disk, shown
from pipelines.exit_status import CheckFailed, MistakeFailed
from pipelines.store import roots
from stages.errors import StageError

if TYPE_CHECKING:
    from pipelines.recipe.load import Resolved
    from pipelines.recipe.overrides import Variables


def plain_errors(action: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what is worded already into a failure of the task; the rest stays a traceback."""

    @functools.wraps(action)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return action(*args, **kwargs)
        except CheckError as error:
            return CheckFailed(str(error))
        except (UserError, StageError) as error:
            return MistakeFailed(str(error))
        except BrokenPipeError:
            # Whoever read the output, `head` perhaps, has seen enough; nothing more is written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        except OSError as error:
            said = of_disk(error)
            if said is None:
                raise
            return MistakeFailed(said)

    return run


def asked(question: Callable[..., bool]) -> Callable[..., bool]:
    """Answer no where a file cannot be read: the task then runs into the same, and says it."""

    @functools.wraps(question)
    def answer(*args: Any, **kwargs: Any) -> bool:
        try:
            return question(*args, **kwargs)
        except UserError:
            return False
        except OSError as error:
            if of_disk(error) is None:
                raise
            return False

    return answer


def cleaning(action: Callable[..., None]) -> Callable[..., None]:
    """End with one sentence where the disk refuses: what cleans has no reporter."""

    @functools.wraps(action)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            action(*args, **kwargs)
        except OSError as error:
            said = of_disk(error)
            if said is None:
                raise
            # doit keeps what an action writes to sys.stderr.
            print(f"ERROR: {said}", file=sys.__stderr__)
            sys.exit(exit_status.MISTAKE)

    return run


@asked
def is_current(plan: Plan, name: str) -> bool:
    """Whether a step's artifact is in the store; evaluated after the steps before it ran."""
    return execution.Workshop(plan).is_current(plan.step(name))


@plain_errors
def build(plan: Plan, name: str, scheduler: str | None = None) -> dict[str, Any]:
    """Build one step unless another process just did; the result is for the progress line.

    With a scheduler a worker of its cluster builds it, and it is fetched from there.
    """
    started = time.monotonic()
    step = plan.step(name)
    workshop, found, ordered = execution.Workshop(plan), None, None
    if scheduler is not None:
        from pipelines.cluster import cluster

        if not cluster.is_ordered(plan, step, scheduler):
            found = workshop.find(step)
        if found is None:
            ordered = cluster.build(plan, step, scheduler)
    try:
        manifest, origin = found or workshop.produce(step)
    except StageError as error:
        raise UserError(f"{name}: {error}") from error
    if origin == "cached":
        return {"status": "cached"}
    artifact = shown(execution.STORE.folder(name, manifest.key))
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
    tuner.run(plan.snapshot.trials)
    gains = " and ".join(f"{group.gain():.2f}" for group in tuner.groups)
    gain = f"{gains} of the time of the predicted kernels"
    return {"status": "built", "seconds": round(time.monotonic() - started, 3), "note": gain}


@asked
def is_measured(plan: Plan) -> bool:
    """Whether the ledger holds all the trials that a recipe wants."""
    from pipelines.tuning import ledger
    from pipelines.tuning.snapshot import PREDICTED

    base = execution.Workshop(replace(plan, snapshot=PREDICTED))
    key = ledger.key_of(base)
    return key is not None and ledger.is_finished(key, plan.snapshot.trials)


@cleaning
def clean(plan: Plan, name: str, dryrun: bool = False) -> None:
    """Remove what this step of this recipe left, unless another recipe uses it too."""
    for removed in roots.clean(execution.STORE, plan.recipe, name, dryrun=dryrun):
        print(f"{'would remove' if dryrun else 'removed'} {shown(execution.STORE.root / removed)}")


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
    from pipelines import verifying

    return verifying.build(plan)


@asked
def is_verified(plan: Plan) -> bool:
    """Whether this very package was verified before."""
    from pipelines import verifying

    return verifying.is_current(plan)


def verdict(plan: Plan) -> str | None:
    """What was said of a package when it was verified; nothing where that cannot be read."""
    from pipelines import verifying
    from pipelines.store.manifest import DamagedError

    try:
        return verifying.said(plan)
    except (DamagedError, OSError, ValueError, KeyError):
        return None


@plain_errors
def summarize(plan: Plan, resolved: Resolved, variables: Variables) -> dict[str, Any]:
    """Say what was built; the result is for the last lines of a build."""
    from pipelines.builds import summary

    return {"summary": summary.text(plan, resolved, variables, published(plan))}


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
def want_recipe(word: str) -> None:
    """Fail, saying which recipes there are."""
    raise UserError(without_recipe(word))


def without_recipe(word: str) -> str:
    """Return what to do about a missing recipe, with the recipes there are."""
    from pipelines.recipe import load

    names = [name for name, _description in load.list_recipes()]
    lines = "\n".join(f"  {name}" for name in names) or "  none yet; doit import FILE writes one"
    return f"say which recipe: doit {word} recipe=NAME; there are\n{lines}"


def _keys(workshop: execution.Workshop) -> dict[str, str]:
    found = {step.name: workshop.current(step) for step in workshop.plan.steps}
    return {name: manifest.key for name, manifest in found.items() if manifest is not None}
