"""What a report says of a built recipe, taken from its artifacts; nothing is built for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from pipelines.benchmarks.kernel_work import work_of_layers
from pipelines.builds import derived, work_count
from pipelines.builds.derived import EXACTNESS
from pipelines.builds.plan import IMPORTING, Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError, shown
from pipelines.evaluation import comparison, layer_errors, verification
from pipelines.recipe.resolved import Resolved
from pipelines.remote.dialogue import is_time
from pipelines.reporting import float_memory
from pipelines.reporting.accuracy_files import LayerCosts, Rated
from pipelines.store import keys
from pipelines.tuning import kernels_by_layer, ledger
from pipelines.tuning.candidates import candidate_of
from pipelines.tuning.ledger import Trial
from pipelines.tuning.measured_choices import best_of
from stages.kernels.packing_choices import packing_text
from stages.kernels.workloads import LayerKernels
from stages.packaging.program.arena import Arena, Item, lifetimes
from stages.packaging.program.arena import plan as arena_of
from stages.packaging.program.kernel_program import Call, Program
from stages.packaging.program_builder import program_of

MOST_ALTERNATIVES = 3
"""Kernels beside which a chosen one is shown."""


@dataclass(frozen=True)
class Alternative:
    """A kernel that a layer could run."""

    kernel: str
    predicted: float
    """Predicted cycles / those of the kernel that runs."""
    measured: float | None
    """Measured time / that of the kernel predicted to be the best, if it was measured."""


@dataclass(frozen=True)
class LayerFacts:
    """One call of a package."""

    name: str
    how: str
    """The family of its kernel; `plain` for tensor expressions."""
    precision: str
    """What it multiplies, for example A2W1; empty where it multiplies nothing."""
    macs: int
    cycles: float | None
    """Predicted, of one thread; None where no kernel was chosen."""
    kernel: str
    packing: str | None
    order: str
    alternatives: tuple[Alternative, ...]
    reads: tuple[int, ...]
    """The numbers of the calls that made what it reads."""
    weight_bytes: int
    alive_bytes: int
    """Of all tensors that have to be kept while it runs."""
    seconds: float | None
    """Measured, of one thread and the kernel alone."""
    peak_share: float | None
    """Of the measured peak of its instructions, if `doit bench layer=all` told it."""


@dataclass(frozen=True)
class Facts:
    """All that a report says."""

    layers: tuple[LayerFacts, ...]
    macs: int
    """Multiply-accumulates of all inputs of a batch."""
    cycles: int
    """Predicted for these, on one thread, of the layers whose kernel was a choice."""
    items: tuple[Item, ...]
    arena: Arena
    weights: int
    """Bytes of the package's constants."""
    float_weights: int
    """Bytes of the source's weights with 4 for each."""
    float_arena: int
    """Bytes of the arena that the network would need with 4 for each element, as computed."""
    exactness: tuple[dict[str, Any], ...]
    bench: Mapping[str, Any]
    """What a file of `doit bench` says, if one was given."""
    rated: tuple[Rated | LayerCosts, ...] = ()
    """What files of `doit accuracy` say, if some were given."""
    errors: Mapping[str, Any] | None = None
    """How far layers are from float32, as `layer_errors.by_layer` has it; None if the network was
    not quantized here."""


def gather(
    plan: Plan,
    resolved: Resolved,
    bench: Path | None,
    rated: Sequence[Rated | LayerCosts] = (),
) -> Facts:
    """Return the facts about a recipe; UserError if a file of `doit bench` is none."""
    execution = PlanExecution(plan)
    program = _program(execution, resolved.hardware)
    measured = _read(bench) if bench is not None else {}
    arena = arena_of(program)
    items = tuple(lifetimes(program))
    source = execution.load(plan.step(IMPORTING))
    work = work_count.work(plan)
    return Facts(
        layers=tuple(_layers(execution, resolved.hardware, program, items, _by_layer(measured))),
        macs=work["macs"],
        cycles=work["cycles"],
        items=tuple(item for item in items if item.key in arena.offsets),
        arena=arena,
        weights=sum(int(array.nbytes) for array in program.constants.values()),
        float_weights=4 * sum(int(array.size) for array in source.params.values()),
        float_arena=float_memory.arena_bytes(execution.load(plan.step("canonicalizing"))),
        exactness=tuple(_exactness(execution)),
        bench=measured,
        rated=tuple(rated),
        errors=layer_errors.by_layer(execution),
    )


def _program(execution: PlanExecution, hardware: Hardware) -> Program:
    plan = execution.plan
    names = ("bitpacking", "synthesizing", "scheduling")
    model, bodies, schedules = (execution.load(plan.step(name)) for name in names)
    return program_of(model, bodies, schedules, hardware, execution.memo(plan.step("packaging")))


def _layers(
    execution: PlanExecution,
    hardware: Hardware,
    program: Program,
    items: Sequence[Item],
    measured: Mapping[str, Mapping[str, float]],
) -> list[LayerFacts]:
    found = kernels_by_layer.of(execution)
    running, orders = kernels_by_layer.running(execution), kernels_by_layer.orders(execution)
    work = work_of_layers(execution.load(execution.plan.step("bitpacking")))
    machine = ledger.machine_for(hardware.core, hardware.isa, hardware.architecture)
    trials = ledger.trials(machine)
    made: dict[tuple[str, str], int] = {}
    layers = []
    for number, call in enumerate(program.calls):
        name = call.layer
        layer_kernels, kernel = found.get(name), running.get(name, "")
        cycles, packing, alternatives = _chosen(layer_kernels, kernel, trials)
        did = work.get(name)
        layers.append(
            LayerFacts(
                name=name,
                how=did.how if did else "plain",
                precision=_precision(layer_kernels),
                macs=did.macs if did else 0,
                cycles=cycles,
                kernel=kernel,
                packing=packing,
                order=orders.get(name, ""),
                alternatives=alternatives,
                reads=_makers(call, made),
                weight_bytes=sum(
                    int(program.constants[s.name].nbytes)
                    for s in call.reads
                    if s.kind == "constant"
                ),
                alive_bytes=sum(i.size for i in items if i.first <= number <= i.last),
                seconds=measured.get(name, {}).get("seconds"),
                peak_share=measured.get(name, {}).get("peak_share"),
            )
        )
        made |= {(slot.kind, slot.name): number for slot in call.writes}
    return layers


def _makers(call: Call, made: Mapping[tuple[str, str], int]) -> tuple[int, ...]:
    found = (made.get((slot.kind, slot.name)) for slot in call.reads)
    return tuple(dict.fromkeys(number for number in found if number is not None))


def _chosen(
    layer_kernels: LayerKernels | None, kernel: str, trials: Sequence[Trial]
) -> tuple[float | None, str | None, tuple[Alternative, ...]]:
    """Predicted cycles and packing of the kernel that runs, and those beside it."""
    candidate = candidate_of(layer_kernels, kernel) if layer_kernels is not None else None
    if layer_kernels is None or candidate is None:
        return None, None, ()
    own = layer_kernels.workload.cycles(candidate)
    tried = [trial for trial in trials if trial.workloads[0] == layer_kernels.workload.name]
    alternatives: list[Alternative] = []
    for other in layer_kernels.ranked():
        name = layer_kernels.kernel(other)
        if name != layer_kernels.kernel(candidate) and len(alternatives) < MOST_ALTERNATIVES:
            best = best_of(trial for trial in tried if trial.kernel == name)
            ratio = best.ratio if best else None
            alternatives.append(
                Alternative(name, layer_kernels.workload.cycles(other) / own, ratio)
            )
    packing = packing_text(candidate.signature) if candidate.signature.plan else None
    return own, packing, tuple(alternatives)


def _precision(layer_kernels: LayerKernels | None) -> str:
    """The problem of a layer's products as people write it."""
    if layer_kernels is None:
        return ""
    problem = layer_kernels.workload.problem.partition("_")[0]
    return problem.upper() if problem.startswith("a") else problem


def _exactness(execution: PlanExecution) -> list[dict[str, Any]]:
    """What outputs after every stage are like beside the source graph's; kept in the store."""
    steps = tuple(s.name for s in execution.plan.steps if s.stage.gives == "model")
    ingredients = {
        "inputs": derived.outputs(execution, (*steps, verification.GOLDEN)),
        "tolerance": verification.tolerance(execution.plan),
        "code": keys.code_ingredients(
            "pipelines.evaluation.verification", packages=("pipelines", "stages")
        ),
    }

    def find() -> dict[str, Any]:
        rows = [
            {"stage": stage, "verdict": item.verdict, "detail": comparison.describe(item)}
            for stage, found, _ in verification.after_stages(execution)
            for item in found
        ]
        return {"rows": rows}

    return list(derived.table(execution, EXACTNESS, ingredients, find)["rows"])


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"bench={shown(path)}: cannot be read: {error}") from error
    if not isinstance(found, dict) or "recipe" not in found:
        raise UserError(f"bench={shown(path)}: is no result of `doit bench … json=FILE`")
    return found


def _by_layer(bench: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What was measured of layers, by `bench board=` or `bench layer=all`: seconds and share of
    the peak."""
    boards = bench.get("boards") or [bench]
    rows = boards[0].get("layers", []) if isinstance(boards[0], dict) else []
    names = ("seconds", "peak_share")
    return {
        str(row.get("layer")): {n: float(row[n]) for n in names if is_time(row.get(n))}
        for row in rows
        if isinstance(row, dict)
    }
