"""Replaying golden vectors: in a package as built, and in the module after every stage."""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.builds.plan import IMPORTING, VERIFYING, Plan
from pipelines.builds.plan_execution import STORE, PlanExecution
from pipelines.errors import CheckError
from pipelines.evaluation import left_in_float
from pipelines.evaluation.comparison import (
    CLOSE,
    CLOSE_OF_BFLOAT16,
    Comparison,
    compare,
    describe,
    float_distance,
)
from pipelines.store import keys, roots
from pipelines.store.manifest import Parts

if TYPE_CHECKING:
    # A build whose package is known to be right needs neither NumPy nor a runner.
    import numpy as np

    from pipelines.builds.opened_package import Opened
    from pipelines.remote.transport import Transport

    Array = np.ndarray[Any, Any]
    Execute = Callable[[Mapping[str, Array]], Mapping[str, Array]]

GOLDEN, QUANTIZING = left_in_float.GOLDEN, left_in_float.QUANTIZING


def tolerance(plan: Plan) -> float:
    """How near the source graph a stage's float outputs must come."""
    if (asked := left_in_float.float_type_of(plan)) != "float16":
        return CLOSE_OF_BFLOAT16 if asked == "bfloat16" else CLOSE
    from stages.dialect.float_linear import departure

    return max(CLOSE, departure(left_in_float.count_float16_layers(PlanExecution(plan))))


def tolerance_of_package(plan: Plan) -> float:
    """How near a package's must come: kernels of float16 round sums, which stages do not."""
    if left_in_float.float_type_of(plan) != "float16":
        return tolerance(plan)
    from stages.dialect.float_linear import departure_of_sums
    from stages.graph import interpret

    execution = PlanExecution(plan)
    golden, model = execution.load(plan.step(GOLDEN)), execution.load(plan.step(QUANTIZING))
    found = compare(golden, functools.partial(interpret.run, model))
    rounded = [item.largest_difference / item.largest_value for item in found if item.largest_value]
    layers = left_in_float.count_float16_layers(execution)
    return max(CLOSE, departure_of_sums(max(rounded, default=0.0), layers))


def in_float(plan: Plan, stage: str) -> bool:
    """Whether a stage's module is a float one that is calibrated later, unlike the golden one."""
    return stage == IMPORTING and plan.calibration is not None


def after_stages(execution: PlanExecution) -> Iterator[tuple[str, list[Comparison], float]]:
    """Yield each stage that gives a module, how its outputs compare, and the seconds it took."""
    from stages.graph import interpret

    golden = execution.load(execution.plan.step(GOLDEN))
    for step in execution.plan.steps:
        if step.stage.gives == "model" and not in_float(execution.plan, step.name):
            started = time.monotonic()
            model = execution.load(step)
            run = functools.partial(interpret.run, model)
            found = compare(golden, run, tolerance(execution.plan))
            yield step.name, found, time.monotonic() - started


def in_package(
    execution: PlanExecution, threads: Sequence[int] = (1,), board: Transport | None = None
) -> Iterator[tuple[int, list[Comparison], str]]:
    """Yield for each number of threads how the package's outputs compare, and how it was run.

    Raises opened_package.UnavailableError if this machine cannot run it; UserError if the board
    cannot.
    """
    from pipelines.builds import opened_package

    golden = execution.load(execution.plan.step(GOLDEN))
    with opened_package.opened(execution.plan, board) as package:
        near = tolerance_of_package(execution.plan)
        for count in threads:
            run = functools.partial(_run, package, count)
            yield count, compare(golden, run, near), package.how


def _run(package: Opened, threads: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    return package.run(inputs, threads)


def is_current(plan: Plan) -> bool:
    """Whether this very package was found right before, by the runners as they are now."""
    execution = PlanExecution(plan)
    if not execution.is_current(execution.plan.steps[-1]):
        return False
    key = _key(_ingredients(execution))
    return STORE.has(VERIFYING, key) and roots.of(STORE, plan.recipe).get(VERIFYING, [""])[0] == key


def build(plan: Plan) -> dict[str, Any]:
    """Verify the published package and note the result; CheckError if it departs."""
    from pipelines.builds import opened_package
    from stages import artifacts

    started = time.monotonic()
    execution = PlanExecution(plan)
    ingredients = _ingredients(execution)
    key = _key(ingredients)
    if STORE.has(VERIFYING, key):
        roots.note(STORE, plan.recipe, {VERIFYING: key})
        return {"status": "cached", "note": said(plan)}
    try:
        ((_, found, how),) = in_package(execution)
    except opened_package.UnavailableError as why:
        replayed = _replayed(execution, why, started)
        if replayed is not None:
            return replayed
        found, how = _on_local(execution)
    for item in found:
        if item.verdict == "departs":
            since = f"`doit verify {plan.arguments} passes=all` says since when"
            beyond = left_in_float.overflowing(execution, item.largest_difference == float("inf"))
            raise CheckError(f"{VERIFYING}: {describe(item)}; {beyond or since}")
    note = _note(plan, found, how)
    table = {"note": note, "outputs": [asdict(item) for item in found]}
    parts = artifacts.take_apart("table", table)
    with STORE.lock():
        STORE.commit(VERIFYING, key, "table", Parts(parts.files, {}), ingredients)
    roots.note(STORE, plan.recipe, {VERIFYING: key})
    seconds = round(time.monotonic() - started, 3)
    return {"status": "built", "seconds": seconds, "note": note}


def said(plan: Plan) -> str | None:
    """Return what was said of a package when it was verified, if it was."""
    manifest = STORE.manifest(VERIFYING, _key(_ingredients(PlanExecution(plan))))
    if manifest is None:
        return None
    table = json.loads(STORE.files(manifest)["table.json"].read_text(encoding="utf-8"))
    return str(table["note"])


def _note(plan: Plan, found: Sequence[Comparison], how: str) -> str:
    """How outputs compare, and how the package was run."""
    verdict = ", ".join(dict.fromkeys(item.verdict for item in found))
    worst = max(found, key=lambda item: item.largest_difference)
    apart = (
        f"; apart by at most {worst.largest_difference:g}{more}"
        if (more := float_distance(worst))
        else ""
    )
    return f"{found[0].samples} golden samples {verdict}, {how}{_without_tiles(plan)}{apart}"


def _without_tiles(plan: Plan) -> str:
    """Say that kernels of tiles (AMX) did not run, where this machine has none: a package then runs
    those beside them."""
    from hw import host
    from hw.isa.tile_registers import FEATURES

    has_tiles = any(
        set(FEATURES) <= set((step.hardware or {}).get("features", ())) for step in plan.steps
    )
    return " but for AMX, which is not here" if has_tiles and not host.may_use_tiles() else ""


def _replayed(execution: PlanExecution, why: Exception, started: float) -> dict[str, Any] | None:
    """What the package's own program finds where its library does not run: the emulator has not
    every instruction that qemu has.

    The program compares bits: None where floats differ, perhaps by rounding alone.
    """
    from pipelines.builds import opened_package

    try:
        said, how = opened_package.replays(execution.plan, 1)
    except opened_package.UnavailableError:
        return {"status": "skipped", "note": f"{why}"}
    if said.is_equal:
        return {
            "status": "built",
            "seconds": round(time.monotonic() - started, 3),
            "note": f"{said.samples} golden samples exact, {how}",
        }
    outputs = execution.load(execution.plan.step(GOLDEN)).outputs
    if not any(array.dtype.kind == "f" for array in outputs.values()):
        raise CheckError(
            f"{VERIFYING}: {said.text}; `doit verify {execution.plan.arguments}` says why"
        )
    return None


def _on_local(execution: PlanExecution) -> tuple[list[Comparison], str]:
    """How the library's outputs compare, run as on a board that is this machine, under qemu."""
    from pipelines.remote.board_addresses import LOCAL, Board
    from pipelines.remote.transport import Local

    with tempfile.TemporaryDirectory() as home:
        here = Local(Board(name=LOCAL, address=LOCAL), Path(home))
        ((_, found, _),) = in_package(execution, board=here)
    return found, "under qemu"


def _ingredients(execution: PlanExecution) -> dict[str, Any]:
    inputs = {}
    for name in (GOLDEN, execution.plan.steps[-1].name):
        manifest = execution.current(execution.plan.step(name))
        inputs[name] = manifest.output if manifest else None
    code = keys.code_ingredients("pipelines.runners", packages=("pipelines",))
    tools = {"unicorn": keys.tool_version("unicorn")}
    return {"inputs": inputs, "code": code, "tools": tools, "form": "a note and outputs"}


def _key(ingredients: dict[str, Any]) -> str:
    return keys.digest(keys.canonical([VERIFYING, ingredients]))
