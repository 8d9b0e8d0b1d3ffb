"""Sections of a report about what quantization saves and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypedDict

from pipelines.output import printed_tables
from pipelines.reporting.accuracy_files import LayerCosts, Rated
from pipelines.reporting.page_parts import Bar, bars, table
from pipelines.reporting.report_facts import Facts

MOST_ROWS = 24
"""Rows of a table that is shown without being asked for."""


class LayerError(TypedDict):
    """How far a layer is from float32 (`evaluation.layer_errors`)."""

    layer: str
    snr_db: float | None
    """Signal over noise; None where nothing differs, or all is noise."""
    is_exact: bool
    cosine: float


def beside_float(facts: Facts, library: int | None) -> Iterable[str]:
    """Weights, library and memory of the package, and of the same network in float32 as computed.

    `library` has the bytes of the shared library, if there is one.
    """
    yield "<h2>Weights, library and memory beside float32</h2>"
    yield (
        '<p class="said">The package\'s bytes are those of its constants and of its arena on one '
        "thread, scratch and padding included. Those of float32 are computed, not measured: 4 "
        "bytes for each constant of the source model, the same library with these in place of its "
        "constants, and an arena for the same layers in the same "
        "order with 4 bytes for each element, without scratch or padding.</p>"
    )
    others = 0 if library is None else library - facts.weights
    for what, own, in_float in (
        ("weights", facts.weights, facts.float_weights),
        *([] if library is None else [("library", library, others + facts.float_weights)]),
        ("memory", facts.arena.size(1), facts.float_arena),
    ):
        ratio = f", {own / in_float:.2f} of float32's" if in_float else ""
        rows = [
            Bar(
                f"{what}, float32", in_float, f"{printed_tables.size(in_float)}, computed", "float"
            ),
            Bar(f"{what}, package", own, f"{printed_tables.size(own)}{ratio}"),
        ]
        yield bars(rows, f"{what} beside float32")


def accuracy(rated: Sequence[Rated | LayerCosts]) -> Iterable[str]:
    """Rates of right answers, if some were measured."""
    rows = []
    for each in rated:
        if isinstance(each, Rated):
            count = f"{each.samples:,}"
            rows.append(["package", each.metric, f"{each.rate:.2%}", f"{each.right:,}", count, ""])
            rows.append(
                [each.reference, each.metric, f"{each.reference_rate:.2%}",
                 f"{each.reference_right:,}", count, f"{each.differing:,}"]
            )  # fmt: skip
    if rows:
        titles = ["what", "metric", "rate", "right", "samples", "differing"]
        yield "<h2>Accuracy</h2>"
        yield (
            '<p class="said">Measured by <code>doit accuracy</code> on the evaluation data; '
            "differing are the samples for which both predict another class.</p>"
        )
        yield table(titles, rows, {2, 3, 4, 5})


def errors(found: Mapping[str, Any] | None) -> Iterable[str]:
    """How far the layers are from float32, if the network was quantized here."""
    if found is None:
        return
    layers, count = found["layers"], found["samples"]
    most = max((row["snr_db"] for row in layers if row["snr_db"] is not None), default=1.0)
    wrong = [number for number, row in enumerate(layers) if not row["is_exact"]]
    worst = min(wrong, key=lambda number: _decibels(layers[number], most), default=None)
    said = ""
    if worst is not None:
        said = f"Worst: {escape(layers[worst]['layer'])}, {_snr(layers[worst])}. "
    yield "<h2>Error by layer</h2>"
    yield (
        '<p class="said">What each layer gives in the network with its quantizers beside the same '
        "layer of the float model: signal over noise in decibels, less is worse, and the cosine of "
        f"the angle between both. Computed in NumPy on {count} of the calibration "
        f"sample{'s' if count != 1 else ''}. Layers read what the quantized ones before them give, "
        f"so errors add up. {said}The outputs of the integer network: "
        f"{_snr(found['output'])}, cosine {found['output']['cosine']:.5f}.</p>"
    )
    yield bars(
        [
            Bar(row["layer"], _decibels(row, most), _snr(row),
                "worst" if number == worst else "plain")
            for number, row in enumerate(layers)
        ],
        "signal over noise by layer",
    )  # fmt: skip
    rows = [
        [row["layer"], "" if row["weight_bits"] is None else row["weight_bits"], _snr(row),
         f"{row['cosine']:.5f}"]
        for row in layers
    ]  # fmt: skip
    titles = ["layer", "bits of weights", "signal over noise", "cosine"]
    yield _folded(rows, table(titles, rows, {1, 2, 3}, marked=worst))


def costs(rated: Sequence[Rated | LayerCosts]) -> Iterable[str]:
    """What each layer costs in accuracy, if that was measured."""
    for each in rated:
        if not isinstance(each, LayerCosts):
            continue
        gains = [100 * (row.rate - each.quantized) for row in each.layers]
        best = max(gains, default=0.0)
        yield "<h2>What each layer costs in accuracy</h2>"
        yield (
            f'<p class="said">What {escape(each.metric)} gains where one layer alone is put back '
            f"into float32 and all others stay quantized, over {each.samples:,} samples of the "
            f"evaluation data. All quantized: {each.quantized:.2%}; the float model: "
            f"{each.in_float:.2%}.</p>"
        )
        yield bars(
            [
                Bar(row.layer, gain, f"{gain:+.2f} points",
                    "worst" if gain == best and best > 0 else "plain")
                for row, gain in zip(each.layers, gains, strict=True)
            ],
            "points gained by layer",
        )  # fmt: skip
        rows = [
            [row.layer, f"{row.rate:.2%}", f"{row.right:,}", f"{gain:+.2f}"]
            for row, gain in zip(each.layers, gains, strict=True)
        ]
        marked = gains.index(best) if best > 0 else None
        titles = ["layer in float32", "rate", "right", "points"]
        yield _folded(rows, table(titles, rows, {1, 2, 3}, marked=marked))


def _folded(rows: Sequence[object], text: str) -> str:
    """A table, folded away if it is long: the bars above say the same."""
    if len(rows) <= MOST_ROWS:
        return text
    return f"<details><summary>the same as a table</summary>{text}</details>"


def _snr(row: LayerError) -> str:
    if row["snr_db"] is None:
        return "no difference" if row["is_exact"] else "noise alone"
    return f"{row['snr_db']:.1f} dB"


def _decibels(row: LayerError, most: float) -> float:
    """How long a layer's bar is: `most` where nothing differs, nothing where all is noise."""
    if row["snr_db"] is None:
        return most if row["is_exact"] else -math.inf
    return float(row["snr_db"])
