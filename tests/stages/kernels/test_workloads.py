"""Workloads by name, and what a table of choices does where it names a kernel on candidate."""

from __future__ import annotations

import pytest

from stages.kernels.families import Dots
from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.signature import KernelSignature
from stages.kernels.workloads import LayerKernels, Workload, pick, products_problem, schedule_of

CHEAP = KernelCandidate(KernelSignature("avx2", None, Dots(2), 2, 32, "none", 0), 1.0, 0.0)
DEAR = KernelCandidate(KernelSignature("avx2", None, Dots(2), 1, 32, "none", 0), 2.0, 0.0)
WIDE = KernelCandidate(KernelSignature("avx2", None, Dots(2), 8, 8, "none", 0), 9.0, 0.0)
CANDIDATES = (DEAR, WIDE, CHEAP)
WORKLOAD = Workload("u8s8", Geometry((3, 3), 64, 7, 7, (2, 1)), 128)


def test_the_name_says_all_that_matters() -> None:
    assert WORKLOAD.name == "u8s8 3x3s2x1_64to128_7x7"


@pytest.mark.parametrize(
    ("limit", "name"), [(0, "u8s1"), (1, "u8s2"), (3, "u8s3"), (127, "u8s8"), (128, "u8s8")]
)
def test_products_are_told_apart_by_the_size_of_their_weights(limit: int, name: str) -> None:
    assert products_problem(8, limit) == name


def test_a_candidate_is_taken_and_other_kernels_are_not() -> None:
    def choosing(name: str) -> KernelCandidate:
        return pick(CANDIDATES, WORKLOAD, {WORKLOAD.name: {"kernel": name, "order": None}})

    assert pick(CANDIDATES, WORKLOAD, {}) == CHEAP
    assert choosing(DEAR.signature.name) == DEAR
    assert choosing("gone") == CHEAP
    # Eight pixels do not fit a row of seven.
    assert choosing(WIDE.signature.name) == CHEAP


def test_what_there_is_to_choose() -> None:
    layer_kernels = LayerKernels((WORKLOAD,), CANDIDATES)
    assert layer_kernels.ranked() == [CHEAP, DEAR]
    # 9 windows of 16 words, 4 tiles of pixels, 7 rows, 4 blocks of channels.
    assert WORKLOAD.cycles(CHEAP) == 9 * 16 * 4 * 7 * 4


def test_a_schedule_belongs_to_a_kernel_and_a_shape() -> None:
    choices = {WORKLOAD.name: {"kernel": "k", "order": "blocks_inner", "against": "other"}}
    assert schedule_of("k", WORKLOAD.shape, choices) == {"order": "blocks_inner"}
    assert schedule_of("other", WORKLOAD.shape, choices) == {}
    assert schedule_of("k", "1x1s1x1_64to128_7x7", choices) == {}
    assert schedule_of("k", WORKLOAD.shape, {WORKLOAD.name: {"kernel": "k", "order": None}}) == {}
    more = {"kernel": "k", "order": None, "rows": 4, "threads": 2}
    found = schedule_of("k", WORKLOAD.shape, {WORKLOAD.name: more})
    assert found == {"rows": 4, "threads": 2}
