"""Cowan et al., CGO 2020, on micro-kernels: Table 2, Figures 6 and 11."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.emulating.emulated_primitives import FLOATS, PACKED
from pipelines.paper.emulated_results import cycles, of_layer
from pipelines.paper.figure import Bars, Part, Results, Table, times
from pipelines.paper.resnet18 import LAYERS, RECIPES, WHOLE, by_shape, threads_of
from pipelines.paper.runs import run
from pipelines.reporting.page_parts import Bar

KERNELS = run("kernels isa=neon_aarch64 core=cortex-a53")
SINGLE = {
    bits: run(
        "bench recipe=resnet18_a2w1_rpi3 primitives=layer1.0.conv1 "
        f"quantization.activations.bits={bits[1]} quantization.weights.bits={bits[3]}"
    )
    for bits in ("A1W3", "A3W1")
}
"""Layer C2 alone, where no whole network of `RECIPES` has the precision."""
IN_BYTES = {
    bits: run(
        "bench recipe=resnet18_a2w1_rpi3 peers=none "
        f"quantization.activations.bits={bits[1]} quantization.weights.bits={bits[3]}",
        has_layers=True,
    )
    for bits in ("A2W3", "A3W2")
} | {"A3W3": WHOLE["A3W3"]}
"""The networks whose layer C2 runs as 8-bit products, because these are cheaper on this core."""

SYNTHESIS: Mapping[str, tuple[float, float, float, float, int]] = {
    "A1W1": (2.4, 9.0, 5.8, 17.2, 344),
    "A2W1": (21.0, 13.9, 10.6, 45.5, 328),
    "A1W2": (62.2, 12.7, 15.2, 90.1, 352),
    "A3W1": (62.2, 18.9, 15.2, 158.3, 435),
    "A1W3": (63.8, 32.1, 15.4, 109.7, 460),
    "A2W2": (90.4, 52.4, 15.5, 158.3, 334),
}
"""Table 2, seconds: compute, reduction, verification, their total, scheduling. As printed: the
parts of A3W1 do not add up to its total."""


def _in_full(results: Results, kernel: str = "8x8 by 8x1") -> dict[str, Mapping[str, Any]]:
    """The kernels that reduce in one call, at the source's encoding, by precision."""
    found = results.get(KERNELS)
    rows = found.result["full"] if found else []
    return {
        row["configuration"]: row
        for row in rows
        if row["kernel"] == kernel and row["encoding"] == "hybrid"
    }


def table_2(results: Results) -> list[Part]:
    """Seconds of synthesis, step by step: published, then ours."""
    ours = _in_full(results)
    rows = []
    for bits, row in ours.items():
        published = SYNTHESIS.get(bits)
        said = [f"{value:.1f}" for value in published[:4]] if published else ["none"] * 4
        compute = row["synthesis_s"] - row["reduction_s"]
        own = (compute, row["reduction_s"], row["proof_s"], row["synthesis_s"] + row["proof_s"])
        cells = [f"{a} / {b:.3f}" for a, b in zip(said, own, strict=True)]
        rows.append([bits, *cells, str(published[4]) if published else "none"])
    timed = ("compute", "reduction", "verification", "total")
    heads = ["precision", *timed, "scheduling, published"]
    return [Table(heads, rows, "seconds, published / ours")] if rows else []


def figure_6(results: Results) -> list[Part]:
    """Instructions of the kernel of single bits, and which kernels packages have."""
    row = _in_full(results).get("A1W1")
    found = results.get(KERNELS)
    if row is None or found is None:
        return []
    total = row["after_llvm"] + row["copies"] + row["loads"] + row["stores"]
    carried = next(
        each
        for each in found.result["carried"]
        if each["configuration"] == "A1W1" and each["encoding"] == "hybrid"
    )
    bars = [
        Bar("TVM's tensorization, published", 49, "49 instructions", "float"),
        Bar("synthesized, published", 24, "24 instructions", "float"),
        Bar("ours, after LLVM", total, f"{total} instructions, loads and stores among them"),
        Bar(
            "ours, as synthesized",
            row["instructions"],
            f"{row['instructions']} instructions, without loads and stores",
        ),
    ]
    said = Table(
        ["kernel", "runs in a package", "why"],
        [
            [f"8x8 by 8x1, A1W1 ({row['instructions']} instructions)", "no",
             "it adds counters up within each call; no package has it"],
            [f"{carried['tile']} pixels by channels, A1W1, {carried['plan']}", "yes",
             "the cheapest: it carries counters from word to word and adds up once a pixel, "
             f"{carried['cycles_per_1000_macs']} cycles predicted for 1,000 multiply-accumulates"],
        ],
    )  # fmt: skip
    return [Bars("instructions of the micro-kernel for 8x8 by 8x1 of single bits", bars), said]


def figure_11(results: Results) -> list[Part]:
    """Layer C2 beside float32 at all precisions, and seconds of synthesis."""
    costs = by_shape(results, "A1W1").get("C2", {})
    if FLOATS not in costs:
        return []
    floats = cycles(costs[FLOATS]) * threads_of(costs)
    bars, rows, synthesis = [], [], _in_full(results)
    for n, m in ((n, m) for n in (1, 2, 3) for m in (1, 2, 3)):
        bits = f"A{n}W{m}"
        own, how = _c2(results, bits)
        if own is not None:
            bars.append(Bar(bits, floats / own, f"{times(floats / own)} times as fast, by {how}"))
        if bits in synthesis:
            published, row = SYNTHESIS.get(bits), synthesis[bits]
            seconds = row["synthesis_s"] + row["proof_s"]
            said = f"{published[3]:.1f}" if published else "no kernel"
            rows.append([bits, said, f"{seconds:.3f}"])
    return [
        Bars("layer C2 beside our float32, one thread", bars),
        Table(["precision", "published", "ours"], rows, "seconds of synthesis and proof"),
    ]


def _c2(results: Results, bits: str) -> tuple[float | None, str]:
    """Return what layer C2 takes in the package on one thread, if known, and how it runs."""
    if bits in IN_BYTES:
        return of_layer(results.get(IN_BYTES[bits]), LAYERS["C2"][0]), "8-bit products"
    if bits in RECIPES:
        row = by_shape(results, bits).get("C2")
    else:
        single = results.get(SINGLE[bits])
        row = single.result["primitives"][0]["costs"] if single else None
    own = cycles(row[PACKED]) * threads_of(row) if row is not None else None
    return own, "bits"
