"""How threads share the work items of a kernel, which are blocks of channels by runs of positions.

A thread that has all blocks of some runs reads all weights, but finds positions in its own cache
where it computed them itself. With more threads less of the time is spent on positions, so that
weights weigh more, and there are not runs enough for all. Blocks are then in several groups, and
each task has some runs of one group; or, with as many groups as there are threads, a slice of the
items block by block.

A task goes through its blocks of channels, and through all of its runs for each; or it goes so
through one row block after the other, which are some of its runs.

Let W be the cost of reading all weights and D that of all positions, for T threads on B groups of
blocks: each reads W / B + D * B / T, so that twice as many groups are better as long as
2 * B * B <= T * W / D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.nodes import Buffer, Index, Scalar
from stages.packaging.emitting.addressing import slice_of
from stages.packaging.emitting.kernel import FewThreads
from stages.packaging.emitting.vector_loops import on_stack

RUNS_A_TASK = 2
"""Runs of a task, at least, that reads all weights of its blocks on its own."""


@dataclass(frozen=True)
class TaskShare:
    """What a task has of a grid: some runs of each of `count` blocks, from the `first` on.

    They are the items from `begin` to `end`, numbered block by block if it `is_slice`; else, among
    the share's blocks, run by run.
    """

    first: Index
    count: Index
    begin: Index
    end: Index
    is_slice: Scalar
    all_runs: int

    def runs_of(self, number: Index) -> tuple[Index, Index]:
        """The first run of the share's block of this number, and the one behind its last."""
        before = T.bind((self.first + number) * self.all_runs)
        after = T.bind(self.count - 1 - number)
        slices = tirx.max(self.begin - before, 0), tirx.min(self.end - before, self.all_runs)
        shares = (tirx.truncdiv(item + after, self.count) for item in (self.begin, self.end))
        # In memory, for the reason that `TaskGrid.share` gives.
        found = T.alloc_buffer((2,), "int32")
        for place, pair in enumerate(zip(slices, shares, strict=True)):
            T.buffer_store(found, tirx.Select(self.is_slice, *pair), [place])
        first, behind = (T.bind(found[place]) for place in range(2))
        return first, behind

    def each(self, runs_per_row_block: int, emit: Callable[[Index, Index], None]) -> None:
        """Emit every item of the share, given its block and its run, in row blocks of so many runs.

        These begin where the share does, so that tasks of equally many runs have equally many.
        """
        if runs_per_row_block >= self.all_runs:
            self._row_block(None, runs_per_row_block, emit)
            return
        with T.serial(0, self._row_blocks(runs_per_row_block)) as row_block:
            self._row_block(row_block, runs_per_row_block, emit)

    def _row_blocks(self, runs_per_row_block: int) -> Index:
        """How many row blocks there are of the block that has the most runs."""
        items = self.end - self.begin
        slices = tirx.min(items, self.all_runs)
        shares = tirx.truncdiv(items + self.count - 1, tirx.max(self.count, 1))
        found = T.alloc_buffer((1,), "int32")
        T.buffer_store(found, tirx.Select(self.is_slice, slices, shares), [0])
        return T.bind(tirx.truncdiv(found[0] + runs_per_row_block - 1, runs_per_row_block))

    def _row_block(
        self, number: Index | None, runs_per_row_block: int, emit: Callable[[Index, Index], None]
    ) -> None:
        """The items of a row block, or of all if it has no number, block after block."""
        with T.serial(0, self.count) as one:
            block = T.bind(self.first + one)
            begin, end = self.runs_of(one)
            if number is not None:
                begin = T.bind(begin + number * runs_per_row_block)
                end = tirx.max(begin, tirx.min(begin + runs_per_row_block, end))
            with T.serial(0, end - begin) as index:
                emit(block, T.bind(begin + index))


@dataclass(frozen=True)
class TaskGrid:
    """The work items of a kernel, `cost_ratio` being W / D and `each` the tasks of a thread."""

    blocks: int
    runs: int
    cost_ratio: float
    each: int

    @property
    def items(self) -> int:
        """All work items."""
        return self.blocks * self.runs

    @property
    def few(self) -> FewThreads | None:
        """Tasks at most while few threads have all blocks each; None if not even two do."""
        threads = min(self._tasks_of_runs, self._enough(1) // self.each)
        return FewThreads(threads, self._tasks_of_runs) if threads > 1 else None

    @contextmanager
    def share(self, task: Index, tasks: Index) -> Iterator[TaskShare]:
        """Emit what finds the share of a task; all of `tasks` together have every item once.

        Within a group, items are numbered run by run, so that tasks are even: the first or last run
        of one may be another's in some of the blocks.
        """
        with on_stack():
            # In memory until LLVM takes them from there: TVM would try to simplify them together.
            found = T.alloc_buffer((6,), "int32")
            self._find_groups(found, tasks)
            groups = T.bind(found[0])
            T.buffer_store(found, tirx.Cast("int32", self._is_slice(groups, tasks)), [1])
            is_slice = T.bind(found[1] != 0)
            with T.If(is_slice):
                with T.Then():
                    begin, end = slice_of(self.items, task, tasks)
                    first = T.bind(tirx.truncdiv(begin, self.runs))
                    behind = tirx.truncdiv(end + self.runs - 1, self.runs)
                    _keep(found, first, behind - first, begin, end)
                with T.Else():
                    blocks = T.bind(tirx.truncdiv(tirx.IntImm("int32", self.blocks), groups))
                    a_group = T.bind(tirx.truncdiv(tasks, groups))
                    group = T.bind(tirx.truncdiv(task, a_group))
                    own = slice_of(blocks * self.runs, task - group * a_group, a_group)
                    _keep(found, group * blocks, blocks, *own)
            first, count, begin, end = (T.bind(found[place]) for place in range(2, 6))
            yield TaskShare(first, count, begin, end, is_slice, self.runs)

    def _find_groups(self, found: Buffer, tasks: Index) -> None:
        """How many groups of blocks there are: a power of two that divides blocks and tasks."""
        T.buffer_store(found, 1, [0])
        groups = 1
        while self.blocks % (2 * groups) == 0:
            is_divided = tirx.EQ(tirx.truncmod(tasks, 2 * groups), 0)
            are_too_few = tasks > self._most(groups)
            with T.If(tirx.all(tirx.EQ(found[0], groups), are_too_few, is_divided)), T.Then():
                T.buffer_store(found, 2 * groups, [0])
            groups *= 2

    def _is_slice(self, groups: Index, tasks: Index) -> Scalar:
        """Whether no groups serve: there are too few, or one for every thread."""
        are_few = tirx.any(groups * self.each >= tasks, tasks > groups * self._tasks_of_runs)
        are_none = tirx.EQ(groups, 1)
        return tirx.any(
            tirx.all(are_none, tasks > self._most(1)), tirx.all(tirx.Not(are_none), are_few)
        )

    def _most(self, groups: int) -> int:
        """Tasks at most for which so many groups are enough, of weights and of runs."""
        return min(self._enough(groups), groups * self._tasks_of_runs)

    def _enough(self, groups: int) -> int:
        """Tasks at most with which twice as many groups would not be better."""
        if not self.cost_ratio:
            return self.items
        bound = ceil(2 * groups**2 * self.each / self.cost_ratio) - 1
        return min(self.items, max(1, bound))

    @property
    def _tasks_of_runs(self) -> int:
        return max(1, self.runs // RUNS_A_TASK)


def _keep(found: Buffer, *values: Index) -> None:
    """Store the block and the count, the begin and the end of a share."""
    for place, value in enumerate(values, 2):
        T.buffer_store(found, value, [place])
