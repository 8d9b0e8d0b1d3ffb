"""Which kernels and schedules are tried for a layer, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.tuning.candidates import Candidate, TunedWorkload, of_trial
from pipelines.tuning.ledger import Trial
from pipelines.tuning.ranking import Ranking, fit
from stages.kernels.families import Dots, Products, TransformedDots
from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.packing_choices import packing_text
from stages.kernels.problems import Problem
from stages.kernels.signature import KernelSignature
from stages.kernels.workloads import LayerKernels, Workload
from tests.pipelines.tuning.test_ledger import trial
from tests.stages.pipeline import kept_candidates
from tests.targets import AARCH64, AVX2

SHAPE = Geometry((3, 3), 64, 28, 28)


def dots(
    rows: int, word: float, products: Products | None = None, channels: int = 32
) -> KernelCandidate:
    signature = KernelSignature("avx2", None, products or Dots(4), rows, channels, "none", 0)
    return KernelCandidate(
        signature, word, 0.0, data_transform_cycles=(1.0,) * 9, sum_transform_cycles=(1.0,) * 9
    )


def layer(**changes: Any) -> TunedWorkload:
    """With five kernels, of which that of six pixels is predicted to be best."""
    variants = [dots(rows, 1.0 + (6 - rows) / 10) for rows in (2, 3, 4, 5, 6)]
    layer_kernels = LayerKernels((Workload("u8s8", SHAPE, 64),), tuple(variants))
    default = Candidate(name(6), "rows_inner")
    return TunedWorkload("conv", 1, layer_kernels, default, **{"hardware": AVX2, **changes})


def name(rows: int) -> str:
    return f"mac8_dot4_{rows}x32_none_avx2"


def tried(pixels: int, ratio: float | None, **changes: Any) -> Trial:
    facts = {"against": name(6), "workloads": ("u8s8 3x3s1x1_64to64_28x28",), **changes}
    return trial(name(pixels), ratio, **facts)


def test_those_predicted_to_be_cheapest_come_first() -> None:
    ordered = [Candidate(name(rows)) for rows in (5, 4, 3, 2)]
    assert layer().candidates(1000) == ordered
    assert layer().candidates(2) == ordered[:2]
    assert layer().candidates(0) == []


def test_what_was_tried_counts_among_so_many() -> None:
    found = layer(trials=[tried(3, 0.5), tried(2, None), tried(4, 0.9, order="blocks_inner")])
    assert found.candidates(1) == [Candidate(name(3))]
    assert found.candidates(2) == [Candidate(name(3)), Candidate(name(2))]
    assert found.candidates(4)[2:] == [Candidate(name(5)), Candidate(name(4))]
    # Beside another kernel it says nothing of this one.
    found = layer(trials=[tried(3, 0.5, against=name(5))])
    assert found.candidates(1) == [Candidate(name(5))]


def test_as_ranked() -> None:
    found = layer(ranking=Ranking({"rows": 100.0}))
    assert found.candidates(4) == [Candidate(name(rows)) for rows in (2, 3, 4, 5)]


def test_what_was_just_measured_counts_for_the_next_layer() -> None:
    found, narrow = layer(), "mac8_dot4_6x16_none_avx2"
    kernels = (*found.kernels.candidates, dots(6, 0.75, channels=16))
    found.kernels = LayerKernels(found.kernels.workloads, kernels)
    before = found.candidates(5)
    assert before[:2] == [Candidate(name(5)), Candidate(narrow)]
    shapes = [(f"u8s8 3x3s1x1_64to64_{size}x{size}",) for size in range(20, 28)]
    known = [tried(pixels, 1.5, predicted=1.5, workloads=s) for s in shapes for pixels in (2, 3, 4)]
    known += [
        trial(narrow, 0.9, predicted=1.5, workloads=shape, against=name(6)) for shape in shapes
    ]
    found.rank(fit(known))
    assert found.candidates(5)[0] == Candidate(narrow)
    found.rank(fit([]))
    assert found.candidates(5) == before


def test_the_best_kernel_is_tried_by_other_loops() -> None:
    found = layer()
    orders = [Candidate(name(6), "blocks_inner")]
    assert found.schedules()[:1] == orders
    sizes = found.schedules()[1:]
    assert sizes and all(c == Candidate(name(6), "rows_inner", c.rows) for c in sizes)
    assert all(c.rows is not None and 1 < c.rows < 28 for c in sizes)
    better = layer(trials=[tried(3, 0.5), tried(2, 0.99)])
    assert {candidate.kernel for candidate in better.schedules()} == {name(3)}
    # What is within the noise does not displace the default; nor does what is none any longer.
    assert layer(trials=[tried(3, 0.99)]).schedules() == found.schedules()
    assert layer(trials=[tried(30, 0.5)]).schedules() == found.schedules()


@pytest.mark.parametrize(("threads", "most"), [(1, []), (2, [1]), (4, [1, 2]), (6, [1, 2, 4])])
def test_the_best_kernel_is_tried_in_fewer_tasks(threads: int, most: list[int]) -> None:
    assert layer().capped(threads) == [Candidate(name(6), max_tasks=count) for count in most]
    assert layer().uncapped == Candidate(name(6))
    found = layer(trials=[tried(3, 0.5, order="rows_inner", rows=9)])
    best = Candidate(name(3), "rows_inner", 9)
    assert found.uncapped == best
    assert found.capped(threads) == [
        Candidate(name(3), "rows_inner", 9, max_tasks=count) for count in most
    ]


def test_what_was_tried() -> None:
    known = [
        tried(3, 0.5, order="rows_inner", rows=9),
        tried(3, 0.7, threads=2, on_threads=4, against=name(3)),
    ]
    found = layer(trials=known)
    assert list(map(of_trial, known)) == [
        Candidate(name(3), "rows_inner", 9), Candidate(name(3), max_tasks=2),
    ]  # fmt: skip
    assert found.is_tried(Candidate(name(3), "rows_inner", 9))
    assert not found.is_tried(Candidate(name(3), "rows_inner"))
    assert not found.is_tried(Candidate(name(3)))
    assert found.is_tried(Candidate(name(3), max_tasks=2), on_threads=4)
    assert not found.is_tried(Candidate(name(3), max_tasks=2), on_threads=2)
    assert not found.is_tried(Candidate(name(3), max_tasks=2))


def test_a_candidate_as_a_choice_and_in_a_trial() -> None:
    plain, all_stated = Candidate("k"), Candidate("k", "rows_inner", 4, 2)
    assert plain.choice == {"kernel": "k", "order": None} and plain.axes == {}
    axes = {"order": "rows_inner", "rows": 4, "threads": 2}
    assert all_stated.axes == axes and all_stated.choice == {"kernel": "k", **axes}
    assert of_trial(trial("k", 0.5, **axes)) == all_stated


def test_what_is_predicted_of_a_candidate() -> None:
    found = layer()
    assert found.predicted(found.default) == 1
    assert found.predicted(Candidate(name(3), "rows_inner", 9)) == pytest.approx(1.3 * 10 / 5)
    assert found.predicted(Candidate("gone")) is None


def packings(found: TunedWorkload, count: int) -> list[str]:
    of_kernels = {found.kernels.kernel(one): one.signature for one in found.kernels.ranked()}
    signatures = [of_kernels[candidate.kernel] for candidate in found.candidates(count)]
    return [packing_text(signature) for signature in signatures if signature.plan is not None]


def test_every_packing_of_bits_is_tried() -> None:
    """Of few trials, half at most are given to kernels for their packing alone."""
    problem = Problem(2, 1, "bipolar")
    kernels = tuple(kept_candidates(problem, AARCH64))
    layer_kernels = LayerKernels(
        (Workload(problem.name, Geometry((3, 3), 512, 7, 7), 512),), kernels
    )
    ranked = [layer_kernels.kernel(one) for one in layer_kernels.ranked()]
    found = TunedWorkload("conv", 1, layer_kernels, Candidate(ranked[0], "rows_inner"), AARCH64)
    all_of_them = set(packings(found, 1000))
    assert len(all_of_them) == 8  # words of 8 to 128 bits, and planes inside of 32 to 128
    assert set(packings(found, 16)) == all_of_them
    by_cycles = [Candidate(kernel) for kernel in ranked[1:]]
    assert found.candidates(1000) == by_cycles
    for count in (1, 2, 5, 8, 16, 40):
        taken = found.candidates(count)
        assert len(taken) == len(set(taken)) == count
        assert len(set(taken) - set(by_cycles[:count])) <= count // 2
        assert taken == sorted(taken, key=by_cycles.index)


def test_where_bits_are_packed_in_one_way_nothing_is_moved() -> None:
    found = layer()
    layer_kernels = LayerKernels(
        found.kernels.workloads,
        (*found.kernels.candidates, dots(4, 9.0, TransformedDots(2))),
    )
    mixed = layer()
    mixed.kernels = layer_kernels
    assert [c.kernel for c in mixed.candidates(2)] == [name(5), name(4)]
