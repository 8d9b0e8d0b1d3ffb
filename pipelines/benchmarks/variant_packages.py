"""Our own package of a network at another precision, or size, than the recipe's."""

from __future__ import annotations

import json

from pipelines import work_folder
from pipelines.builds import extra_builds, plan_execution
from pipelines.builds.plan import Plan
from pipelines.errors import UserError, did_you_mean
from pipelines.recipe.resolved import Resolved
from pipelines.store import atomic, roots

OWN = ("int8", "float32")
"""Precisions that a network of a recipe may be built at beside the recipe's."""
FOLDER = work_folder.ARTIFACTS / "benching"
"""Where model files and recipes of other precisions and sizes are written."""


def wanted(stated: str) -> list[str]:
    """Return the precisions that `own=` names; UserError for one that there is not."""
    names = [name for name in stated.split(",") if name and name != "none"]
    for name in names:
        if name not in OWN:
            raise UserError(f"own={name}: no such precision{did_you_mean(name, [*OWN, 'none'])}")
    return names


def title(precision: str) -> str:
    """Return what our own package at a precision is called in a table."""
    return f"bitkiln, {precision}"


def build_variant(
    kind: str, source: bytes, form: str, resolved: Resolved, library: str = "shared"
) -> Plan:
    """Build and publish the package of a model file for the recipe's hardware, as `PACKAGE_KIND`.

    It has a `library` of one form. It is one of the recipe's packages: the folder's name tells what
    the command line changed.
    """
    name = f"{resolved.package}_{kind}"
    model, recipe = FOLDER / f"{name}.{form}", FOLDER / f"{name}.yaml"
    atomic.replace(model, source)
    lines = [
        f"model: {{file: {json.dumps(model.name)}}}",
        f"hardware: {json.dumps(resolved.board)}",
        "golden: {samples: 1, seed: 0}",
        f"package: {{name: own_{kind}, formats: [{library}]}}",
    ]
    atomic.replace(recipe, ("\n".join(lines) + "\n").encode())
    made = extra_builds.build_package(recipe)
    roots.note_package(plan_execution.STORE, resolved.name, made.package)
    return made
