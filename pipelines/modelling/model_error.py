"""The model's error: modelled cycles beside published and measured times.

`python -m pipelines.modelling.model_error cgo` holds the Cortex-A53 against the tuning logs of
CGO 2020, `… x86` Zen 4 against this machine's times of our own kernels, `… boards` LiteRT on the
Cortex-A76 and -A72 against times that other engines published. All print a table and write
`pipelines/modelling/results/NAME.json`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipelines import machine, work_folder
from pipelines.benchmarks import contestants
from pipelines.benchmarks import kernel_work as timing
from pipelines.builds import extra_builds, plan, plan_execution, publication
from pipelines.emulating import (
    guest_engines,
    layer_attribution,
    layer_kinds,
    linked_program,
    processors,
)
from pipelines.emulating.block_costs import Cost, Pricing
from pipelines.emulating.tflite_twin import twin
from pipelines.errors import UserError, did_you_mean
from pipelines.instruction_costs import block_timer
from pipelines.modelling import cycle_prices
from pipelines.modelling.code_blocks import joined
from pipelines.output import printed_tables
from pipelines.recipe import recipe_slices
from pipelines.recipe.load import load_recipe
from pipelines.recipe.resolved import Resolved
from pipelines.runners.package import open_package
from pipelines.store import atomic
from stages.importing import zoo

FOLDER = work_folder.ARTIFACTS / "modelling"
RESULTS = Path(__file__).parent / "results"
SMALLEST = 20_000
"""Cycles of a layer below which calling it is what is timed."""

Row = dict[str, Any]


def cgo() -> tuple[str, list[Row]]:
    """Shapes of ResNet-18 by popcounts of one and two bits, modelled on a Cortex-A53."""
    published = _published("cgo")
    rows: list[Row] = []
    for precision in ("a1w1", "a2w1", "a2w2"):
        found = list(_shapes(published, precision))
        middle = math.exp(statistics.fmean(math.log(row["modelled / published"]) for row in found))
        rows += [{**row, "of the middle": row["modelled / published"] / middle} for row in found]
    return "Cortex-A53, modelled: our kernels beside those of CGO 2020, ms of 4 threads", rows


def _shapes(published: Mapping[str, Any], precision: str) -> Iterator[Row]:
    a, w = precision[1], precision[3]
    costs = _costs(
        _recipe(
            f"resnet18_{precision}_popcounts",
            "model: {zoo: resnet18}",
            "quantization:",
            f"  activations: {{bits: {a}, encoding: unipolar}}",
            f"  weights: {{bits: {w}, encoding: bipolar}}",
            "hardware: rpi3",
            'layers: [{match: "layer*", algorithm: bitserial}]',
        ),
        "cortex-a53",
        "cortex-a53",
    )
    for shape in published["shapes"]:
        cycles = statistics.fmean(costs[name].cycles or 0.0 for name in shape["layers"])
        modelled = cycles / published["threads"] / published["ghz"] / 1e6
        yield {
            "precision": precision,
            "shape": shape["shape"],
            "kcycles modelled": cycles / 1e3,
            "ms modelled": modelled,
            "ms published": shape["ms"][precision],
            "modelled / published": modelled / shape["ms"][precision],
        }


def x86() -> tuple[str, list[Row]]:
    """Layers of two networks on this machine's own processor, with AVX2."""
    if machine.core() not in ("zen4", "zen5"):
        raise UserError("the model of Zen 4 is held against times of a Zen 4 or 5 alone")
    rows: list[Row] = []
    for network in ("resnet18_a2w1_host", "mobilenet_v1_025_int8_host"):
        recipe = load_recipe(network).recipe
        quantization = yaml.safe_dump(
            {"quantization": recipe.quantization.model_dump(mode="json", exclude_none=True)}
            if recipe.quantization
            else {}
        ).rstrip()
        made = _recipe(
            f"{network}_haswell",
            f"model: {{zoo: {recipe.model.zoo}}}",
            *([quantization] if quantization != "{}" else []),
            "hardware: haswell",
        )
        rows += _timed(made)
    return f"Zen 4 with AVX2, modelled, beside times on {machine.processor()}", rows


def boards() -> tuple[str, list[Row]]:
    """LiteRT's whole inferences, modelled, beside those that other engines published."""
    rows: list[Row] = []
    for board in _published("boards"):
        for network, published in board["ms"].items():
            cycles = _litert(network, board["core"])
            modelled = cycles / board["ghz"] / board["threads"] / 1e6
            rows.append(
                {
                    "published by": board["engine"],
                    "network": network,
                    "threads": board["threads"],
                    "Mcycles modelled": cycles / 1e6,
                    "ms modelled": modelled,
                    "ms published": published,
                    "modelled / published": modelled / published,
                }
            )
    return "LiteRT, modelled, its cycles shared evenly by threads", rows


def _litert(network: str, core: str) -> float:
    """Modelled cycles of one inference of a zoo network by LiteRT, one thread."""
    options = recipe_slices.zoo_options(load_recipe(network).recipe)
    assert options
    model = twin(zoo.build(options=options))
    shape = (1, options.image_size, options.image_size, 3)
    sample = np.random.default_rng(0).random(shape).astype(np.float32)
    found = processors.PROCESSORS[core]
    (ran,) = guest_engines.run(
        guest_engines.GUESTS["litert"], [(model, [sample])], found, cycle_prices.memory(core)
    )
    return sum(one.cycles for one in cycle_prices.cycles(joined(ran.interval), core))


def _timed(recipe: Path) -> Iterator[Row]:
    resolved, made = _built(recipe)
    costs = _costs(recipe, "zen4", "max")
    package = open_package(publication.package_folder_of(made))
    hertz = block_timer.hertz(resolved.hardware)
    sample = contestants.first_sample(package)
    for row in timing.times(plan_execution.PlanExecution(made), resolved.hardware, sample):
        measured = row["seconds"] * hertz
        if measured < SMALLEST:
            continue
        cycles = costs[row["layer"]].in_l1 or 0.0
        yield {
            "network": resolved.name,
            "layer": row["layer"],
            "how": row["how"],
            "kcycles in a network": (costs[row["layer"]].cycles or 0.0) / 1e3,
            "kcycles alone": cycles / 1e3,
            "kcycles measured": measured / 1e3,
            "modelled / measured": cycles / measured,
        }


def _costs(recipe: Path, core: str, cpu: str) -> Mapping[str, Cost]:
    """What each layer of a recipe's package costs on a core; `cpu` is QEMU's name of it."""
    resolved, made = _built(recipe)
    folder = publication.package_folder_of(made)
    package = open_package(folder)
    sample = contestants.first_sample(package)
    ran = linked_program.run(package, resolved.hardware, sample, cpu, cycle_prices.memory(core))
    layers = layer_kinds.of_model(plan_execution.PlanExecution(made).load(made.step("bitpacking")))
    calls = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["layers"]
    library = package.file(f"lib{package.name}.a")
    users = layer_attribution.users_of(library, [call["kernel"] for call in calls])
    priced = Pricing(core, resolved.hardware.architecture, cycle_prices.memory(core))
    return layer_attribution.by_layer(priced.costs(ran.functions), calls, layers, users)


def _built(recipe: Path) -> tuple[Resolved, plan.Plan]:
    return load_recipe(str(recipe)), extra_builds.build_package(recipe)


def _recipe(name: str, *lines: str) -> Path:
    """Write a recipe file of these lines."""
    path = FOLDER / f"{name}.yaml"
    text = [*lines, "golden: {samples: 1, seed: 0}", "package: {formats: [shared, static]}"]
    atomic.replace(path, ("\n".join(text) + "\n").encode())
    return path


def _published(part: str) -> Any:
    text = files("pipelines.modelling").joinpath("published.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)[part]


def summary(ratios: Sequence[float]) -> Row:
    """The middle of some ratios, and the factor that a standard deviation is."""
    logs = [math.log(ratio) for ratio in ratios]
    spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
    return {"geometric mean": math.exp(statistics.fmean(logs)), "spread": math.exp(spread)}


SUBJECTS: Mapping[str, Callable[[], tuple[str, list[Row]]]] = {
    "cgo": cgo,
    "x86": x86,
    "boards": boards,
}


def main(arguments: Sequence[str]) -> None:
    """Print and write one comparison."""
    name = arguments[0] if arguments else ""
    if name not in SUBJECTS:
        raise UserError(f"'{name}' is nothing to hold the model against"
                        + did_you_mean(name, list(SUBJECTS), otherwise="known"))  # fmt: skip
    title, rows = SUBJECTS[name]()
    ratio = next(key for key in rows[0] if key.startswith("modelled / "))
    by = next(key for key in ("precision", "published by", "network") if key in rows[0])
    sums = {
        group: summary([row[ratio] for row in rows if row[by] == group])
        for group in dict.fromkeys(row[by] for row in rows)
    }
    shown = [
        {key: f"{v:.2f}" if isinstance(v, float) else str(v) for key, v in row.items()}
        for row in rows
    ]
    printed_tables.show(title, shown, list(shown[0]))
    for group, found in sums.items():
        print(f"{group}: " + ", ".join(f"{key} {value:.2f}" for key, value in found.items()))
    text = json.dumps({"title": title, "rows": rows, "summary": sums}, indent=1) + "\n"
    atomic.replace(RESULTS / f"{name}.json", text.encode())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"ERROR: {error}")
