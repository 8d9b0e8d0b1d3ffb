"""Jain et al., 2020: the QNN dialect on servers and Raspberry Pis.

Servers are this machine, timed; the boards are modelled. Networks have random weights: their time
and memory are those of trained ones, their accuracy means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from pipelines.output import printed_tables
from pipelines.paper.emulated_results import beside_litert, cycles
from pipelines.paper.figure import QNN, Bars, Figure, Part, Results, Table, geomean, times
from pipelines.paper.runs import Found, Run, run
from pipelines.reporting.page_parts import Bar

NETWORKS: Mapping[str, str] = {
    "resnet-18": "resnet18",
    "resnet-50": "resnet50_v1",
    "resnet-50_v1b": "resnet50",
    "resnet-101": "resnet101",
    "resnet-152": "resnet152",
    "inception-v3": "inception_v3",
    "inception-bn": "inception_bn",
    "mobilenet-v1": "mobilenet_v1",
    "mobilenet-v2": "mobilenet_v2",
}
"""The source's networks of MXNet → those made here."""
TFLITE = ("inception_v1", "inception_v2", "inception_v3", "inception_v4",
          "mobilenet_v1", "mobilenet_v2")  # fmt: skip
"""Its networks of TensorFlow Lite."""
BOARDS = {"rpi3": "Raspberry Pi 3", "rpi4": "Raspberry Pi 4"}
IN_FLOAT = {name: zoo for name, zoo in NETWORKS.items() if zoo not in ("resnet101", "resnet152")}
"""Those whose float32 package `bench` takes for right: with random weights the deepest two make
more of rounding than it allows, 1e-4 of the largest value."""
_DEEP = (
    "resnet-101 and resnet-152: with random weights their float32 packages depart from the source "
    "graph by more than `bench` lets pass"
)
HERE: Mapping[str, Run] = {
    name: run(
        f"bench recipe=resnet18_int8_host own={'float32' if name in IN_FLOAT else 'none'} "
        f"model.zoo={zoo}"
    )
    for name, zoo in NETWORKS.items()
}
ON_BOARDS: Mapping[str, Mapping[str, Run]] = {
    board: {
        name: run(f"bench recipe=resnet18_int8_{board} own=float32 peers=none model.zoo={zoo}")
        for name, zoo in IN_FLOAT.items()
    }
    for board in BOARDS
}
SIZES: Mapping[str, Mapping[str, Run]] = {
    where: {
        name: run(f"report recipe=resnet18_int8_{where} model.zoo={zoo}")
        for name, zoo in NETWORKS.items()
    }
    for where in ("host", "rpi3")
}
BESIDE_PYTORCH: Mapping[str, Run] = {
    "resnet-18": HERE["resnet-18"],
    "resnet-50": HERE["resnet-50_v1b"],
    "inception-v3": HERE["inception-v3"],
    "googlenet": run("bench recipe=resnet18_int8_host own=float32 model.zoo=inception_v1"),
    "mobilenet-v2": HERE["mobilenet-v2"],
}
"""Its networks of PyTorch, whose resnet-50 has a block's stride in the 3x3 convolution, as v1b."""
BESIDE_TFLITE: Mapping[str, Run] = {
    zoo: run(f"bench recipe={zoo}_int8_rpi4")
    if zoo.startswith("mobilenet")
    else run(f"bench recipe=resnet18_int8_rpi4 peers=litert model.zoo={zoo}")
    for zoo in TFLITE
}


def figures() -> Iterator[Figure]:
    """Yield the tables and figures of the source, in its order."""
    yield Figure(
        "qnn-figure-4", QNN, "Figure 4", "int8 beside float32 on a server", ("measured",),
        "QNN-int8 is 2.35 times as fast as TVM-fp32 on an Intel Cascade Lake of 24 cores, the "
        "geometric mean of nine networks, less for resnet-152 and the mobilenets; 2.13 on an "
        "Nvidia T4.",
        "Our int8 package beside our float32 package of the same network, in turns, on all threads "
        "of the processor that is named.",
        _figure_4, tuple(HERE[name] for name in IN_FLOAT),
        cannot=f"GPUs: packages are for processors; {_DEEP}",
    )  # fmt: skip
    yield Figure(
        "qnn-figure-5", QNN, "Figure 5", "int8 beside float32 on Raspberry Pis", ("modelled",),
        "QNN-int8 is 1.35 times as fast as TVM-fp32 on a Raspberry Pi 3 and 1.40 on a Raspberry "
        "Pi 4, the geometric mean; on the first resnet-152 did not fit the memory in float32.",
        "Our int8 package beside our float32 package, one inference on one thread, cycles of the "
        "models of Cortex-A53 and Cortex-A72.",
        _figure_5, tuple(run for runs in ON_BOARDS.values() for run in runs.values()),
        boards=("rpi3", "rpi4"), cannot=_DEEP,
    )  # fmt: skip
    yield Figure(
        "qnn-figure-6", QNN, "Figure 6", "memory beside float32", ("computed",),
        "On servers int8 takes 67 to 74 % less than float32, weights and intermediate maps "
        "together; on the Raspberry Pis weights are kept in 16 bits, so it is 50 %. Mobilenets "
        "take 33 % of float32's.",
        "Bytes of the package's constants and of its arena on one thread, with scratch and "
        "padding. Those of float32 are 4 bytes for each constant and each element of the same "
        "layers. Layers that Winograd's algorithm computes keep transformed weights, six or eight "
        "times as large, which is what their speed costs; `algorithm: mac8` does without.",
        _figure_6, tuple(run for runs in SIZES.values() for run in runs.values()),
    )  # fmt: skip
    yield Figure(
        "qnn-figure-7", QNN, "Figure 7", "beside oneDNN on a server", ("measured",),
        "QNN-int8 is 1.09 times as fast as MXNet with Intel DNNL on Cascade Lake, the geometric "
        "mean, 1.43 for inception-bn, slower for both resnet-50.",
        "MXNet is no longer developed. oneDNN, as DNNL is called now, runs in OpenVINO; ONNX "
        "Runtime stands beside it. The same QDQ file for all, on all threads of the processor.",
        _figure_7, tuple(HERE.values()),
        peers=("openvino", "onnxruntime"),
    )  # fmt: skip
    yield Figure(
        "qnn-figure-8", QNN, "Figure 8", "beside TensorFlow Lite on a Raspberry Pi 4",
        ("modelled",),
        "QNN-TVM is slower than TensorFlow Lite with all six networks: it takes 1.16 times as "
        "long, the geometric mean.",
        "LiteRT 2.3 with XNNPACK, one inference on one thread, cycles of the model of Cortex-A72. "
        "It runs the network's TensorFlow Lite twin.",
        _figure_8, tuple(BESIDE_TFLITE.values()),
        boards=("rpi4",), peers=("litert",),
    )  # fmt: skip
    yield Figure(
        "qnn-figure-9", QNN, "Figure 9", "beside PyTorch on a server", ("measured",),
        "QNN-int8 is 7.85 times as fast as PyTorch with FBGEMM on Cascade Lake on average, 12.2 "
        "for resnet-18. On a Raspberry Pi 4, beside QNNPACK, it is 20 % slower on one thread and "
        "2.95 times as fast on four, of which PyTorch uses one.",
        "Today's PyTorch, where it is installed, in TorchScript, with its default engine x86: "
        "oneDNN's kernels where the processor has AVX512-VNNI, FBGEMM's elsewhere and for "
        "depthwise layers. It runs the QDQ file's twin in its own quantized operators. Inception "
        "v1 stands for googlenet, which has 3x3 kernels for 5x5 ones. PyTorch's threads spin while "
        "they wait for one another: if other programs run as well, its times on several threads "
        "say little of it, and those on one thread say more.",
        _figure_9, tuple(BESIDE_PYTORCH.values()),
        cannot="the Raspberry Pi 4: PyTorch is not among the engines that are emulated",
        peers=("torch",),
    )  # fmt: skip


class Row(TypedDict):
    """A side of `doit bench`, as its result says it."""

    what: str
    median_ms: float


class Timed(TypedDict):
    """What was timed with so many threads."""

    threads: int
    rows: Sequence[Row]


def part_of(found: Found, threads: int | None = None) -> Timed:
    """Return what was timed with the most threads, or with so many."""
    parts: dict[int, Timed] = {part["threads"]: part for part in found.result["threads"]}
    return parts[threads or max(parts)]


def median(part: Timed, side: str) -> float | None:
    """Return the median of a side whose name ends so, in milliseconds, or None."""
    rows = (row for row in part["rows"] if row["what"] == side or row["what"].endswith(side))
    return next((float(row["median_ms"]) for row in rows), None)


def _with_mean(ratios: Mapping[str, float], said: str, published: float | None, where: str) -> Bars:
    """Bars of networks, then their mean and, if there is one, the published mean."""
    bars = [Bar(name, ratio, f"{times(ratio)} {said}") for name, ratio in ratios.items()]
    mean = geomean([*ratios.values()])
    bars.append(Bar(f"geometric mean of these {len(ratios)}", mean, f"{times(mean)} {said}"))
    if published is not None:
        bars.append(Bar("published, of all", published, f"{times(published)} {said}", "float"))
    return Bars(where, bars)


def _figure_4(results: Results) -> list[Part]:
    ratios = {}
    for name, each in HERE.items():
        if (found := results.get(each)) is not None:
            part = part_of(found)
            own, floats = median(part, "package"), median(part, "bitkiln, float32")
            if own and floats:
                ratios[name] = floats / own
    return [_with_mean(ratios, "times as fast", 2.35, _machine(results, HERE))] if ratios else []


def _machine(results: Results, runs: Mapping[str, Run], threads: int | None = None) -> str:
    """Where results were measured: processor and threads, of the first of them."""
    found = next(results[each] for each in runs.values() if each in results)
    count = part_of(found, threads)["threads"]
    return f"{found.processor}, {count} thread{'s' if count > 1 else ''}"


def _figure_5(results: Results) -> list[Part]:
    parts: list[Part] = []
    for (board, title), published in zip(BOARDS.items(), (1.35, 1.40), strict=True):
        ratios = {}
        for name, each in ON_BOARDS[board].items():
            if (found := results.get(each)) is not None:
                rows = {row["what"]: cycles(row) for row in found.result["rows"]}
                ratios[name] = rows["bitkiln, float32"] / rows["package"]
        if ratios:
            parts.append(_with_mean(ratios, "times as fast", published, title))
    return parts


def _figure_6(results: Results) -> list[Part]:
    heads = ["network", "weights", "feature maps", "float32, both",
             "weights + maps, of float32", "both, of float32"]  # fmt: skip
    parts: list[Part] = []
    for where, runs in SIZES.items():
        rows = [_memory(name, results[each].result) for name, each in runs.items()
                if each in results]  # fmt: skip
        if rows:
            published = "26 to 33 %" if where == "host" else "50 %"
            rows.append(["published", "", "", "", "", published])
            title = "this machine" if where == "host" else BOARDS[where]
            parts.append(Table(heads, rows, title))
    return parts


def _memory(name: str, sizes: Mapping[str, int]) -> list[str]:
    weights, maps = sizes["weights_bytes"], sizes["memory_bytes"]
    floats = sizes["float_weights_bytes"] + sizes["float_memory_bytes"]
    each = f"{weights / floats:.0%} + {maps / floats:.0%}"
    shown = [printed_tables.size(size) for size in (weights, maps, floats)]
    return [name, *shown, each, f"{(weights + maps) / floats:.0%}"]


def _figure_7(results: Results) -> list[Part]:
    parts: list[Part] = []
    for engine, published in (("OpenVINO", 1.09), ("ONNX Runtime", None)):
        parts += _beside(engine, results, HERE, published)
    return parts


def _beside(
    engine: str,
    results: Results,
    runs: Mapping[str, Run],
    published: float | None,
    threads: int | None = None,
) -> list[Part]:
    """Bars of how many times as fast as an engine the package is, in 8 bits, if anything is known.

    With the most threads, or with so many. Without a published mean no such bar is drawn.
    """
    ratios = {}
    for name, each in runs.items():
        if (found := results.get(each)) is not None:
            part = part_of(found, threads)
            own, other = median(part, "package"), _engine(part, engine)
            if own and other:
                ratios[name] = other / own
    if not ratios:
        return []
    title = f"int8, beside {engine}: {_machine(results, runs, threads)}"
    return [_with_mean(ratios, "times as fast", published, title)]


def _engine(part: Timed, engine: str) -> float | None:
    rows = (r for r in part["rows"] if r["what"].startswith(engine) and r["what"].endswith("int8"))
    return next((float(row["median_ms"]) for row in rows), None)


def _figure_8(results: Results) -> list[Part]:
    known = {name: beside_litert(results.get(each)) for name, each in BESIDE_TFLITE.items()}
    ratios = {name: ratio for name, ratio in known.items() if ratio is not None}
    title = "times as fast as LiteRT, Raspberry Pi 4"
    return [_with_mean(ratios, "times as fast", 1 / 1.16, title)] if ratios else []


def _figure_9(results: Results) -> list[Part]:
    on_all = _beside("PyTorch", results, BESIDE_PYTORCH, 7.85)
    return on_all + _beside("PyTorch", results, BESIDE_PYTORCH, None, threads=1)
