"""Sections of a report about what quantization saves and what it costs."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.reporting.gathering import Facts
from pipelines.reporting.parts import Bar, bars, mib


def beside_float(facts: Facts) -> Iterable[str]:
    """Weights and memory of the package, and of the same network in float32 as computed."""
    yield "<h2>Weights and memory beside float32</h2>"
    yield (
        '<p class="said">The package\'s bytes are those of its constants and of its arena on one '
        "thread, scratch and padding included. Those of float32 are computed, not measured: 4 "
        "bytes for each constant of the source model, and an arena for the same layers in the same "
        "order with 4 bytes for each element, without scratch or padding.</p>"
    )
    for what, own, in_float in (
        ("weights", facts.weights, facts.float_weights),
        ("memory", facts.arena.size(1), facts.float_arena),
    ):
        ratio = f", {own / in_float:.2f} of float32's" if in_float else ""
        rows = [
            Bar(f"{what}, float32", in_float, f"{mib(in_float)}, computed", "float"),
            Bar(f"{what}, package", own, f"{mib(own)}{ratio}"),
        ]
        yield bars(rows, f"{what} beside float32")
