"""Orders: one step of a plan as plain data, with all that a worker needs to build it.

An order holds the options and hardware of the step and of all steps above it, so equal orders of
different recipes are one text, and a worker builds what the shared store has lost. The files that a
recipe names travel by the shared store.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.builds import plan_execution
from pipelines.builds.derived import fetch_table
from pipelines.builds.plan import CALIBRATION, MEASUREMENTS, SOURCE, Plan, Step
from pipelines.builds.stage_calls import validated
from pipelines.errors import UserError
from pipelines.evaluation import calibration_data
from pipelines.evaluation.calibration_data import Data
from pipelines.paths import is_folder
from pipelines.recipe import model_files
from pipelines.store import keys
from pipelines.store.manifest import DamagedError
from pipelines.tuning.measured_choices import NONE_MEASURED, MeasuredChoices
from stages import STAGES

ORIGINALS = "originals"
"""Where the store keeps files that recipes name, on their way to workers."""
OWNER = "of-clusters"
"""Whose results those of a worker are: `doit cache gc` keeps the latest of them."""


@dataclass(frozen=True)
class Order:
    """One step for a worker."""

    step: str
    text: str
    """Canonical JSON."""
    files: Mapping[str, Mapping[str, Path]]
    """Key in the store → the files that must be there, by name."""

    @property
    def key(self) -> str:
        """What Dask calls it: equal for equal orders, so these are carried out once."""
        return f"bitkiln-{self.step}-{keys.digest(self.text)[:32]}"


def order(plan: Plan, step: Step, environment: str) -> Order:
    """Return the order of a step; `environment` is the digest of the code and tools it is for."""
    above = [other for other in plan.steps if other.name in _above(plan, step)]
    taken = {stage for other in above for stage in other.stage.takes.values()}
    files: dict[str, Mapping[str, Path]] = {}
    steps = [_plain(s) for s in above]
    tree: dict[str, Any] = {"alike": environment, "step": step.name, "steps": steps}
    if plan.source is not None and SOURCE in taken:
        found = _model_files(plan.source)
        tree["source"] = {"files": _key(found), "name": next(iter(found))}
        files[tree["source"]["files"]] = found
    if plan.calibration is not None and CALIBRATION in taken:
        tree["calibration"], found = _calibration(plan.calibration)
        files[tree["calibration"]["files"]] = found
    if MEASUREMENTS in taken:
        tree["choices"] = plan.measured_choices.choices()
    return Order(step.name, keys.canonical(tree), files)


def step_and_digest_of(text: str) -> tuple[str, str]:
    """Return the name of an order's step, and the digest of the code and tools it is meant for."""
    tree = json.loads(text)
    return tree["step"], tree["alike"]


def plan_of(text: str) -> tuple[Plan, Step]:
    """Return the plan and the step of an order's text.

    Its files are fetched; UserError where the shared store does not have them.
    """
    tree = json.loads(text)
    known = {stage.name: stage for stage in STAGES}
    steps = tuple(Step(known[s["stage"]], s["options"], s["hardware"]) for s in tree["steps"])
    source = data = None
    if given := tree.get("source"):
        source = _fetched(given["files"]) / given["name"]
    if given := tree.get("calibration"):
        data = _data_of(given)
    choices = tree.get("choices")
    measured_choices = NONE_MEASURED if choices is None else MeasuredChoices(stated=choices)
    plan = Plan(OWNER, steps, source, data, measured_choices)
    return plan, plan.step(tree["step"])


def _above(plan: Plan, step: Step) -> set[str]:
    """Return the names of a step and of all whose artifacts it needs, directly or not."""
    found = {step.name}
    for _, producer in plan.producers(step):
        if producer is not None and producer.name not in found:
            found |= _above(plan, producer)
    return found


def _plain(step: Step) -> dict[str, Any]:
    hardware = None if step.hardware is None else dict(step.hardware)
    return {"stage": step.name, "options": dict(step.options), "hardware": hardware}


def _model_files(path: Path) -> dict[str, Path]:
    """Return the files of a model by names that say no more than what they are."""
    stem = model_files.stem(path)
    names = {f"model{part.name.removeprefix(stem)}": part for part in model_files.parts(path)}
    if len(names) == 2:  # of MXNet: whatever epoch the parameters are of, these belong to it
        first, second = names.values()
        return {"model-symbol.json": first, "model-0000.params": second}
    return names


def _calibration(data: Data) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return what an order says of calibration data, and the data's files by name."""
    found = {path.name: path for path in calibration_data.sample_files(data.section.data)}
    section = data.section.model_dump(mode="json")
    # A digest of calibration data holds the names of its files, but not where they lie.
    section["data"] = "" if is_folder(data.section.data) else data.section.data.name
    inputs = {name: spec.model_dump(mode="json") for name, spec in data.inputs.items()}
    return {"files": _key(found), "section": section, "inputs": inputs}, found


def _data_of(told: Mapping[str, Any]) -> Data:
    folder = _fetched(told["files"])
    module = "pipelines.recipe.sections"
    place = folder / told["section"]["data"] if told["section"]["data"] else folder
    section = validated(module, "Calibration", {**told["section"], "data": str(place)})
    inputs = told["inputs"].items()
    return Data(section, {n: validated(module, "InputSpec", spec) for n, spec in inputs})


def _key(files: Mapping[str, Path]) -> str:
    """Return the key of files; times and sizes notice a change within one run."""
    marks = ((name, path, path.stat()) for name, path in files.items())
    return _key_of(tuple((n, path, stat.st_mtime_ns, stat.st_size) for n, path, stat in marks))


@functools.cache
def _key_of(marks: tuple[tuple[str, Path, int, int], ...]) -> str:
    digests = {name: keys.digest_of(path) for name, path, _, _ in marks}
    return keys.digest(keys.canonical([ORIGINALS, digests]))


def _fetched(key: str) -> Path:
    """Return the folder of files that a recipe names, fetched if they are not here."""
    store = plan_execution.STORE
    for _ in range(2):
        try:
            manifest = store.manifest(ORIGINALS, key)
            if manifest is not None:
                store.files(manifest)
                return store.folder(ORIGINALS, key) / "files"
        except DamagedError:
            store.discard(ORIGINALS, key)
        fetch_table(ORIGINALS, key)
    raise UserError(
        "the files that the recipe names did not arrive by the shared store; `trust` of the cache "
        "file must name the key that the one who builds signs with"
    )
