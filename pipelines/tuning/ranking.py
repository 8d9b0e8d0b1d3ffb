"""In which order kernels are tried: as predicted, corrected by what trials told of a machine.

The cost model knows instructions and caches, not all of a core. What it is wrong by, though, is
much alike for kernels that are alike: of one method, of as many pixels, on windows as long. So a
ridge regression (Hoerl and Kennedy, 1970) fits the logarithm of measured / predicted ratios to a
few features of kernel and layer. Where nothing was measured its weights are 0, and the order is
the predicted one. Of kernels, as in AutoTVM (Chen et al., 2018), only the order matters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.tuning import ledger
from pipelines.tuning.ledger import Trial
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.workloads import LayerKernels

Array = np.ndarray[Any, Any]
PENALTY = 3.0
"""For the square of a weight: where three trials tell of a feature, half of that is believed."""
MOST = 0.4
"""A trial that is wrong by more than this beside the others of its layer counts as wrong by this:
by a factor of 1.5. Noise has no limit, and a few such trials would weigh more than all others."""
FASTEST = 0.8
"""Trials weigh as the inverse square of their ratio, for what is slow need not be known as well;
those beyond this ratio weigh no more than it."""
_KERNEL = re.compile(r"(?P<method>.+)_(?P<rows>\d+)x(?P<channels>\d+)_(?P<flush>[a-z]+)_[a-z0-9]+")
_SHAPE = re.compile(
    r"(?P<kh>\d+)x(?P<kw>\d+)s(?P<down>\d+)x(?P<right>\d+)"
    r"_(?P<inputs>\d+)to(?P<outputs>\d+)(?:g(?P<groups>\d+))?_(?P<height>\d+)x(?P<width>\d+)"
)
_WORD, _STEP = re.compile(r"_word(\d+)"), re.compile(r"_(?:by|coupled)(\d+)")
Features = Mapping[str, float]


@dataclass(frozen=True)
class Ranking:
    """Weights of features, per unit of each; none ranks by predicted cycles."""

    weights: Mapping[str, float] = field(default_factory=dict)

    def ordered(self, layer_kernels: LayerKernels, default: str) -> list[KernelCandidate]:
        """The candidates of a layer that fit, those first that are thought to take the least time
        beside the `default` kernel. Equal ones stay in the predicted order."""
        candidates = layer_kernels.ranked()
        if not self.weights:
            return candidates
        cycles = [layer_kernels.workload.cycles(candidate) for candidate in candidates]
        names = [layer_kernels.kernel(candidate) for candidate in candidates]
        workload = layer_kernels.workload.name
        scores = [
            self.score(workload, name, default, count)
            for name, count in zip(names, cycles, strict=True)
        ]
        return [candidates[at] for at in sorted(range(len(candidates)), key=scores.__getitem__)]

    def score(self, workload: str, kernel: str, against: str, predicted: float) -> float:
        """The logarithm of the time that a kernel is thought to take beside another one, from the
        predicted ratio; a factor that all kernels of a workload have in common may be off."""
        found = differences(workload, kernel, against, predicted)
        corrections = (self.weights.get(name, 0.0) * value for name, value in found.items())
        return math.log(predicted) + sum(corrections)


BY_PREDICTION = Ranking()
"""By predicted cycles alone."""


def is_time(number: int) -> bool:
    """Whether it is time to learn, when so many kernels of every layer were tried: 0, 1, 2, 4 …"""
    return number & (number - 1) == 0


def learned(known: Sequence[Trial], hardware: Hardware) -> Ranking:
    """What trials of this machine tell; if there are none, those of machines with the same core."""
    found = fit(known)
    if found.weights:
        return found
    return fit(ledger.trials_of_core(hardware.core, hardware.isa))


def fit(trials: Iterable[Trial]) -> Ranking:
    """Fit the ranking to those trials that tried a kernel alone, on one thread, by its predicted
    loops, and know what was predicted of it.

    Only how kernels of one layer compare matters: what all have in common is taken off first.
    """
    layers: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if is_sample(trial):
            layers.setdefault((trial.workloads[0], trial.against), []).append(trial)
    rows = {layer: [_differences(trial) for trial in found] for layer, found in layers.items()}
    names = sorted({name for found in rows.values() for row in found for name in row})
    if not names:
        return BY_PREDICTION
    column = {name: at for at, name in enumerate(names)}
    normal, told = PENALTY * np.eye(len(names)), np.zeros(len(names))
    for layer, found in layers.items():
        matrix = np.zeros((len(found) + 1, len(names)))  # the default's features are 0
        for number, row in enumerate(rows[layer]):
            for name, value in row.items():
                matrix[number, column[name]] = value
        wrong, weights = _wrong(found)
        matrix -= weights @ matrix / weights.sum()
        normal += matrix.T @ (matrix * weights[:, None])
        told += matrix.T @ (weights * wrong)
    solved = np.linalg.solve(normal, told)
    return Ranking(dict(zip(names, map(float, solved), strict=True)))


def _wrong(layer: Sequence[Trial]) -> tuple[Array, Array]:
    """By what predictions of a layer's kernels, and of its default, are wrong beside each other
    (natural logarithms), and what each weighs."""
    ratios = np.array([*(trial.ratio or 1.0 for trial in layer), 1.0])
    predicted = np.array([*(trial.predicted or 1.0 for trial in layer), 1.0])
    wrong = np.log(ratios / predicted)
    wrong = np.clip(wrong - np.median(wrong), -MOST, MOST)
    weights = np.maximum(ratios, FASTEST) ** -2.0
    weights /= weights.mean()
    return wrong - weights @ wrong / weights.sum(), weights


def is_sample(trial: Trial) -> bool:
    """Whether a trial tells of a kernel alone what it took and what was predicted."""
    stated = trial.order, trial.rows, trial.max_tasks, trial.on_threads
    is_known = trial.ratio is not None and trial.predicted is not None
    return is_known and stated == (None,) * len(stated)


def _differences(trial: Trial) -> dict[str, float]:
    return differences(trial.workloads[0], trial.kernel, trial.against, trial.predicted or 1.0)


def differences(workload: str, kernel: str, against: str, predicted: float) -> dict[str, float]:
    """The features of a kernel less those of the one beside which it is timed."""
    mine, other = features(workload, kernel), features(workload, against)
    names = mine.keys() | other.keys()
    found = {name: mine.get(name, 0.0) - other.get(name, 0.0) for name in sorted(names)}
    found["predicted"] = math.log(predicted)
    return {name: value for name, value in found.items() if value}


@lru_cache(maxsize=4096)
def features(workload: str, kernel: str) -> Features:
    """Numbers that say what kind a kernel is and how its tile suits a layer, by their names.

    Of a name that is not in the grammar there are none.
    """
    tile, shape = _KERNEL.fullmatch(kernel), _SHAPE.fullmatch(workload.split()[-1])
    if tile is None or shape is None:
        return {}
    size = {name: int(value or 1) for name, value in shape.groupdict().items()}
    rows, channels = int(tile["rows"]), int(tile["channels"])
    depth = size["kh"] * size["kw"] * size["inputs"] / size["groups"]
    pixels = size["height"] * size["width"]
    method = tile["method"]
    is_transformed = "winograd" in method
    long, wide = math.log2(depth) - 8, math.log2(rows)
    found = {
        f"is {_stem(method)}": 1.0,
        "rows": wide,
        "rows squared": wide**2,
        "one row": float(rows == 1),
        "channels": math.log2(channels),
        "rows by depth": wide * long,
        "channels by depth": math.log2(channels) * long,
        "rows by pixels": wide * (math.log2(pixels) - 8),
        "left over": math.log2(-(-size["width"] // rows) * rows / size["width"]),
        "left over of all": math.log2(-(-pixels // rows) * rows / pixels),
        "flush": float(tile["flush"] != "none"),
    }
    if is_transformed:
        found["transformed by depth"] = long
        found["transformed by outputs"] = math.log2(size["outputs"]) - 7
        found["transformed by pixels"] = math.log2(pixels) - 8
    if word := _WORD.search(method):
        found["word"] = math.log2(int(word[1]) / 32)
    if step := _STEP.search(method):
        found["step"] = math.log2(int(step[1]))
    if "_inner" in method:
        found["inner"] = 1.0
    return found


def _stem(method: str) -> str:
    """The family of a method and its first part, for example `mac8_dot4`, without its numbers of
    words and how bits are packed."""
    return "_".join(method.split("_")[:2])
