"""Our own package of a network at another precision, or size, than the recipe's."""

from __future__ import annotations

import json

from pipelines import atomic, building, keys
from pipelines.load import Resolved
from pipelines.plan import Plan

FOLDER = keys.ROOT / "artifacts" / "benching"
"""Where model files and recipes of other precisions and sizes are written."""


def built(kind: str, source: bytes, form: str, resolved: Resolved) -> Plan:
    """Build and publish the package of a model file for the recipe's hardware, as `NAME_KIND`."""
    name = f"{resolved.name}_{kind}"
    model, recipe = FOLDER / f"{name}.{form}", FOLDER / f"{name}.yaml"
    atomic.replace(model, source)
    lines = [
        f"model: {{file: {json.dumps(model.name)}}}",
        f"hardware: {json.dumps(resolved.recipe.hardware)}",
        "golden: {samples: 1, seed: 0}",
        "package: {formats: [shared]}",
    ]
    atomic.replace(recipe, ("\n".join(lines) + "\n").encode())
    return building.published(recipe)
