"""Cowan et al., CGO 2020: ResNet-18 of 1 to 3 bits on a Raspberry Pi 3.

Published values are what text and tables state; bars of figures are not read. Figure 8 is among
what is said of `accuracy`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.emulating.emulated_primitives import FLOATS, KERNEL, PACKED
from pipelines.paper import cgo_kernels
from pipelines.paper.emulated_results import cycles, of_litert
from pipelines.paper.figure import CGO, Bars, Figure, Part, Results, Table, mega, times
from pipelines.paper.resnet18 import (
    FLOAT,
    LAYERS,
    RECIPES,
    STEPS,
    WHOLE,
    by_shape,
    in_bytes,
    in_float,
    package,
    without_kernels,
)
from pipelines.reporting.page_parts import Bar

_NOT_A_BOARD = (
    "The source timed a board beside TVM's float32 of 2020; these are modelled cycles, on one "
    "thread, beside our own float32."
)


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


def _figure_4(results: Results) -> list[Part]:
    bars = []
    for bits in ("A1W1", "A2W1", "A2W2"):
        costs = by_shape(results, bits).get("C6", {})
        for name, cost in costs.items() if FLOATS in costs else ():
            ratio = cycles(costs[FLOATS]) / cycles(cost)
            if name != FLOATS:
                kind = "plain" if name in (KERNEL, PACKED) else "float"
                bars.append(Bar(f"{bits}, {name}", ratio, times(ratio), kind))
    title = "layer C6, times as fast as our float32, one primitive more at a time"
    return [Bars(title, bars)] if bars else []


def _figure_7(results: Results) -> list[Part]:
    floats = in_float(results)
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
        bars.append(Bar(f"{bits}, {'micro-kernels' if plain else 'mostly in bytes'}", own, said))
    best = package(results, "A1W1")
    rows = [
        ["fastest quantized network beside float32", "3.9", times(floats / best) if best else ""],
        [
            "micro-kernels beside loops, on average",
            "1.9",
            times(sum(gains) / len(gains)) if gains else "",
        ],
    ]
    return [
        Bars("one inference on one thread", bars),
        Table(["times as fast", "published", "ours"], rows),
    ]


def _figure_9(results: Results) -> list[Part]:
    found = results.get(WHOLE["A2W1"])
    if found is None:
        return []
    sides = {row["layer"]: row["sides"] for row in found.result["layers"]}
    bars = []
    for name, (layer, *_) in LAYERS.items():
        if (other := of_litert(sides[layer])) is not None:
            ratio = other / cycles(sides[layer]["package"])
            bars.append(Bar(f"{name}, {layer}", ratio, f"{times(ratio)} times as fast"))
    return [Bars("A2W1 beside LiteRT's 8-bit kernels (XNNPACK), one thread", bars)] if bars else []


def _figure_10(results: Results) -> list[Part]:
    columns = {bits: _ratios(results, bits) for bits in RECIPES}
    columns = {bits: found for bits, found in columns.items() if len(found) == len(LAYERS)}
    if not columns:
        return []
    rows = [
        [name, LAYERS[name][0], *(_cell(*found[name]) for found in columns.values())]
        for name in LAYERS
    ]
    spread, published = ["ours", ""], ["published", ""]
    for bits, found in columns.items():
        ratios = [ratio for ratio, _ in found.values()]
        spread.append(f"{times(min(ratios))} to {times(max(ratios))}")
        published.append("3.6 to 14.7" if bits == "A1W1" else "")
    heads = ["name", "layer", *columns]
    return [Table(heads, [*rows, spread, published], "times as fast as our float32")]


def _ratios(results: Results, bits: str) -> dict[str, tuple[float, bool]]:
    """By shape: how many times as fast as float32, and whether by 8-bit products."""
    shapes, found = by_shape(results, bits), {}
    for name in LAYERS:
        costs = shapes.get(name)
        if costs is not None and FLOATS in costs:
            found[name] = cycles(costs[FLOATS]) / cycles(costs[PACKED]), False
        elif shapes and (ratio := in_bytes(results, bits, name)) is not None:
            found[name] = ratio, True
    return found


def _cell(ratio: float, is_in_bytes: bool) -> str:
    return f"{times(ratio)} in bytes" if is_in_bytes else times(ratio)


def figures() -> Iterator[Figure]:
    """Yield the tables and figures of the source but Figure 8, in its order."""
    yield Figure(
        "cgo-table-1", CGO, "Table 1", "convolutions of ResNet-18", ("computed",),
        "Eleven shapes; the first layer is left out, as its channels are too few to be packed.",
        "The shapes of the layers that our package computes with few bits.",
        _table_1, (STEPS["A2W1"],),
        boards=("rpi3",),
    )  # fmt: skip
    yield Figure(
        "cgo-table-2", CGO, "Table 2", "seconds to synthesize a micro-kernel", ("measured",),
        "Solving the compute and the reduction sketch, and verifying; the source's machine is not "
        "named. A2W3, A3W2 and A3W3 had no kernel. Numbers as printed: the parts of A3W1 and A1W3 "
        "do not add up to their totals.",
        "The kernel for 8x8 by 8x1 of NEON, its weights bipolar. Compute is the "
        "search for a term plan and its program, verification the proof for all inputs. Builds "
        "choose kernels by cost tables, without trials, so there is no time of scheduling to "
        "compare; `doit tune` makes trials.",
        cgo_kernels.table_2, (cgo_kernels.KERNELS,),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-4", CGO, "Figure 4", "what each scheduling primitive adds", ("modelled",),
        "A quantized network without optimizations is much slower than float32, with almost all of "
        "them faster; a synthesized micro-kernel adds 1.5 to 2.5 times.",
        "Layer C6 on a Raspberry Pi 3 beside our own float32 on four threads. The first four bars "
        "are of one thread, all others of four, which share the work as if they shared no memory.",
        _figure_4, tuple(STEPS[bits] for bits in ("A1W1", "A2W1", "A2W2")),
        boards=("rpi3",),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-6", CGO, "Figure 6", "a micro-kernel of single bits", ("computed",),
        "The synthesized kernel has half of the instructions of TVM's, and is twice as fast.",
        "Counted in the program that our engine synthesizes, and in what LLVM makes of it.",
        cgo_kernels.figure_6, (cgo_kernels.KERNELS,),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-7", CGO, "Figure 7", "ResNet-18 on a Raspberry Pi 3", ("modelled",),
        "Quantized networks are up to 3.9 times as fast as float32; with synthesized micro-kernels "
        "1.9 times as fast, on average, as without. A2W2 without them barely beats float32.",
        "The first and the last layer have 8 bits here, and float32 there. Without micro-kernels: "
        "the package's cycles with those of its layers of few bits replaced by those of loops that "
        "are tiled, vectorized and unrolled, and that compute sums of popcounts alone. "
        + _NOT_A_BOARD,
        _figure_7, (FLOAT, *WHOLE.values(), *STEPS.values()),
        boards=("rpi3",),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-9", CGO, "Figure 9", "A2W1 beside hand-written kernels", ("modelled",),
        "Beside PyTorch's hand-written A2W1 convolutions (Tulloch and Jia): comparable on one "
        "thread, up to 7 times as fast at C5, C8 and C11; 5.3 times on average on four.",
        "That library is not to be had any more. Instead the hand-written kernels that a user "
        "would take today: 8 bits, LiteRT with XNNPACK.",
        _figure_9, (WHOLE["A2W1"],),
        cannot="four threads: the model has one core",
        boards=("rpi3",), peers=("litert",),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-10", CGO, "Figure 10", "layers beside float32", ("modelled",),
        "A1W1 is 3.6 to 14.7 times as fast, more so with more channels.",
        "Each layer of the package, bits packed as the cost tables choose, beside the same layer "
        "of our own float32 package; `in bytes` where 8-bit products are cheaper. " + _NOT_A_BOARD,
        _figure_10, (*STEPS.values(), WHOLE["A3W3"]),
        boards=("rpi3",),
    )  # fmt: skip
    yield Figure(
        "cgo-figure-11", CGO, "Figure 11", "layer C2 at all precisions",
        ("modelled", "measured"),
        "The gain falls fast with bits; at A2W2 it is still considerable. A2W3, A3W2 and A3W3 are "
        "missing.",
        "Speed is modelled for a Raspberry Pi 3, seconds of synthesis are measured.",
        cgo_kernels.figure_11,
        (*STEPS.values(), *cgo_kernels.SINGLE.values(), *cgo_kernels.IN_BYTES.values(),
         cgo_kernels.KERNELS),
        boards=("rpi3",),
    )  # fmt: skip
