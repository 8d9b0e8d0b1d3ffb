"""How much a built network computes: found out once a build, and kept in the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pipelines import keys, roots
from pipelines.execute import STORE, Workshop, fetch_table, keep_table
from pipelines.graph import COUNTING
from pipelines.manifest import DamagedError
from pipelines.plan import Plan

if TYPE_CHECKING:
    from stages.kinds import Model

_TAKES = ("quantizing", "offering", "canonicalizing", "bitpacking")


def work(plan: Plan) -> dict[str, Any]:
    """Return `macs`, and of the layers whose kernel was a choice `layers` and predicted `cycles`.

    The recipe is built. Cycles are of one thread, by the costs of the recipe's core.
    """
    workshop = Workshop(plan)
    ingredients = _ingredients(workshop)
    key = keys.digest(keys.canonical([COUNTING, ingredients]))
    found = _kept(key)
    if found is None and fetch_table(COUNTING, key):
        found = _kept(key)
    if found is None:
        found = {"macs": macs(workshop), **_predicted(workshop)}
        from stages import artifacts

        parts = artifacts.take_apart("table", found)
        keep_table(COUNTING, key, parts.files, ingredients)
    roots.note(STORE, plan.recipe, {COUNTING: key})
    return found


def macs(workshop: Workshop) -> int:
    """Return the multiply-accumulates of a built package's network, for all inputs of a batch."""
    from pipelines.benching import layers

    model = workshop.load(workshop.plan.step("bitpacking"))
    runs = _runs(model)
    return sum(runs[name] * each.macs for name, each in layers.works(model).items())


def _runs(model: Model) -> dict[str, int]:
    """Layer → how often it is run: once, or for each picture of a batch that was taken apart."""
    from stages.qnn.builder import calls_of
    from stages.qnn.collecting import pictures_of, together

    once, pictures = together(model.module["main"]), pictures_of(model)
    variables = [binding.var for binding, _function in calls_of(model)]
    return {str(each.name): 1 if each in once else pictures for each in variables}


def _predicted(workshop: Workshop) -> dict[str, Any]:
    """What the kernels that run were predicted to take when they were chosen."""
    from pipelines.tuning import subjects
    from pipelines.tuning.candidates import offer_of

    running = subjects.running(workshop)
    runs = _runs(workshop.load(workshop.plan.step("bitpacking")))
    chosen = {
        name: (subject, offer_of(subject, running.get(name, "")))
        for name, subject in subjects.of(workshop).items()
    }
    cycles = [
        runs[name] * subject.workload.cycles(offer)
        for name, (subject, offer) in chosen.items()
        if offer is not None
    ]
    return {"layers": len(cycles), "cycles": round(sum(cycles))}


def _kept(key: str) -> dict[str, Any] | None:
    try:
        manifest = STORE.manifest(COUNTING, key)
        if manifest is None:
            return None
        return dict(json.loads(STORE.read(manifest).files["table.json"]))
    except DamagedError:
        STORE.discard(COUNTING, key)
        return None


def _ingredients(workshop: Workshop) -> dict[str, Any]:
    steps = [workshop.plan.step(name) for name in _TAKES]
    manifests = {step.name: workshop.current(step) for step in steps}
    return {
        "inputs": {name: manifest and manifest.output for name, manifest in manifests.items()},
        "code": {
            **keys.code_at_start("stages.bitpacking"),
            **keys.code_ingredients("pipelines.counting", packages=("pipelines",)),
        },
    }
