"""Checking a recipe beside its model file before anything is built from the two.

What the file holds takes seconds to find out, so it is kept in the store; the comparison is made
every time, since any field of the recipe may have changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelines.builds.derived import DESCRIBING, fetch_table, keep_table
from pipelines.builds.plan import SOURCE, Plan
from pipelines.builds.plan_execution import STORE, PlanExecution
from pipelines.builds.stage_calls import call
from pipelines.errors import UserError
from pipelines.recipe import model_files, recipe_slices
from pipelines.store import keys, roots
from pipelines.store.manifest import DamagedError
from stages.errors import StageError

if TYPE_CHECKING:
    from pipelines.recipe.resolved import Resolved

TOOLS = ("onnx", "tflite", "apache-tvm", "apache-tvm-ffi")


def is_agreed(plan: Plan, resolved: Resolved) -> bool:
    """Whether recipe and model file are known to agree, without building anything."""
    from pipelines.recipe import contradictions

    description = _known(plan, resolved)
    if description is None:
        return False
    try:
        contradictions.check(resolved, description)
    except UserError:
        return False
    return True


def check(plan: Plan, resolved: Resolved) -> None:
    """Raise a UserError with every field that contradicts the model file."""
    from pipelines.recipe import contradictions

    contradictions.check(resolved, describe(plan, resolved))


def check_without_keeping(plan: Plan, resolved: Resolved) -> None:
    """Raise as `check` does, without building or keeping anything."""
    from pipelines.recipe import contradictions

    description = _known(plan, resolved, is_used=False)
    if description is None:
        step = None if plan.source is not None else plan.step(SOURCE)
        execution = PlanExecution(plan)
        if step is None or execution.is_current(step):
            found = source(plan)
        else:
            found = bytes(call(step, {}, execution.memo(step)))
        description = _described(found, resolved)
    contradictions.check(resolved, description)


def describe(plan: Plan, resolved: Resolved) -> dict[str, Any]:
    """Return what the model file holds, finding it out if that is not in the store."""
    known = _known(plan, resolved)
    if known is not None:
        return known
    from stages import artifacts

    ingredients = _ingredients(plan, resolved)
    key = _key(ingredients)
    if fetch_table(DESCRIBING, key) and (known := _known(plan, resolved)):
        return known
    found = _described(source(plan), resolved)
    parts = artifacts.take_apart("table", found)
    keep_table(DESCRIBING, key, parts.files, ingredients)
    roots.note(STORE, plan.recipe, {DESCRIBING: key})
    return found


def _described(data: bytes, resolved: Resolved) -> dict[str, Any]:
    from stages import importing

    options = recipe_slices.import_options(resolved.recipe)
    try:
        return dict(importing.describe(source=data, options=options))
    except StageError as error:
        raise UserError(f"importing: {error}") from error


def source(plan: Plan) -> bytes:
    """Return the bytes of a recipe's model file, those the zoo wrote if it names no file."""
    if plan.source is not None:
        return model_files.read(plan.source)
    return bytes(PlanExecution(plan).load(plan.step(SOURCE)))


def _known(plan: Plan, resolved: Resolved, *, is_used: bool = True) -> dict[str, Any] | None:
    """Return what was found out before; if it is used, it is noted as the recipe's."""
    try:
        ingredients = _ingredients(plan, resolved)
    except DamagedError:
        return None  # the stage at fault says so when it is built again
    if ingredients["inputs"]["source"] is None:
        return None
    key = _key(ingredients)
    try:
        manifest = STORE.manifest(DESCRIBING, key)
        if manifest is None:
            return None
        text = STORE.read(manifest).files["table.json"]
    except DamagedError:
        if is_used:
            STORE.discard(DESCRIBING, key)
        return None
    if is_used:
        roots.note(STORE, plan.recipe, {DESCRIBING: key})
    return dict(json.loads(text))


def _ingredients(plan: Plan, resolved: Resolved) -> dict[str, Any]:
    execution = PlanExecution(plan)
    importing = plan.step("importing")
    return {
        "inputs": {"source": execution.ingredients(importing)["inputs"]["source"]},
        "options": recipe_slices.import_options(resolved.recipe).model_dump(mode="json"),
        "code": keys.code_at_start("stages.importing"),
        "tools": {name: keys.tool_version(name) for name in TOOLS},
    }


def _key(ingredients: Mapping[str, object]) -> str:
    return keys.digest(keys.canonical([DESCRIBING, ingredients]))
