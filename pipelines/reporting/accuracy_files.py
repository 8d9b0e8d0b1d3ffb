"""Files of `doit accuracy … json=FILE`: rates of whole networks, and what each layer costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, shown

_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Rated:
    """How much of the evaluation data a package got right, beside its source model."""

    recipe: str
    metric: str
    samples: int
    right: int
    rate: float
    reference: str
    reference_right: int
    reference_rate: float
    differing: int
    """Samples whose predictions differ."""


@dataclass(frozen=True)
class LayerCost:
    """The rate with one layer in float32."""

    layer: str
    rate: float
    right: int


@dataclass(frozen=True)
class LayerCosts:
    """What putting layers back into float32, one at a time, gains."""

    recipe: str
    metric: str
    samples: int
    quantized: float
    """The rate with all layers quantized."""
    in_float: float
    """The rate of the float model."""
    layers: tuple[LayerCost, ...]


def read(paths: Sequence[Path]) -> list[Rated | LayerCosts]:
    """Return what files say; UserError for one that is no result of the command."""
    return [_read(path) for path in paths]


def rates(paths: Sequence[Path]) -> dict[str, float]:
    """Return the rates of whole networks, by recipe; UserError as above, and for files of
    layers."""
    found = {}
    for path, said in zip(paths, read(paths), strict=True):
        if isinstance(said, LayerCosts):
            raise UserError(
                f"accuracy={shown(path)}: has the rates of single layers; wanted: what "
                "`doit accuracy … json=FILE` writes without layer="
            )
        found[said.recipe] = said.rate
    return found


def _read(path: Path) -> Rated | LayerCosts:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"has more than {_MOST_BYTES:,} bytes")
        said = json.loads(path.read_bytes())
        return _layers(said) if "layers" in said else _whole(said)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(
            f"accuracy={shown(path)}: is no result of `doit accuracy … json=FILE` "
            f"({type(error).__name__}: {error})"
        ) from error


def _whole(said: Mapping[str, Any]) -> Rated:
    return Rated(
        recipe=str(said["recipe"]),
        metric=str(said["metric"]),
        samples=int(said["samples"]),
        right=int(said["right"]),
        rate=_rate(said["rate"]),
        reference=str(said["reference"]),
        reference_right=int(said["source"]["right"]),
        reference_rate=_rate(said["source"]["rate"]),
        differing=len(said["differing"]),
    )


def _layers(said: Mapping[str, Any]) -> LayerCosts:
    return LayerCosts(
        recipe=str(said["recipe"]),
        metric=str(said["metric"]),
        samples=int(said["samples"]),
        quantized=_rate(said["quantized"]["rate"]),
        in_float=_rate(said["float"]["rate"]),
        layers=tuple(
            LayerCost(str(row["layer"]), _rate(row["rate"]), int(row["right"]))
            for row in said["layers"]
        ),
    )


def _rate(value: Any) -> float:
    """A rate, 0 to 1."""
    rate = float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"{rate:g} is no rate")
    return rate
