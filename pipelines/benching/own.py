"""Our own package of a network at another precision, or size, than the recipe's."""

from __future__ import annotations

import json

from pipelines import atomic, building, execute, keys, roots
from pipelines.load import Resolved
from pipelines.plan import Plan

FOLDER = keys.ROOT / "artifacts" / "benching"
"""Where model files and recipes of other precisions and sizes are written."""


def built(kind: str, source: bytes, form: str, resolved: Resolved) -> Plan:
    """Build and publish the package of a model file for the recipe's hardware, as `PACKAGE_KIND`.

    It is one of the recipe's packages: the folder's name tells what the command line changed.
    """
    name = f"{resolved.package}_{kind}"
    model, recipe = FOLDER / f"{name}.{form}", FOLDER / f"{name}.yaml"
    atomic.replace(model, source)
    lines = [
        f"model: {{file: {json.dumps(model.name)}}}",
        f"hardware: {json.dumps(resolved.board)}",
        "golden: {samples: 1, seed: 0}",
        f"package: {{name: own_{kind}, formats: [shared]}}",
    ]
    atomic.replace(recipe, ("\n".join(lines) + "\n").encode())
    made = building.published(recipe)
    roots.note_package(execute.STORE, resolved.name, made.package)
    return made
