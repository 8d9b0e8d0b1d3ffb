"""ResNet-18 of 1 to 3 bits on a Raspberry Pi 3: the runs that figures of CGO 2020 share.

The board is modelled: instructions are those of the package under QEMU, cycles those of the model
of its Cortex-A53.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.emulating.emulated_primitives import FLOATS, PACKED
from pipelines.paper.emulated_results import cycles, of_layer
from pipelines.paper.figure import Results
from pipelines.paper.runs import Run, run

LAYERS: Mapping[str, tuple[str, int, tuple[int, int], int, int]] = {
    "C2": ("layer1.0.conv1", 56, (64, 64), 3, 1),
    "C3": ("layer1.0.downsample", 56, (64, 64), 1, 1),
    "C4": ("layer2.0.conv1", 56, (64, 128), 3, 2),
    "C5": ("layer2.0.downsample", 56, (64, 128), 1, 2),
    "C6": ("layer2.0.conv2", 28, (128, 128), 3, 1),
    "C7": ("layer3.0.conv1", 28, (128, 256), 3, 2),
    "C8": ("layer3.0.downsample", 28, (128, 256), 1, 2),
    "C9": ("layer3.0.conv2", 14, (256, 256), 3, 1),
    "C10": ("layer4.0.conv1", 14, (256, 512), 3, 2),
    "C11": ("layer4.0.downsample", 14, (256, 512), 1, 2),
    "C12": ("layer4.0.conv2", 7, (512, 512), 3, 1),
}
"""Table 1: name → our layer, height and width of the input, channels, window, stride."""
ALIKE = {"C2": 4, "C6": 3, "C9": 3, "C12": 3}
"""How many layers of the network have this shape, where there are several."""
RECIPES = {
    "A1W1": "recipe=resnet18_a1w1_host hardware=rpi3",
    "A1W2": "recipe=resnet18_a1w2_host hardware=rpi3",
    "A2W1": "recipe=resnet18_a2w1_rpi3",
    "A2W2": "recipe=resnet18_a2w2_host hardware=rpi3",
    "A3W3": "recipe=resnet18_a3w3_host hardware=rpi3",
}
_IN_FULL = "'primitives=layer[1234].*'"


def _words(bits: str, more: str) -> Run:
    recipe, _, board = RECIPES[bits].partition(" ")
    return run(f"bench {recipe} {more} {board}")


WHOLE = {bits: run(f"bench {words}", has_layers=True) for bits, words in RECIPES.items()}
STEPS = {bits: _words(bits, _IN_FULL) for bits in RECIPES}
FLOAT = run("bench recipe=resnet18_a2w1_rpi3 peers=none own=float32")


def by_shape(results: Results, bits: str) -> dict[str, Mapping[str, Any]]:
    """Return the rows of the scheduling primitives, C2 to C12 → costs; nothing if not measured."""
    found = results.get(STEPS[bits])
    if found is None:
        return {}
    rows = {row["layer"]: row["costs"] for row in found.result["primitives"]}
    return {name: rows[layer[0]] for name, layer in LAYERS.items() if layer[0] in rows}


def package(results: Results, bits: str) -> float | None:
    """Return the modelled cycles of a whole package, or None."""
    found = results.get(WHOLE[bits])
    return None if found is None else cycles(found.result["rows"][0])


def threads_of(costs: Mapping[str, object]) -> int:
    """The threads that a row's last columns are for: `+ 4 threads` says it."""
    named = (name.split() for name in costs if name.endswith("threads"))
    return next((int(words[1]) for words in named), 1)


def in_bytes(results: Results, bits: str, name: str) -> float | None:
    """Return how many times as fast as our float32 a layer is that runs as 8-bit products."""
    found, floats = results.get(WHOLE[bits]), by_shape(results, "A1W1").get(name, {})
    own = of_layer(found, LAYERS[name][0])
    if own is None or FLOATS not in floats:
        return None
    return cycles(floats[FLOATS]) * threads_of(floats) / own


def without_kernels(results: Results, bits: str) -> float | None:
    """Return a package's modelled cycles on one thread if its layers of few bits ran as LLVM's
    loops instead of their micro-kernels; None where that is not known of every shape, as some run
    as 8-bit products."""
    total, shapes = package(results, bits), by_shape(results, bits)
    if total is None or shapes.keys() != LAYERS.keys():
        return None
    for name, costs in shapes.items():
        kernel = cycles(costs[PACKED]) * threads_of(costs)
        total += ALIKE.get(name, 1) * (cycles(costs["+ unrolling"]) - kernel)
    return total


def in_float(results: Results) -> float | None:
    """Return the modelled cycles of our float32 package, or None."""
    found = results.get(FLOAT)
    if found is None:
        return None
    return next(cycles(row) for row in found.result["rows"] if row["what"] == "bitkiln, float32")
