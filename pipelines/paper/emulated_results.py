"""What results of emulated boards say: modelled cycles of sides, and of single layers."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.emulating.result_tables import CYCLES
from pipelines.paper.runs import Found

LITERT = "LiteRT"


def cycles(cost: Mapping[str, float]) -> float:
    """Return the modelled cycles of a cost; results without are not kept."""
    return float(cost[CYCLES])


def of_layer(found: Found | None, layer: str) -> float | None:
    """Return the cycles of a layer of the package, or None where that is not known."""
    rows = found.result["layers"] if found else []
    return next((cycles(row["sides"]["package"]) for row in rows if row["layer"] == layer), None)


def of_litert(sides: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return LiteRT's cycles among what the sides of a layer take, or None."""
    return next((cycles(cost) for side, cost in sides.items() if side.startswith(LITERT)), None)


def beside_litert(found: Found | None) -> float | None:
    """Return how many times as fast as LiteRT a package is, or None where that is not known."""
    if found is None:
        return None
    own, *others = found.result["rows"]
    lite = of_litert({row["what"]: row for row in others})
    return None if lite is None else lite / cycles(own)
