"""Our own package of a network at another precision than the recipe's."""

from __future__ import annotations

import json

from pipelines import building, keys
from pipelines.benching.variants import Variant
from pipelines.load import Resolved
from pipelines.plan import Plan

FOLDER = keys.ROOT / "artifacts" / "benching"
"""Where model files and recipes of other precisions are written."""


def built(variant: Variant, resolved: Resolved) -> Plan:
    """Build and publish the package of a variant for the recipe's hardware, as `NAME_PRECISION`."""
    name = f"{resolved.name}_{variant.precision}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    model, recipe = FOLDER / f"{name}.{variant.form}", FOLDER / f"{name}.yaml"
    model.write_bytes(variant.source)
    lines = [
        f"model: {{file: {json.dumps(model.name)}}}",
        f"hardware: {json.dumps(resolved.recipe.hardware)}",
        "golden: {samples: 1, seed: 0}",
        "package: {formats: [shared]}",
    ]
    recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return building.published(recipe)
