"""How threads share a kernel's work items: all of them, each once, evenly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from stages.codegen import compile_object, target_of
from stages.nodes import PrimFunc
from stages.packaging.emitting.kernel import FewThreads
from stages.packaging.sums.task_grid import RUNS_A_TASK, TaskGrid
from tests.compiled import Library
from tests.targets import SSE2, skip_unless_runnable

Items = list[tuple[int, int]]
MANY = 100.0


def marking(grid: TaskGrid) -> PrimFunc:
    """A kernel that counts how often each item is a task's."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("mark")
        T.func_attr({"global_symbol": "mark"})
        times = T.arg("times", T.Buffer((grid.items,), "int32"))
        task, tasks = (T.arg(name, T.int32()) for name in ("task", "tasks"))
        with grid.share(task, tasks) as share, T.serial(0, share.count) as number:
            begin, end = share.runs_of(number)
            with T.serial(0, end - begin) as index:
                item = T.bind((share.first + number) * grid.runs + begin + index)
                T.buffer_store(times, times[item] + 1, [item])
    return builder.get()


class Shared:
    """The items of every task of a grid."""

    def __init__(self, grid: TaskGrid) -> None:
        self.grid = grid
        with target_of(SSE2):
            self.library = Library({"mark.o": compile_object({"mark": marking(grid)}, SSE2)}, SSE2)

    def items(self, tasks: int) -> list[Items]:
        """Pairs of block and run, by task."""
        found = []
        for task in range(tasks):
            times = np.zeros(self.grid.items, np.int32)
            self.library.call("mark", times, task, tasks)
            assert times.max(initial=0) <= 1
            found.append([divmod(int(item), self.grid.runs) for item in np.flatnonzero(times)])
        return found


@pytest.mark.parametrize("cost_ratio", (0.0, 0.3, 1.0, 6.0, MANY))
@pytest.mark.parametrize(("blocks", "runs"), ((1, 9), (6, 5), (8, 14), (16, 4), (5, 1)))
def test_every_item_is_one_task_s(blocks: int, runs: int, cost_ratio: float) -> None:
    skip_unless_runnable(SSE2)
    grid = TaskGrid(blocks, runs, cost_ratio, each=2)
    shared = Shared(grid)
    for tasks in {min(tasks, grid.items) for tasks in (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)}:
        shares = shared.items(tasks)
        together = sorted(item for share in shares for item in share)
        assert together == list(product(range(blocks), range(runs))), tasks
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1, tasks


def blocks_of(share: Items) -> int:
    return len({block for block, _ in share})


def test_what_weighs_more_is_read_by_fewer() -> None:
    skip_unless_runnable(SSE2)
    light, even, heavy = (
        Shared(TaskGrid(8, 28, cost_ratio, each=2)) for cost_ratio in (0.1, 1.0, MANY)
    )
    for threads in (2, 4):
        assert all(blocks_of(share) == 8 for share in light.items(2 * threads))
        assert all(blocks_of(share) <= 8 // threads for share in heavy.items(2 * threads))
    # Of four threads two read the same weights, and two the same positions.
    assert [blocks_of(share) for share in even.items(2 * 4)] == [4] * 8


def test_many_threads_have_no_run_for_each() -> None:
    """Blocks are in groups then, however little weights weigh, and else in slices."""
    skip_unless_runnable(SSE2)
    for blocks in (8, 7):
        shares = Shared(TaskGrid(blocks, 4, 0.01, each=2)).items(8)
        assert max(map(blocks_of, shares)) <= 4
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("runs", "cost_ratio", "few"),
    (
        (28, 0.0, FewThreads(14, 14)),
        (28, 0.4, FewThreads(4, 14)),
        (7, 0.4, FewThreads(3, 3)),
        (28, 0.99, FewThreads(2, 14)),
        (28, 1.0, None),
        (3, 0.0, None),
    ),
)
def test_few_threads_read_all_weights(runs: int, cost_ratio: float, few: FewThreads | None) -> None:
    """Each, as long as that is the best, and no task has less than it takes to be worth it."""
    assert TaskGrid(8, runs, cost_ratio, each=2).few == few
    assert few is None or few.tasks * RUNS_A_TASK <= runs
