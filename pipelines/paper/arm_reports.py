"""The AliOS report of 2019 and the RFC for Armv8: 8-bit convolutions beside hand-written ones.

QNNPACK, with which AliOS compared, has become part of XNNPACK, which LiteRT runs. Boards are
modelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.paper.emulated_results import beside_litert, cycles, of_litert
from pipelines.paper.figure import ALIOS, RFC, Bars, Figure, Part, Results, Table, geomean, times
from pipelines.paper.qnn import BESIDE_TFLITE
from pipelines.paper.runs import run
from pipelines.reporting.page_parts import Bar

NETWORKS = {
    "MobileNetV1": run("bench recipe=mobilenet_v1_int8_rpi3"),
    "MobileNetV2": run("bench recipe=mobilenet_v2_int8_rpi3", has_layers=True),
}
V2 = NETWORKS["MobileNetV2"]
V3 = BESIDE_TFLITE["inception_v3"]
_OURS = (
    "One inference on one thread on a Raspberry Pi 3, cycles of the model of Cortex-A53, beside "
    "LiteRT 2.3, whose XNNPACK has taken QNNPACK in."
)


def figures() -> Iterator[Figure]:
    """Yield the figures with results of both sources."""
    yield Figure(
        "alios-figure-8", ALIOS, "Figure 8", "convolutions of MobileNetV2", ("modelled",),
        "TVM is faster than QNNPACK with every convolution of MobileNetV2 on a Raspberry Pi 3B+; "
        "by how much stands in the figure alone.",
        _OURS, lambda results: _layers(results, ("1x1", "first convolution")), (V2,),
        boards=("rpi3",), peers=("litert",),
    )  # fmt: skip
    yield Figure(
        "alios-figure-9", ALIOS, "Figure 9", "depthwise convolutions of MobileNetV2",
        ("modelled",),
        "TVM is faster than QNNPACK with most depthwise convolutions; where it is not, they are a "
        "minor share.",
        _OURS, lambda results: _layers(results, ("depthwise",)), (V2,),
        boards=("rpi3",), peers=("litert",),
    )  # fmt: skip
    yield Figure(
        "alios-figure-10", ALIOS, "Figure 10", "networks beside TensorFlow Lite", ("modelled",),
        "MobileNetV2 is 2 times as fast as TensorFlow Lite of 2019; MobileNetV1 and LaneNet stand "
        "in the figure alone.",
        _OURS, _networks, tuple(NETWORKS.values()),
        cannot="LaneNet: a private network",
        boards=("rpi3",), peers=("litert",),
    )  # fmt: skip
    yield Figure(
        "rfc-table", RFC, "its table", "Inception v3 beside TensorFlow Lite", ("modelled",),
        "TVM took 2.77 times as long as TensorFlow Lite without tuning, 2.11 with the schedules of "
        "x86, 1.05 with the proposed ones, on one thread; 1.6 and 1.07 on four. The board is not "
        "named.",
        "One thread on a Raspberry Pi 4, cycles of the model of Cortex-A72, without tuning, beside "
        "LiteRT 2.3.",
        _table, (V3,), cannot="four threads: the model has one core",
        boards=("rpi4",), peers=("litert",),
    )  # fmt: skip


def _layers(results: Results, kinds: tuple[str, ...]) -> list[Part]:
    found = results.get(V2)
    if found is None:
        return []
    bars, shares = [], [0.0, 0.0]
    for row in found.result["layers"]:
        own, lite = row["sides"].get("package"), of_litert(row["sides"])
        if row["kind"] in kinds and own is not None and lite is not None:
            ratio = lite / cycles(own)
            bars.append(Bar(row["layer"], ratio, f"{times(ratio)} times as fast"))
            shares = [shares[0] + cycles(own), shares[1] + lite]
    if not bars:
        return []
    together, mean = shares[1] / shares[0], geomean([bar.value for bar in bars])
    bars += [
        Bar("all of them together", together, f"{times(together)} times as fast"),
        Bar("geometric mean", mean, f"{times(mean)} times as fast"),
    ]
    return [Bars("times as fast as LiteRT", bars)]


def _networks(results: Results) -> list[Part]:
    bars = []
    for name, each in NETWORKS.items():
        if (ratio := beside_litert(results.get(each))) is not None:
            bars.append(Bar(name, ratio, f"{times(ratio)} times as fast"))
    if not bars:
        return []
    bars.append(Bar("MobileNetV2, published", 2.0, "2 times as fast", "float"))
    return [Bars("times as fast as LiteRT (TensorFlow Lite)", bars)]


def _table(results: Results) -> list[Part]:
    ratio = beside_litert(results.get(V3))
    if ratio is None:
        return []
    rows = [
        ["TVM, without tuning, published", "1", "0.3663", "2.77"],
        ["TVM, tuned, schedules of x86, published", "1", "0.4730", "2.11"],
        ["TVM, without tuning, GEMM schedules, published", "1", "0.9541", "1.05"],
        ["TVM, tuned, schedules of x86, published", "4", "0.6176", "1.6"],
        ["TVM, without tuning, GEMM schedules, published", "4", "0.93", "1.07"],
        ["ours, without tuning", "1", f"{ratio:.4f}", f"{1 / ratio:.2f}"],
    ]
    return [Table(["what", "threads", "TFLite's time / its own", "its own / TFLite's"], rows)]
