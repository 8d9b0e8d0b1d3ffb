"""A package and other engines on an emulated processor: what each takes, in all and by layer.

Instructions are emulated, and exact for the code that ran. Cycles are modelled: the page of
`pipelines/modelling` says how, and how far they may be off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.benchmarks.contestants import PACKAGE, first_sample
from pipelines.benchmarks.engines import ENGINES, load
from pipelines.benchmarks.qdq_pairs import NoTwinError
from pipelines.benchmarks.variant_packages import build_variant
from pipelines.benchmarks.variant_packages import title as own_title
from pipelines.benchmarks.variants import WITH_TWINS, Variant, variants
from pipelines.builds import publication
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.emulating import (
    guest_engines,
    layer_attribution,
    layer_kinds,
    linked_program,
    tflite_split,
)
from pipelines.emulating.block_costs import Cost, Pricing, pricing_of, total
from pipelines.emulating.guest_engines import Guest
from pipelines.emulating.layer_kinds import LayerOfKind
from pipelines.emulating.multiply_instructions import multiplying
from pipelines.emulating.processors import Processor, processor
from pipelines.emulating.tflite_twin import twin
from pipelines.errors import CheckError, UserError
from pipelines.evaluation import comparison, verification
from pipelines.recipe.resolved import Resolved
from pipelines.runners.package import Package, open_package
from stages.kinds import Golden

Array = np.ndarray[Any, Any]
Costs = dict[str, Cost]

TWIN = "TensorFlow Lite twin"


@dataclass
class EmulatedCost:
    """What one engine took with one file; by layer where that can be told."""

    what: str
    cost: Cost
    layers: Costs = field(default_factory=dict)
    outputs: Sequence[Array] = ()
    difference: float | None = None
    """By how much outputs differ from the package's at most, where the network is the very same;
    of a twin those of the exact one, which runs on this machine where LiteRT is installed."""
    products: Mapping[str, int] = field(default_factory=dict)
    """How often it executed each instruction that multiplies, of those that are known."""


@dataclass
class Compared:
    """The package first, then the others; `layers` are the package's, or a part of one."""

    sides: list[EmulatedCost]
    layers: list[LayerOfKind]
    refused: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(
    plan: Plan, resolved: Resolved, wanted: Sequence[Guest], own: Sequence[str] = ()
) -> Compared:
    """Emulate a published package, and engines on the files that they can run of its network.

    `own` are precisions that our own package of the network is emulated at, too, if it has them.
    UserError says what is not installed, or that the package's outputs are not right.
    """
    package = open_package(publication.package_folder_of(plan))
    found, pricing = processor(resolved.hardware), pricing_of(resolved.hardware)
    inputs = first_sample(package)
    ours, outputs, layers = emulated(plan, resolved, found, pricing)
    compared = Compared([ours], layers)
    if pricing.lack:
        compared.notes.append(f"no cycles are modelled: {pricing.lack}")
    every = variants(plan, resolved) if wanted or own else []
    for variant in every:
        if variant.precision in own and not variant.is_same:
            compared.sides.append(_own(variant, resolved, found, pricing))
    compared.notes += behind_floats(compared.sides)
    missing = set(own).difference(variant.precision for variant in every)
    compared.notes += [f"the network is not known in {precision}" for precision in sorted(missing)]
    files = _very_files(every) if wanted else []
    for guest in wanted:
        told = len(compared.sides) + len(compared.refused)
        for file in filter(None, (_file(guest, variant, compared) for variant in files)):
            title = f"{guest.title}, {file.precision}"
            with _refusing(compared, title):
                side = _engine(guest, file, title, inputs, found, pricing, compared.notes)
                side.difference = _differs(file, side, inputs, outputs)
                compared.sides.append(side)
        if told == len(compared.sides) + len(compared.refused):
            why = f"it reads {guest.form}, and there is none"
            compared.refused.append({"what": guest.title, "why": why})
    return compared


def behind_floats(sides: Sequence[EmulatedCost]) -> list[str]:
    """Say that the package, the first side, takes more cycles than our own float32 of its network.

    Nothing is said where that was not emulated, or where no cycles are modelled.
    """
    ours = sides[0].cost.cycles
    floats = next(
        (side.cost.cycles for side in sides[1:] if side.what == own_title("float32")), None
    )
    if ours is None or floats is None or ours <= floats:
        return []
    return [f"slower than its own float32: {ours / floats:.2f} of that package's modelled cycles"]


def _very_files(files: Sequence[Variant]) -> Sequence[Variant]:
    """Return the recipe's own file where engines can run that, else its network otherwise."""
    return [variant for variant in files if variant.is_same] or files


def _own(variant: Variant, resolved: Resolved, found: Processor, pricing: Pricing) -> EmulatedCost:
    """Emulate our own package of a network at another precision."""
    made = build_variant(variant.precision, variant.source, variant.form, resolved, "static")
    ran = _ran(made, resolved, open_package(publication.package_folder_of(made)), found, pricing)
    cost = total(pricing.costs(ran.functions).values())
    return EmulatedCost(own_title(variant.precision), cost, products=_products(ran, pricing))


def emulated(
    plan: Plan, resolved: Resolved, found: Processor, pricing: Pricing
) -> tuple[EmulatedCost, list[Array], list[LayerOfKind]]:
    """Emulate the published package of a plan, and tell what its layers take."""
    execution, package = PlanExecution(plan), open_package(publication.package_folder_of(plan))
    layers = layer_kinds.of_model(execution.load(plan.step("bitpacking")))
    ran = _ran(plan, resolved, package, found, pricing)
    calls = package.manifest["layers"]
    users = layer_attribution.users_of(
        package.file(f"lib{package.name}.a"), [call["kernel"] for call in calls]
    )
    costs = layer_attribution.by_layer(pricing.costs(ran.functions), calls, layers, users)
    products = _products(ran, pricing)
    side = EmulatedCost(PACKAGE, total(costs.values()), _merged(costs), products=products)
    return side, list(ran.outputs.values()), layers


def _ran(
    plan: Plan, resolved: Resolved, package: Package, found: Processor, pricing: Pricing
) -> linked_program.Ran:
    """Emulate a package of ours; its outputs must be those of its golden vectors."""
    ran = linked_program.run(
        package, resolved.hardware, first_sample(package), found.qemu, pricing.memory
    )
    golden = Golden(*({k: v[:1] for k, v in part.items()} for part in package.golden()))
    for item in comparison.compare(
        golden, lambda _: ran.outputs, verification.tolerance_of_package(plan)
    ):
        if item.verdict == "departs":
            raise CheckError(f"bench: {package.name}: {comparison.describe(item)}")
    return ran


def _products(ran: linked_program.Ran, pricing: Pricing) -> Mapping[str, int]:
    blocks = (block for part in ran.functions.values() for block in part)
    return multiplying(blocks) if pricing.architecture == "aarch64" else {}


def _merged(costs: Mapping[str, Cost]) -> Costs:
    found: Costs = {}
    for name, cost in costs.items():
        layer = layer_kinds.of(name)
        found[layer] = found.get(layer, Cost()) + cost
    return found


# -- other engines ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A model file that an engine runs, and of which precision it is."""

    precision: str
    source: bytes
    is_same: bool
    exact_twin: bytes | None = None
    """Of a twin, the one that computes the very values."""

    @property
    def is_twin(self) -> bool:
        return self.exact_twin is not None


def _file(guest: Guest, variant: Variant, compared: Compared) -> _File | None:
    """Return what an engine runs of a file, which is its twin where it has another form."""
    if variant.form == guest.form:
        return _File(variant.precision, variant.source, variant.is_same)
    if guest.form != "tflite" or (variant.form, variant.precision) not in WITH_TWINS:
        return None
    try:
        made, exact = twin(variant.source), twin(variant.source, exact=True)
    except NoTwinError as error:
        why = f"there is no {TWIN}: {error}"
        compared.refused.append({"what": f"{guest.title}, {variant.precision}", "why": why})
        return None
    return _File(f"{variant.precision} ({TWIN})", made, variant.is_same, exact)


@contextlib.contextmanager
def _refusing(compared: Compared, title: str) -> Any:
    try:
        yield
    except UserError as error:
        compared.refused.append({"what": title, "why": error.message})


def _engine(
    guest: Guest,
    file: _File,
    title: str,
    inputs: Mapping[str, Array],
    found: Processor,
    pricing: Pricing,
    notes: list[str],
) -> EmulatedCost:
    given = _channels_last(inputs) if file.is_twin else list(inputs.values())
    (ran,) = guest_engines.run(guest, [(file.source, given)], found, pricing.memory)
    products = multiplying(ran.interval)
    side = EmulatedCost(title, pricing.cost(ran.interval), outputs=ran.outputs, products=products)
    if guest.form == "tflite":
        side.layers = _operators(guest, file.source, found, pricing, notes)
    return side


def _differs(
    file: _File, side: EmulatedCost, inputs: Mapping[str, Array], expected: Sequence[Array]
) -> float | None:
    outputs = side.outputs
    if file.exact_twin is not None:
        engine = ENGINES["litert"]
        if not engine.is_installed:
            return None
        names = {name: array for name, array in zip(inputs, _channels_last(inputs), strict=True)}
        outputs = load(engine, Variant("int8", file.exact_twin, "tflite"), names, 1).outputs()
    if not file.is_same or [x.size for x in outputs] != [x.size for x in expected]:
        return None
    return max(map(_difference, outputs, expected))


def _operators(
    guest: Guest, source: bytes, found: Processor, pricing: Pricing, notes: list[str]
) -> Costs:
    """Return what each operator of a TensorFlow Lite file takes alone."""
    try:
        parts = tflite_split.split(source)
    except UserError as error:
        notes.append(f"{guest.name} is not told apart by layer: {error.message}")
        return {}
    distinct = {part.same_as: part for part in parts}
    models = [(part.source, part.inputs) for part in distinct.values()]
    ran = guest_engines.run(guest, models, found, pricing.memory)
    costs = pricing.costs({str(i): each.interval for i, each in enumerate(ran)})
    by_shape = dict(zip(distinct, costs.values(), strict=True))
    return {part.layer.name: by_shape[part.same_as] for part in parts}


def _channels_last(inputs: Mapping[str, Array]) -> list[Array]:
    return [np.ascontiguousarray(np.moveaxis(array, 1, -1)) for array in inputs.values()]


def _difference(found: Array, expected: Array) -> float:
    flat = found.astype(np.float64).ravel() - expected.astype(np.float64).ravel()
    return float(np.abs(flat).max(initial=0.0))
