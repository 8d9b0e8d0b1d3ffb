"""Cowan et al., CGO 2020: ResNet-18 of 1 to 3 bits on a Raspberry Pi 3.

The board is modelled: instructions are those of the package under QEMU, cycles those of the model
of its Cortex-A53. Published values are what text and tables state; bars of figures are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.emulating.primitives import FLOATS, KERNEL, PACKED
from pipelines.emulating.telling import CYCLES
from pipelines.paper.figure import CGO, Bars, Figure, Part, Results, Table, geomean, mega, times
from pipelines.paper.runs import Run, run
from pipelines.reporting.parts import Bar

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


WHOLE = {bits: run(f"bench {words}") for bits, words in RECIPES.items()}
STEPS = {bits: _words(bits, _IN_FULL) for bits in RECIPES}
FLOAT = run("bench recipe=resnet18_a2w1_rpi3 peers=none own=float32")
KERNELS = run("kernels isa=neon_aarch64 core=cortex-a53")
_SINGLE = {
    f"A{n}W{m}": run(
        "bench recipe=resnet18_a2w1_rpi3 primitives=layer1.0.conv1 "
        f"quantization.activations.bits={n} quantization.weights.bits={m}"
    )
    for n, m in ((1, 3), (2, 3), (3, 1), (3, 2))
}
"""Layer C2 alone, at the precisions that no whole network above has."""

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


def cycles(cost: Mapping[str, Any]) -> float:
    """Modelled cycles of a cost; instructions where cycles are not modelled."""
    return float(cost.get(CYCLES, cost["instructions_emulated"]))


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


# -- Table 1 ------------------------------------------------------------------------------------


def _table_1(results: Results) -> list[Part]:
    found = results.get(STEPS["A2W1"])
    if found is None:
        return []
    ours = {row["layer"]: row for row in found.result["primitives"]}
    rows = []
    for name, (layer, size, channels, window, stride) in LAYERS.items():
        row = ours[layer]
        height = row["output"][0] * row["strides"][0]
        own = _shape(height, (row["channels"][0], row["channels"][1]), row["window"][0],
                     row["strides"][0])  # fmt: skip
        published = _shape(size, channels, window, stride)
        same = "the same" if own == published else own
        rows.append([name, published, layer, same, f"{row['macs'] / 1e6:.1f}"])
    return [Table(["name", "published: H, W; IC, OC; K, S", "layer", "ours", "MMAC"], rows)]


def _shape(size: int, channels: tuple[int, int], window: int, stride: int) -> str:
    return f"{size}, {size}; {channels[0]}, {channels[1]}; {window}, {stride}"


# -- Table 2, Figures 6 and 11 --------------------------------------------------------------------


def _in_full(results: Results, kernel: str = "8x8 by 8x1") -> dict[str, Mapping[str, Any]]:
    """The kernels that reduce in one call, at the source's encoding, by precision."""
    found = results.get(KERNELS)
    rows = found.result["full"] if found else []
    return {
        row["configuration"]: row
        for row in rows
        if row["kernel"] == kernel and row["encoding"] == "hybrid"
    }


def _table_2(results: Results) -> list[Part]:
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


def _figure_6(results: Results) -> list[Part]:
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
        Bar("ours, as synthesized", row["instructions"], f"{row['instructions']} instructions"),
        Bar("ours, after LLVM", total, f"{total} instructions, loads and stores among them"),
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


def _figure_11(results: Results) -> list[Part]:
    synthesis, found = _in_full(results), {}
    for n in (1, 2, 3):
        for m in (1, 2, 3):
            costs = _single(results, f"A{n}W{m}")
            if costs is not None and FLOATS in costs:
                found[f"A{n}W{m}"] = cycles(costs[FLOATS]) / cycles(costs[PACKED])
    bars = [Bar(bits, ratio, f"{times(ratio)} times as fast") for bits, ratio in found.items()]
    rows = []
    for bits, row in synthesis.items():
        seconds = row["synthesis_s"] + row["proof_s"]
        published = SYNTHESIS.get(bits)
        rows.append([
            bits,
            times(found[bits]) if bits in found else "",
            f"{published[3]:.1f}" if published else "no kernel",
            f"{seconds:.3f}",
        ])  # fmt: skip
    parts: list[Part] = [Bars("layer C2 beside our float32", bars)] if bars else []
    heads = ["precision", "times as fast as float32", "synthesis, s, published", "ours"]
    return [*parts, Table(heads, rows)] if rows else parts


def _single(results: Results, bits: str) -> Mapping[str, Any] | None:
    if bits in RECIPES:
        return by_shape(results, bits).get("C2")
    found = results.get(_SINGLE[bits])
    return None if found is None else found.result["primitives"][0]["costs"]


# -- Figures 4, 7, 9 and 10 -----------------------------------------------------------------------


def _figure_4(results: Results) -> list[Part]:
    parts: list[Part] = []
    for bits in ("A1W1", "A2W1", "A2W2"):
        costs = by_shape(results, bits).get("C6")
        if costs is None or FLOATS not in costs:
            continue
        floats = cycles(costs[FLOATS])
        bars = [
            Bar(name, floats / cycles(cost), times(floats / cycles(cost)), _colour(name))
            for name, cost in costs.items()
            if name != FLOATS
        ]
        title = f"layer C6 at {bits}: times as fast as our float32, one primitive more at a time"
        parts.append(Bars(title, bars))
    return parts


def _colour(name: str) -> str:
    return "plain" if name in (KERNEL, PACKED) else "float"


def _threads(costs: Mapping[str, Any]) -> int:
    """The threads that a row's last columns are for: `+ 4 threads` says it."""
    named = (name.split() for name in costs if name.endswith("threads"))
    return next((int(words[1]) for words in named), 1)


def without_kernels(results: Results, bits: str) -> float | None:
    """Return a package's modelled cycles on one thread if its layers of few bits ran as LLVM's
    loops instead of their micro-kernels, or None."""
    total, shapes = package(results, bits), by_shape(results, bits)
    if total is None or not shapes:
        return None
    for name, costs in shapes.items():
        kernel = cycles(costs[PACKED]) * _threads(costs)
        total += ALIKE.get(name, 1) * (cycles(costs["+ unrolling"]) - kernel)
    return total


def _figure_7(results: Results) -> list[Part]:
    floats = _float(results)
    if floats is None:
        return []
    bars, gains = [Bar("float32, ours", floats, f"{mega(floats)} M cycles", "float")], []
    for bits in RECIPES:
        own, plain = package(results, bits), without_kernels(results, bits)
        if own is None:
            continue
        if plain is not None:
            said = f"{mega(plain)} M cycles, {times(floats / plain)} times as fast as float32"
            bars.append(Bar(f"{bits}, loops", plain, said, "float"))
            gains.append(plain / own)
        said = f"{mega(own)} M cycles, {times(floats / own)} times as fast as float32"
        bars.append(Bar(f"{bits}, micro-kernels", own, said))
    best = package(results, "A1W1")
    rows = [
        ["fastest quantized network beside float32", "3.9", times(floats / best) if best else ""],
        ["micro-kernels beside loops, mean", "1.9", times(geomean(gains)) if gains else ""],
    ]
    return [
        Bars("one inference on one thread", bars),
        Table(["times as fast", "published", "ours"], rows),
    ]


def _float(results: Results) -> float | None:
    found = results.get(FLOAT)
    if found is None:
        return None
    return next(cycles(row) for row in found.result["rows"] if row["what"] == "bitkiln, float32")


def _figure_9(results: Results) -> list[Part]:
    found = results.get(WHOLE["A2W1"])
    if found is None:
        return []
    sides = {row["layer"]: row["sides"] for row in found.result["layers"]}
    bars = []
    for name, (layer, *_) in LAYERS.items():
        own, other = sides[layer]["package"], _hand_written(sides[layer])
        if other is not None:
            ratio = cycles(other) / cycles(own)
            bars.append(Bar(f"{name}, {layer}", ratio, f"{times(ratio)} times as fast"))
    return [Bars("A2W1 beside LiteRT's 8-bit kernels (XNNPACK), one thread", bars)] if bars else []


def _hand_written(sides: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((cost for side, cost in sides.items() if side.startswith("LiteRT")), None)


def _figure_10(results: Results) -> list[Part]:
    columns = {
        bits: {
            name: cycles(costs[FLOATS]) / cycles(costs[PACKED])
            for name, costs in by_shape(results, bits).items()
            if FLOATS in costs
        }
        for bits in RECIPES
    }
    columns = {bits: found for bits, found in columns.items() if found}
    if not columns:
        return []
    rows = [
        [name, LAYERS[name][0], *(times(found[name]) for found in columns.values())]
        for name in LAYERS
    ]
    spread = [f"{times(min(f.values()))} to {times(max(f.values()))}" for f in columns.values()]
    published = ["3.6 to 14.7" if bits == "A1W1" else "" for bits in columns]
    rows += [["ours", "", *spread], ["published", "", *published]]
    return [Table(["name", "layer", *columns], rows, "times as fast as our float32")]


def figures() -> Iterator[Figure]:
    """Yield the tables and figures of the source but Figure 8, in its order."""
    yield Figure(
        "cgo-table-1", CGO, "Table 1", "convolutions of ResNet-18", ("computed",),
        "Eleven shapes; the first layer is left out, as its channels are too few to be packed.",
        "The shapes of the layers that our package computes with few bits.",
        _table_1, (STEPS["A2W1"],),
    )  # fmt: skip
    yield Figure(
        "cgo-table-2", CGO, "Table 2", "seconds to synthesize a micro-kernel", ("measured",),
        "Solving the compute and the reduction sketch, and verifying; the source's machine is not "
        "named. A2W3, A3W2 and A3W3 had no kernel.",
        "The kernel for 8x8 by 8x1 of NEON, its weights bipolar, on this processor. Compute is the "
        "search for a term plan and its program, verification the proof for all inputs. Builds "
        "choose kernels by cost tables, without trials, so there is no time of scheduling to "
        "compare; `doit tune` makes trials.",
        _table_2, (KERNELS,),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-4", CGO, "Figure 4", "what each scheduling primitive adds", ("modelled",),
        "A quantized network without optimizations is much slower than float32, with almost all of "
        "them faster; a synthesized micro-kernel adds 1.5 to 2 times.",
        "Layer C6 on a Raspberry Pi 3 beside our own float32 on four threads. The first four bars "
        "are of one thread, all others of four, which share the work as if they shared no memory.",
        _figure_4, tuple(STEPS[bits] for bits in ("A1W1", "A2W1", "A2W2")),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-6", CGO, "Figure 6", "a micro-kernel of single bits", ("computed",),
        "The synthesized kernel has half of the instructions of TVM's, and is twice as fast.",
        "Counted in the program that our engine synthesizes, and in what LLVM makes of it.",
        _figure_6, (KERNELS,),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-7", CGO, "Figure 7", "ResNet-18 on a Raspberry Pi 3", ("modelled",),
        "Quantized networks are up to 3.9 times as fast as float32; with synthesized micro-kernels "
        "1.9 times as fast, on average, as without. A2W2 without them barely beats float32.",
        "The first and the last layer have 8 bits here, and float32 there. Without micro-kernels: "
        "the package's cycles with those of its layers of few bits replaced by those of loops that "
        "are tiled, vectorized and unrolled, and that compute sums of popcounts alone.",
        _figure_7, (FLOAT, *WHOLE.values(), *STEPS.values()),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-9", CGO, "Figure 9", "A2W1 beside hand-written kernels", ("modelled",),
        "Beside PyTorch's hand-written A2W1 convolutions (Tulloch and Jia): comparable on one "
        "thread, up to 7 times as fast at C5, C8 and C11; 5.3 times on average on four.",
        "That library is not to be had any more. Instead the hand-written kernels that a user "
        "would take today: 8 bits, LiteRT with XNNPACK.",
        _figure_9, (WHOLE["A2W1"],),
        cannot="four threads: the model has one core",
    )  # fmt: skip
    yield Figure(
        "cgo-figure-10", CGO, "Figure 10", "layers beside float32", ("modelled",),
        "A1W1 is 3.6 to 14.7 times as fast, more so with more channels.",
        "Each layer of the package, bits packed as the cost tables choose, beside the same layer "
        "of our own float32 package.",
        _figure_10, tuple(STEPS.values()),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-11", CGO, "Figure 11", "layer C2 at all precisions",
        ("modelled", "measured"),
        "The gain falls fast with bits; at A2W2 it is still considerable. A2W3, A3W2 and A3W3 are "
        "missing.",
        "Speed is modelled for a Raspberry Pi 3, seconds of synthesis are measured here.",
        _figure_11, (*STEPS.values(), *_SINGLE.values(), KERNELS),
    )  # fmt: skip
