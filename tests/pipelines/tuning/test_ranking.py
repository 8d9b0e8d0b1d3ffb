"""Ranking: as predicted where nothing was measured, and the best first where trials tell of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tuning import ledger, ranking
from pipelines.tuning.candidates import Candidate, TunedWorkload
from pipelines.tuning.ledger import Machine, Trial
from pipelines.tuning.ranking import BY_PREDICTION, features, fit, learned
from stages.kernels.families import Dots, PairedDots
from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.selection import ranked
from stages.kernels.signature import KernelSignature
from stages.kernels.workloads import LayerKernels, Workload
from tests.pipelines.tuning.test_ledger import HERE, trial
from tests.targets import AVX2

TILES = [(rows, channels) for channels in (32, 16) for rows in (1, 2, 3, 4, 6)]
SHAPES = [
    Geometry((size, size), channels, width, width)
    for size, channels, width in ((3, 64, 56), (1, 128, 28), (3, 256, 14), (1, 512, 8))
]
METHODS = Dots(4), PairedDots(2, 32)


def layer_kernels(geometry: Geometry) -> LayerKernels:
    """With kernels of two methods and ten tiles; predicted alike, but for what rows leave over."""
    signatures = [
        KernelSignature("avx2", None, method, rows, channels, "none", 0)
        for method in METHODS
        for rows, channels in TILES
    ]
    kernels = [KernelCandidate(s, s.rows * s.channels / 32 + 1 / s.rows, 0.0) for s in signatures]
    return LayerKernels((Workload("u8s8", geometry, 128),), tuple(kernels))


def truth(kernel: str, cycles: float) -> float:
    """What a kernel takes: of half the channels less than predicted, of pairs more."""
    return cycles * (0.6 if "x16_" in kernel else 1.0) * (1.3 if "_w32_" in kernel else 1.0)


def measured(geometry: Geometry, **changes: Any) -> Iterator[Trial]:
    """All kernels of a layer beside the one that is predicted to be best."""
    found = layer_kernels(geometry)
    predictions = {found.kernel(one): found.workload.cycles(one) for one in found.ranked()}
    default = next(iter(predictions))
    for kernel, cycles in predictions.items():
        if kernel != default:
            ratio = truth(kernel, cycles) / truth(default, predictions[default])
            facts = {"workloads": (found.workload.name,), "against": default, **changes}
            yield trial(kernel, ratio, predicted=cycles / predictions[default], **facts)


def kernels(found: LayerKernels, by: ranking.Ranking = BY_PREDICTION) -> list[str]:
    default = found.kernel(found.ranked()[0])
    return [found.kernel(one) for one in by.ordered(found, default)]


@pytest.mark.parametrize("geometry", SHAPES)
def test_without_trials_the_order_is_the_predicted_one(geometry: Geometry) -> None:
    found = layer_kernels(geometry)
    assert fit([]) == BY_PREDICTION and learned([], AVX2) == BY_PREDICTION
    expected = ranked(found.candidates, geometry, 128)
    assert BY_PREDICTION.ordered(found, found.kernel(expected[0])) == expected
    layer = TunedWorkload("conv", 1, found, Candidate(found.kernel(expected[0])), AVX2, [], fit([]))
    names = [candidate.kernel for candidate in layer.candidates(1000)]
    assert names == [found.kernel(one) for one in expected[1:]]


@pytest.mark.parametrize("unseen", range(len(SHAPES)))
def test_the_best_of_a_layer_that_was_never_measured_comes_first(unseen: int) -> None:
    others = [shape for shape in SHAPES if shape is not SHAPES[unseen]]
    found = layer_kernels(SHAPES[unseen])
    cycles = {found.kernel(one): found.workload.cycles(one) for one in found.ranked()}
    best = min(cycles, key=lambda kernel: truth(kernel, cycles[kernel]))
    by = fit(trial for shape in others for trial in measured(shape))
    assert kernels(found).index(best) > 0
    assert kernels(found, by)[0] == best


def test_the_same_ledger_gives_the_same_order() -> None:
    trials = [trial for shape in SHAPES for trial in measured(shape)]
    assert fit(trials) == fit(list(trials))
    assert kernels(layer_kernels(SHAPES[0]), fit(trials)) == kernels(
        layer_kernels(SHAPES[0]), fit(trials)
    )


def test_a_trial_that_is_wrong_by_much_moves_little() -> None:
    """What was measured once to take a hundredth is noise, not a hundred times as good."""
    trials = [trial for shape in SHAPES for trial in measured(shape)]
    noise = [trials[0].model_copy(update={"ratio": 0.01}), *trials[1:]]
    by, noisy = fit(trials), fit(noise)
    assert by != noisy
    for shape in SHAPES:
        assert kernels(layer_kernels(shape), by)[0] == kernels(layer_kernels(shape), noisy)[0]


def test_what_all_kernels_of_a_layer_have_in_common_says_nothing_of_their_order() -> None:
    """Where the default alone is slower than predicted, all others are faster beside it."""
    trials = [trial for shape in SHAPES[:2] for trial in measured(shape)]
    halved = [t.model_copy(update={"ratio": (t.ratio or 1) / 2}) for t in trials]
    for shape in SHAPES:
        assert (
            kernels(layer_kernels(shape), fit(halved))[0]
            == kernels(layer_kernels(shape), fit(trials))[0]
        )


@pytest.mark.parametrize(
    "changes",
    (
        {"order": "blocks_inner"},
        {"order": "rows_inner", "rows": 4},
        {"max_tasks": 1, "on_threads": 4},
        {"on_threads": 4},
        {"predicted": None},
        {"ratio": None, "failed": "why"},
    ),
)
def test_only_kernels_alone_by_their_predicted_loops_teach(changes: dict[str, Any]) -> None:
    trials = [t.model_copy(update=changes) for t in measured(SHAPES[0])]
    assert fit(trials) == BY_PREDICTION
    assert fit([*trials, *measured(SHAPES[1])]) == fit(measured(SHAPES[1]))


def test_a_machine_without_trials_learns_from_the_same_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def machine(core: str, isa: str = AVX2.isa) -> Machine:
        return HERE.model_copy(update={"processor": "that", "core": core, "isa": isa})

    there = list(measured(SHAPES[0], machine=machine(AVX2.core)))
    elsewhere = [
        *measured(SHAPES[1], machine=machine("another")),
        *measured(SHAPES[1], machine=machine(AVX2.core, "sse2")),
    ]
    lines = [*elsewhere, *there]
    monkeypatch.setattr(ledger, "_lines", lambda: iter(lines))
    assert learned([], AVX2) == fit(there) != BY_PREDICTION
    here = list(measured(SHAPES[2]))
    assert learned(here, AVX2) == fit(here)
    assert learned([there[0].model_copy(update={"predicted": None})], AVX2) == fit(there)


@given(st.text(), st.text())
def test_names_that_nobody_knows_have_no_features(workload: str, kernel: str) -> None:
    assert features(f"{workload} x", kernel) == {}
    assert features("u8s8 3x3s1x1_64to64_56x56", f"{kernel}!") == {}


def test_features_of_kernels_there_are() -> None:
    shape = "a2w1_bipolar 3x3s1x1_64to128g2_28x56"
    found = features(shape, "popcount_xor2_a2xaxc_w1x2_bipolar_by4_word64_inner2_8x16_row_neon")
    assert found["is popcount_xor2"] == found["inner"] == found["flush"] == 1
    assert (found["rows"], found["channels"], found["word"], found["step"]) == (3, 4, 1, 2)
    assert found["left over"] == 0
    assert features(shape, "mac8_dot4_6x32_none_avx2")["left over"] == math.log2(60 / 56)
