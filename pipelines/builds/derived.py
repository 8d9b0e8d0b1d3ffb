"""Tables found out of a build's artifacts once, and kept in the store beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pipelines.builds.plan_execution import STORE, PlanExecution, shared
from pipelines.store import keys, roots
from pipelines.store.manifest import DamagedError, Parts

DESCRIBING = "describing"
"""Where `agreement` keeps what it found out of a model file."""
COUNTING = "counting"
"""Where a summary keeps how much the network computes."""
LAYER_ERRORS, EXACTNESS = "layer_errors", "exactness"
"""Where a report keeps how far layers are from float32, and what every stage was compared with."""
DERIVED = (COUNTING, LAYER_ERRORS, EXACTNESS)
"""All that is kept of a finished build besides its artifacts."""


def table(
    execution: PlanExecution,
    name: str,
    ingredients: Mapping[str, object],
    find: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Return what `find` gives, a mapping of plain data, from the store if it was found before.

    `ingredients` is all that it depends on. It is noted as the recipe's under `name`.
    """
    key = keys.digest(keys.canonical([name, ingredients]))
    found = _kept(name, key)
    if found is None and fetch_table(name, key):
        found = _kept(name, key)
    if found is None:
        found = find()
        from stages import artifacts

        parts = artifacts.take_apart("table", found)
        keep_table(name, key, parts.files, dict(ingredients))
    roots.note(STORE, execution.plan.recipe, {name: key})
    return found


def keep_table(
    name: str, key: str, files: Mapping[str, bytes], ingredients: dict[str, Any]
) -> None:
    """Keep a table that no stage gives, here and on the remote."""
    with STORE.lock():
        manifest = STORE.commit(name, key, "table", Parts(files, {}), ingredients)
    if remote := shared():
        remote.share(STORE, [manifest])


def fetch_table(name: str, key: str) -> bool:
    """Bring a table that no stage gives from the remote; False if it is not there."""
    remote = shared()
    return remote is not None and remote.fetch(STORE, name, key, "table") is not None


def outputs(execution: PlanExecution, names: tuple[str, ...]) -> dict[str, str | None]:
    """Return the digests of what steps gave, for the ingredients of a table."""
    manifests = {name: execution.current(execution.plan.step(name)) for name in names}
    return {name: manifest.output if manifest else None for name, manifest in manifests.items()}


def _kept(name: str, key: str) -> dict[str, Any] | None:
    try:
        manifest = STORE.manifest(name, key)
        if manifest is None:
            return None
        return dict(json.loads(STORE.read(manifest).files["table.json"]))
    except DamagedError:
        STORE.discard(name, key)
        return None
