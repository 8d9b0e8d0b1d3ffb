"""What every scheduling primitive adds to convolutions of few bits on an emulated processor.

Figure 4 of Cowan et al. (CGO 2020) for every shape of a network: loops as they are written, then
tiled, vectorized, unrolled and shared by threads, then the package's kernel with bits packed as
they are by default, and as the cost tables choose, beside our own float32 on as many threads.
Cycles are modelled; those of several threads are the longest part's, as if threads shared no
memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.benchmarks import variant_packages
from pipelines.benchmarks.primitives import PRIMITIVES, ConvolutionShape, layer_of, loops
from pipelines.benchmarks.variants import variants
from pipelines.builds import extra_builds
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.emulating import emulated_comparison, layer_kinds, linked_program
from pipelines.emulating.block_costs import Cost, Pricing, pricing_of
from pipelines.emulating.processors import Processor, processor
from pipelines.errors import UserError
from pipelines.modelling.qemu_counts import count
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.resolved import Resolved
from pipelines.store import atomic
from stages.codegen import compile_object

KERNEL, PACKED, FLOATS = "+ micro-kernel", "+ packing", "own float32"
DEFAULT = {"word": 32, "bit_axis": "outermost", "reduction_axis": "words"}
WORD = 4


def rows(plan: Plan, resolved: Resolved, pattern: str, threads: int) -> list[dict[str, Any]]:
    """Return a row for every shape among the layers of few bits that a pattern matches, as plain
    data; UserError if none does."""
    layers = _layers(plan, pattern)
    found, pricing = processor(resolved.hardware), pricing_of(resolved.hardware)
    chosen, *_ = emulated_comparison.emulated(plan, resolved, found, pricing)
    default, *_ = emulated_comparison.emulated(
        _by_default(resolved, layers), resolved, found, pricing
    )
    floats = _floats(plan, resolved, found, pricing)
    result = []
    for name, layer in layers.items():
        costs = _loops(layer, resolved, found, pricing, threads)
        shared = 1 / threads
        costs |= {KERNEL: default.layers[name] * shared, PACKED: chosen.layers[name] * shared}
        if name in floats:
            costs[FLOATS] = floats[name] * shared
        told = {what: cost.to_plain() for what, cost in costs.items()}
        result.append({"layer": name, **_told(layer), "costs": told})
    return result


def table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return plain rows as they are shown: modelled kcycles, and how many times as fast as floats.

    Where cycles are not modelled, they are instructions.
    """
    return [
        {"layer": row["layer"], "bits": row["bits"]}
        | {
            what: f"{_figure(cost) / 1e3:.0f}{_times(row['costs'], what)}"
            for what, cost in row["costs"].items()
        }
        for row in rows
    ]


def _figure(cost: Mapping[str, int]) -> int:
    return cost.get("cycles_modelled", cost["instructions_emulated"])


def _times(costs: Mapping[str, Mapping[str, int]], what: str) -> str:
    floats = costs.get(FLOATS)
    if floats is None or what == FLOATS:
        return ""
    return f" ({_figure(floats) / _figure(costs[what]):.2f})"


def _layers(plan: Plan, pattern: str) -> dict[str, ConvolutionShape]:
    """The first layer of every shape."""
    packed = PlanExecution(plan).load(plan.step("bitpacking"))
    names = matching(pattern, [layer.name for layer in layer_kinds.of_model(packed)], "layer")
    found: dict[ConvolutionShape, str] = {}
    for name in names:
        try:
            found.setdefault(layer_of(packed, name), name)
        except UserError:
            if names == [name]:
                raise
    if not found:
        raise UserError(f"primitives={pattern}: none of these layers has a kernel of 1 to 3 bits")
    return {name: layer for layer, name in found.items()}


def _told(layer: ConvolutionShape) -> dict[str, Any]:
    return {
        "bits": f"A{layer.bits[0]}W{layer.bits[1]}",
        "channels": list(layer.channels),
        "window": list(layer.window),
        "strides": list(layer.strides),
        "output": list(layer.output),
        "macs": layer.macs,
    }


def _by_default(resolved: Resolved, layers: Mapping[str, ConvolutionShape]) -> Plan:
    """Build the recipe with the bits of layers packed as they are by default."""
    stated = resolved.recipe.model_dump(mode="json", exclude_defaults=True)
    stated["hardware"] = resolved.board
    stated["package"] = {"name": "by_default", "formats": ["static"]}
    packing = [{"match": name, "packing": DEFAULT} for name in layers]
    stated["layers"] = [*stated.get("layers", []), *packing]
    recipe = variant_packages.FOLDER / f"{resolved.package}_by_default.yaml"
    atomic.replace(recipe, json.dumps(stated).encode())
    return extra_builds.build_package(recipe)


def _floats(
    plan: Plan, resolved: Resolved, found: Processor, pricing: Pricing
) -> Mapping[str, Cost]:
    """What layers take in our own float32 package, where the network is known in float32."""
    for variant in variants(plan, resolved):
        if variant.precision == "float32" and not variant.is_same:
            made = variant_packages.build_variant(
                "float32", variant.source, variant.form, resolved, "static"
            )
            return emulated_comparison.emulated(made, resolved, found, pricing)[0].layers
    return {}


def _loops(
    layer: ConvolutionShape, resolved: Resolved, found: Processor, pricing: Pricing, threads: int
) -> dict[str, Cost]:
    """What loops take with one primitive more at a time, and a thread's part of the last ones."""
    hardware, size = resolved.hardware, len(PRIMITIVES)
    rows = -(-layer.output[0] // threads)
    functions = {f"steps{n}": loops(f"steps{n}", layer, hardware, n) for n in range(size)}
    functions["part"] = loops("part", layer, hardware, size - 1, rows)
    data = WORD * layer.bits[0] * layer.size[0] * layer.size[1] * layer.words
    weights = WORD * layer.bits[1] * layer.words * layer.channels[1]
    weights *= layer.window[0] * layer.window[1]
    sums = WORD * layer.output[0] * layer.output[1] * layer.channels[1]
    defined = {
        "DECLARED": " ".join(f"function {name};" for name in functions),
        "FUNCTIONS": ",".join(functions),
        "BYTES": f"{data},{weights},{sums}",
    }
    with tempfile.TemporaryDirectory(prefix="bitkiln-emulating-") as name:
        folder = Path(name)
        (folder / "loops.o").write_bytes(compile_object(functions, hardware))
        made = linked_program.linked("loops.c", defined, folder / "loops.o", hardware, folder)
        command = [str(made), str(folder / "sums")]
        intervals = count(
            command, architecture=hardware.architecture, cpu=found.qemu, memory=pricing.memory
        )
        _check((folder / "sums").read_bytes(), sums, rows * sums // layer.output[0])
    titles = (*PRIMITIVES, f"+ {threads} threads")
    return pricing.costs(dict(zip(titles, intervals, strict=True)))


def _check(data: bytes, size: int, part: int) -> None:
    """AssertionError unless all loops have the same sums."""
    every = np.frombuffer(data, np.int32).reshape(-1, size // WORD)
    assert (every[:-1] == every[0]).all(), "a primitive changes sums"
    assert (every[-1, : part // WORD] == every[0, : part // WORD]).all(), "a part has other sums"
