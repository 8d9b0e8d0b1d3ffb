"""The doit tasks: one a command, and below `build` one a stage. Names are static, data is plain."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from pipelines import actions
from pipelines.builds import publication
from pipelines.builds.derived import DERIVED, DESCRIBING
from pipelines.builds.plan import MEASUREMENTS, SOURCE, VERIFYING, Plan, Step
from pipelines.cluster import scheduler_address
from pipelines.errors import shown
from pipelines.menu import BUILD, COMMANDS, Command
from pipelines.tuning import finished_trials

if TYPE_CHECKING:
    from pipelines.recipe.overrides import Variables
    from pipelines.recipe.resolved import Resolved

Task = dict[str, Any]


class Given(TypedDict):
    """What a command line gives to tasks, besides the plan."""

    variables: Variables
    resolved: Resolved | None


def tasks(plan: Plan | None, arguments: Given) -> Iterator[Task]:
    """Yield all tasks. Without a plan those that need one fail, saying what recipes there are."""
    if plan is None:
        yield {
            "basename": "build",
            "doc": BUILD.doc,
            "actions": [(actions.refuse_without_recipe, ["build"])],
        }
    else:
        yield _agreeing(plan, arguments)
        yield from _build(plan, arguments)
    for command in COMMANDS:
        yield from _command(command, plan, arguments)


SUMMING = "_summing"
"""A task doit does not list: what a build of the whole recipe ends with."""
AGREEING = "_agreeing"
"""A task doit does not list: it says something only if a recipe contradicts its model file."""


def _agreeing(plan: Plan, arguments: Given) -> Task:
    given = [plan, arguments["resolved"]]
    return {
        "basename": AGREEING,
        "actions": [(actions.agree, given)],
        "uptodate": [(actions.is_agreed, given)],
        "task_dep": [] if plan.source is not None else [f"build:{SOURCE}"],
    }


def _givers(plan: Plan, step: Step) -> list[str]:
    """Return whose artifacts a step takes; measurements among them if the recipe wants trials."""
    takes = [producer.name for _, producer in plan.producers(step) if producer is not None]
    measured = MEASUREMENTS in step.stage.takes.values() and plan.measured_choices.trials > 0
    return [*takes, MEASUREMENTS] if measured else takes


def _measuring(plan: Plan, arguments: Given) -> Task:
    """The trials that a recipe wants: they need what the first stage that heeds them needs."""
    given = [plan, arguments["resolved"], arguments["variables"].command.get("board")]
    first = next(step for step in plan.steps if MEASUREMENTS in step.stage.takes.values())
    takes = [producer.name for _, producer in plan.producers(first) if producer is not None]
    return {
        "basename": "build",
        "name": MEASUREMENTS,
        "doc": "tries kernels on this machine, or on board= -> the ledger",
        "actions": [(actions.measure, given)],
        "uptodate": [(finished_trials.is_measured, [plan])],
        "task_dep": [AGREEING, *(f"build:{name}" for name in takes)],
    }


def _build(plan: Plan, arguments: Given) -> Iterator[Task]:
    # doit takes what is ready in the order in which it stands here.
    source = [f"build:{SOURCE}"] if plan.source is None else []
    said = arguments["variables"].command
    scheduler = scheduler_address.scheduler(said.get("executor"), said.get("scheduler"))
    yield {
        "basename": "build",
        "name": None,
        "doc": BUILD.doc,
        "task_dep": [*source, AGREEING, SUMMING],
    }
    if plan.measured_choices.trials:
        yield _measuring(plan, arguments)
    for step in plan.steps:
        takes = _givers(plan, step)
        first = [AGREEING] if SOURCE in step.stage.takes.values() else []
        yield {
            "basename": "build",
            "name": step.name,
            "doc": f"{', '.join(takes) or 'the model'} -> {step.stage.gives}",
            "actions": [(actions.build, [plan, step.name, scheduler])],
            "uptodate": [(actions.is_current, [plan, step.name])],
            "task_dep": first + [f"build:{stage}" for stage in dict.fromkeys(takes)],
            "clean": [(actions.clean, [plan, name]) for name in [step.name, *_beside(step.name)]],
        }
    yield {
        "basename": "build",
        "name": "publishing",
        "doc": f"puts the package's files at artifacts/packages/{plan.package}",
        "actions": [(publication.publish, [plan])],
        "uptodate": [(publication.is_published, [plan])],
        "meta": {"where": shown(publication.package_folder_of(plan))},
        "task_dep": [*source, AGREEING, *(f"build:{step.name}" for step in plan.steps)],
        "clean": [(publication.unpublish, [plan])],
    }
    yield {
        "basename": "build",
        "name": VERIFYING,
        "doc": "replays the golden vectors in the package",
        "actions": [(actions.verify, [plan])],
        "uptodate": [(actions.is_verified, [plan])],
        "meta": {"said": functools.partial(actions.verdict, plan)},
        "task_dep": ["build:publishing"],
        "clean": [(actions.clean, [plan, name]) for name in (VERIFYING, *DERIVED)],
    }
    yield {
        "basename": SUMMING,
        "actions": [(actions.summarize, [plan, arguments["resolved"]])],
        "uptodate": [False],
        "task_dep": ["build:verifying"],
    }


def _beside(stage: str) -> list[str]:
    """Return what else lies in the store because of a stage: what is known of the source."""
    return [DESCRIBING] if stage == "importing" else []


def _command(command: Command, plan: Plan | None, arguments: Given) -> Iterator[Task]:
    always: Task = {
        # Commands draw on the terminal themselves; doit need not keep what they print.
        "io": {"capture": False},
        "uptodate": [False],
    }
    task: Task = {"basename": command.name, "doc": command.doc, **always}
    if command.positional:
        task["pos_arg"] = command.positional
    if command.recipe and plan is None:
        yield task | {"actions": [(actions.refuse_without_recipe, [command.name])]}
        return
    given: dict[str, object] = {"variables": arguments["variables"]}
    if command.recipe:
        given |= {"plan": plan, "resolved": arguments["resolved"]}
    if command.positional:
        given[command.positional] = ()
    first: list[str] = []
    if command.has_check:
        first = [f"_{command.name}_check"]  # not listed, as its name says
        stated = {"resolved": arguments["resolved"], "variables": arguments["variables"]}
        action = (actions.check, [command.module, stated])
        yield {"basename": first[0], "actions": [action], **always}
    yield task | {
        "actions": [(actions.command, [command.module, given])],
        "task_dep": [*first, *command.after],
    }
