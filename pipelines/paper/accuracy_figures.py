"""What the sources say of accuracy: CGO's Figure 8, QNN's Tables I and II.

Data are those at hand: scikit-learn's digits for the trained networks that come with bitkiln, and
whatever labelled data the recipes of the work folder name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.errors import UserError
from pipelines.paper.emulated_results import cycles
from pipelines.paper.figure import CGO, QNN, Figure, Part, Results, Scatter, Table, times
from pipelines.paper.runs import Found, Run, run
from pipelines.recipe import load
from pipelines.reporting import scatter
from pipelines.reporting.scatter import Axes, Point

PUBLISHED: Sequence[tuple[str, str, float, float]] = (
    ("MXNet", "resnet-18", 69.86, 69.76),
    ("MXNet", "resnet-50", 76.16, 76.13),
    ("MXNet", "resnet-50-v1b", 76.56, 76.66),
    ("MXNet", "resnet-101", 76.97, 77.13),
    ("MXNet", "resnet-152", 75.75, 75.99),
    ("MXNet", "inception-v3", 77.28, 77.84),
    ("MXNet", "inception-bn", 71.79, 71.96),
    ("MXNet", "mobilenet-v1", 71.13, 71.27),
    ("MXNet", "mobilenet-v2", 70.35, 70.14),
    ("TFLite", "inception-v1", 69.6, 70.1),
    ("TFLite", "inception-v2", 73.3, 73.5),
    ("TFLite", "inception-v3", 77.3, 77.5),
    ("TFLite", "inception-v4", 79.6, 79.5),
    ("TFLite", "mobilenet-v1", 70.1, 70.0),
    ("TFLite", "mobilenet-v2", 70.8, 70.9),
    ("PyTorch", "resnet-18", 69.63, 69.49),
    ("PyTorch", "resnet-50", 75.84, 75.88),
    ("PyTorch", "inception-v3", 77.28, 77.65),
    ("PyTorch", "googlenet", 69.37, 69.59),
    ("PyTorch", "mobilenet-v2", 70.61, 70.43),
)
"""QNN, Table II, top 1 in percent: framework, network, QNN-TVM, the framework itself."""

DIGITS: Mapping[str, str] = {
    "float32": "digits/digits_float_host",
    "int8": "digits/digits_int8_host",
    **{f"A{n}W{m}": f"digits/digits_a{n}w{m}_host" for n in (1, 2, 3) for m in (1, 2, 3)},
    "A2W2": "digits_a2w2_host",
}
"""The trained networks that come with bitkiln, by precision."""
RATED = {bits: run(f"accuracy recipe={name}") for bits, name in DIGITS.items()}
ON_PI = {
    bits: run(f"bench recipe={name} peers=none hardware=rpi3") for bits, name in DIGITS.items()
}
AXES = Axes("thousand cycles (modelled), one thread", "right answers (measured)", True,
            "{:.2%}".format, "{:,.0f}".format)  # fmt: skip


def figure_8() -> Figure:
    """Return CGO's Figure 8."""
    return Figure(
        "cgo-figure-8", CGO, "Figure 8", "accuracy and time by precision",
        ("measured", "modelled"),
        "ResNet-18 on ImageNet: A2W2 is right 8 points less often than float32 and 1.9 times as "
        "fast, A1W1 another 14 points less and another 2.1 times as fast.",
        "Networks of three convolutions, each trained at its precision on scikit-learn's 8x8 "
        "digits. Accuracy is the package's, measured on 360 digits that training did not see; time "
        "is modelled for a Raspberry Pi 3, one thread.",
        _figure_8, (*RATED.values(), *ON_PI.values()),
        boards=("rpi3",),
    )  # fmt: skip


def tables() -> Iterator[Figure]:
    """Yield QNN's Tables I and II."""
    yield Figure(
        "qnn-table-1", QNN, "Table I", "what is supported", ("stated",),
        "QNN supports all that is listed; TFLite, MXNet and PyTorch each a part.",
        "As the pages of the rooms say. The frameworks' own marks cannot be told apart in the "
        "source's text, so only QNN's stand here.",
        lambda results: [_support()],
    )  # fmt: skip
    runs = _rated_here()
    yield Figure(
        "qnn-table-2", QNN, "Table II", "accuracy beside the source model", ("measured",),
        "Of 20 networks on 10,000 pictures of ImageNet QNN-TVM is within 0.6 points of the "
        "framework, above it or below, as requantization rounds differently.",
        "All recipes of this folder, and those that come with bitkiln, that name labelled data: "
        "the package beside the source model, executed by its framework's rules in NumPy. The "
        "source's networks are not at hand; recipes of your own appear here once they name an "
        "`evaluation`.",
        lambda results: _accuracy(results, runs), tuple(runs.values()),
    )  # fmt: skip


def _figure_8(results: Results) -> list[Part]:
    known = [bits for bits in DIGITS if RATED[bits] in results and ON_PI[bits] in results]
    points = []
    for bits in known:
        rate, took = results[RATED[bits]].result["rate"], _cycles(results[ON_PI[bits]]) / 1e3
        points.append(Point(bits, took, rate, f"{bits}: {rate:.2%}, {took:,.0f} k cycles"))
    if not points:
        return []
    floats, best = results.get(ON_PI["float32"]), scatter.pareto_front(points, AXES)
    rows = [
        [
            point.name,
            f"{point.up:.2%}",
            f"{point.across:,.0f}",
            times(_cycles(floats) / 1e3 / point.across) if floats else "",
            "yes" if point in best else "",
        ]
        for point in sorted(points, key=lambda point: point.across)
    ]
    heads = ["precision", "right", "k cycles", "times as fast as float32", "on the front"]
    return [Scatter("accuracy over time", points, AXES), Table(heads, rows)]


def _cycles(found: Found) -> float:
    return cycles(found.result["rows"][0])


def _support() -> Table:
    rows = [
        ["asymmetric", "yes", "yes: TensorFlow Lite, ONNX, PyTorch, and by calibration"],
        ["symmetric", "yes", "yes: the same, and MXNet"],
        ["a scale a channel", "yes", "yes: the same"],
        ["1 to 3 bits", "no", "yes: QONNX, Larq, BMXNet"],
        ["Intel processors", "yes", "yes: AVX2, AVX-512, VNNI, AMX"],
        ["ARM processors", "yes", "yes: NEON of 32 and 64 bits, dot products, I8MM"],
        ["Nvidia GPUs", "yes", "no"],
    ]
    return Table(["what", "QNN, published", "ours"], rows)


def _rated_here() -> Mapping[str, Run]:
    """The recipes that name labelled data; those that cannot be read are passed over."""
    found: dict[str, Run] = {}
    for name, _ in load.list_recipes():
        try:
            evaluation = load.load_recipe(name).recipe.evaluation
        except UserError:
            continue
        if evaluation is not None:
            found[name] = run(f"accuracy recipe={name}")
    return found


def _accuracy(results: Results, runs: Mapping[str, Run]) -> list[Part]:
    rows = [
        [source, network, f"{own:.2f}%", f"{baseline:.2f}%", f"{own - baseline:+.2f}"]
        for source, network, own, baseline in PUBLISHED
    ]
    own = [_rated(name, results[each].result) for name, each in runs.items() if each in results]
    ours = ["from", "network", "package", "source model", "points"]
    theirs = ["framework", "network", "QNN-TVM", "framework's own", "points"]
    parts: list[Part] = [Table(ours, own, "ours")] if own else []
    return [*parts, Table(theirs, rows, "published, top 1: QNN-TVM beside the framework")]


def _rated(name: str, result: Mapping[str, Any]) -> list[str]:
    own, other = result["rate"], result["source"]["rate"]
    points = 100 * (own - other)
    return ["a recipe", f"{name}, {result['samples']} samples", f"{own:.2%}",
            f"{other:.2%}", f"{points:+.2f}"]  # fmt: skip
