"""What trials gain, and what ranking saves of them: `python -m pipelines.tuning.gains LEDGER …`.

From ledgers in which all kernels of some recipes were tried. A recipe's kernels are tried once more
on paper, in three orders: as predicted; as `doit tune` learns with nothing in the ledger; and as it
learns with all other recipes there, of which no layer has the shape of one of these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import UserError, shown
from pipelines.output import printed_tables
from pipelines.tuning import ledger, ranking
from pipelines.tuning.ledger import Trial
from pipelines.tuning.ranking import BY_PREDICTION, Ranking

NEAR = 1.02
"""Of the best kernel's time: what is near enough."""
COUNTS = (1, 2, 4, 8, 16)
"""Trials a layer after which a network is looked at."""
ORDERS = ("predicted", "learned from nothing", "learned from others")
Layer = Sequence[Trial]
"""The trials of one workload, of every kernel once."""


@dataclass(frozen=True)
class Gain:
    """What a recipe's layers need to come near their best, in one order of trials."""

    recipe: str
    order: str
    layers: int
    kernels: int
    """Kernels of all layers."""
    mean: float
    """Trials until a layer is near the best of all its kernels, on average; 0 if the default is."""
    most: float
    """The same for the 90th percentile of layers."""
    after: Mapping[int, float]
    """Trials a layer → time of all kernels together beside the predicted ones'; each shape once."""
    best: float
    """The same once all were tried."""


def gains(trials: Iterable[Trial]) -> list[Gain]:
    """The gains of every recipe, then those of all layers together, in each order."""
    recipes = _recipes(trials)
    ordered: dict[str, list[Layer]] = {order: [] for order in ORDERS}
    found = []
    for name, layers in recipes.items():
        own = {layer[0].workloads[0] for layer in layers}
        each = [layer for others in recipes.values() for layer in others]
        others = [t for layer in each if layer[0].workloads[0] not in own for t in layer]
        tried = _predicted(layers), _learned(layers, []), _learned(layers, others)
        for order, one in zip(ORDERS, tried, strict=True):
            ordered[order] += one
            found.append(_gain(name, order, one))
    if len(recipes) > 1:
        found += [_gain("all", order, layers) for order, layers in ordered.items()]
    return found


def _recipes(trials: Iterable[Trial]) -> dict[str, list[Layer]]:
    """Recipe → its layers that have a choice; a layer belongs to the recipe that tried it."""
    latest: dict[tuple[str, str], dict[str, Trial]] = {}
    for trial in trials:
        if ranking.is_sample(trial):
            latest.setdefault((trial.recipe, trial.workloads[0]), {})[trial.kernel] = trial
    found: dict[str, list[Layer]] = {}
    for (recipe, _), kernels in sorted(latest.items()):
        found.setdefault(recipe, []).append(list(kernels.values()))
    return found


def _predicted(layers: Sequence[Layer]) -> list[Layer]:
    return [sorted(layer, key=partial(_score, BY_PREDICTION)) for layer in layers]


def _learned(layers: Sequence[Layer], known: Sequence[Trial]) -> list[Layer]:
    """Layers in the order in which `doit tune` tries their kernels, one of each in turn."""
    tried: list[list[Trial]] = [[] for _ in layers]
    left = [list(layer) for layer in layers]
    by = ranking.fit(known)
    for number in range(max(map(len, layers))):
        if ranking.is_time(number):
            by = ranking.fit([*known, *(trial for layer in tried for trial in layer)])
        for done, rest in zip(tried, left, strict=True):
            if rest:
                done.append(min(rest, key=partial(_score, by)))
                rest.remove(done[-1])
    return list(tried)


def _score(by: Ranking, trial: Trial) -> tuple[float, str]:
    predicted = trial.predicted or 1.0
    return by.score(trial.workloads[0], trial.kernel, trial.against, predicted), trial.kernel


def _gain(recipe: str, order: str, layers: Sequence[Layer]) -> Gain:
    needed = [_trials_needed(layer) for layer in layers]
    seconds = np.array([np.median([t.against_seconds or 0.0 for t in layer]) for layer in layers])

    def after(count: int | None) -> float:
        best = np.array([_best(layer[:count]) for layer in layers])
        return float(seconds @ best / seconds.sum())

    return Gain(
        recipe,
        order,
        len(layers),
        sum(map(len, layers)),
        float(np.mean(needed)),
        float(np.percentile(needed, 90)),
        {count: after(count) for count in COUNTS},
        after(None),
    )


def _best(tried: Iterable[Trial]) -> float:
    """The least time beside the default's, which is tried already."""
    return min([1.0, *(trial.ratio or 1.0 for trial in tried)])


def _trials_needed(layer: Layer) -> int:
    wanted = NEAR * _best(layer)
    return next(n for n in range(len(layer) + 1) if _best(layer[:n]) <= wanted)


def read(files: Iterable[Path]) -> list[Trial]:
    """The trials of ledgers; UserError where a file cannot be read, or has none of use."""
    found = []
    for file in files:
        try:
            found += [line for line in ledger.lines_of(file) if isinstance(line, Trial)]
        except OSError as error:
            raise UserError(f"{shown(file)}: {error.strerror}") from error
    if not any(map(ranking.is_sample, found)):
        raise UserError(
            "no trial says what was predicted of a kernel; run: doit tune recipe=NAME "
            "schedule.trials=1000"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the gains from the ledgers that are named."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.tuning.gains", description=__doc__)
    parser.add_argument("ledger", nargs="+", type=Path, help="a file of trials")
    try:
        found = gains(read(parser.parse_args(arguments).ledger))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = [_row(gain) for gain in found]
    title = "trials until a layer is within 2 % of its best kernel, and time after so many"
    printed_tables.show(title, rows, list(rows[0]))
    return 0


def _row(gain: Gain) -> dict[str, Any]:
    return {
        "recipe": gain.recipe,
        "layers": gain.layers,
        "kernels": gain.kernels,
        "order": gain.order,
        "trials": f"{gain.mean:.1f}",
        "90 %": f"{gain.most:.0f}",
        **{f"after {count}": f"{ratio:.3f}" for count, ratio in gain.after.items()},
        "all": f"{gain.best:.3f}",
    }


if __name__ == "__main__":
    sys.exit(main())
