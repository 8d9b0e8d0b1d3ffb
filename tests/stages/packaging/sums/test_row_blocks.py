"""Row blocks and limits of tasks: which items come when, and that they change no result."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.profile import Hardware
from stages import synthesizing
from stages.codegen import compile_object, target_of
from stages.dialect.calls import shape_of
from stages.graph import interpret
from stages.graph.bindings import calls_of
from stages.graph.composites import LINEAR
from stages.kinds import Model
from stages.nodes import PrimFunc
from stages.options import LegalizeOptions
from stages.packaging.emitting.kernel import FewThreads, Kernel
from stages.packaging.program.kernel_program import Program
from stages.packaging.program_builder import program_of
from stages.packaging.sums.composed_kernel import ComposedKernel
from stages.packaging.sums.task_grid import TaskGrid
from stages.packaging.sums.window_reads import Windows
from tests.compiled import Library
from tests.kept import kept
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.kernel_cases import GEOMETRIES, geometry
from tests.stages.packaging.level_net import BIT, MAC
from tests.stages.packaging.programs import Executor, compile_at_once, compose, pack
from tests.stages.packaging.sums.convolution_nets import MANY, residual
from tests.stages.pipeline import algorithm
from tests.targets import AARCH64, AMX, AVX2, AVX512VNNI, SSE2, skip_unless_runnable

Items = list[tuple[int, int]]
SCHEDULE = {"order": "rows_inner", "spread": 0.0, "interleaved": False}


def numbering(grid: TaskGrid, together: int) -> PrimFunc:
    """A kernel that numbers a task's items in the order in which they come, from 1 on."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("number")
        T.func_attr({"global_symbol": "number"})
        order = T.arg("order", T.Buffer((grid.items,), "int32"))
        count = T.arg("count", T.Buffer((1,), "int32"))
        task, tasks = (T.arg(name, T.int32()) for name in ("task", "tasks"))

        def item(block: Any, run: Any) -> None:
            T.buffer_store(count, count[0] + 1, [0])
            T.buffer_store(order, count[0], [block * grid.runs + run])

        with grid.share(task, tasks) as share:
            share.each(together, item)
    return builder.get()


def parts(grid: TaskGrid, together: int, counts: tuple[int, ...]) -> list[list[Items]]:
    """Of calls in so many tasks, by task its pairs of block and run, in order."""
    with target_of(SSE2):
        code = compile_object({"number": numbering(grid, together)}, SSE2)
    library, found = Library({"number.o": code}, SSE2), []
    for tasks in counts:
        call = []
        for task in range(tasks):
            order, count = np.zeros(grid.items, np.int32), np.zeros(1, np.int32)
            library.call("number", order, count, task, tasks)
            assert count[0] == np.count_nonzero(order)
            items = np.argsort(order)[grid.items - int(count[0]) :]
            call.append([divmod(int(item), grid.runs) for item in items])
        found.append(call)
    return found


@pytest.mark.parametrize("cost_ratio", (0.0, 1.0, MANY))
@pytest.mark.parametrize(("blocks", "runs"), ((1, 9), (6, 5), (8, 13), (5, 1)))
def test_every_item_comes_once_in_row_blocks_of_any_size(
    blocks: int, runs: int, cost_ratio: float
) -> None:
    skip_unless_runnable(SSE2)
    grid = TaskGrid(blocks, runs, cost_ratio, each=2)
    counts = tuple(sorted({min(n, grid.items) for n in (1, 2, 3, 5, 8, 64)}))
    whole = parts(grid, runs, counts)
    for together in {1, 2, 3, max(1, runs - 1), runs + 1}:
        for tasks, found, expected in zip(
            counts, parts(grid, together, counts), whole, strict=True
        ):
            # The same tasks have the same items, in another order.
            assert list(map(sorted, found)) == list(map(sorted, expected)), (together, tasks)
            assert sum(map(len, found)) == grid.items
            if together > runs:
                assert found == expected


def test_a_row_block_is_gone_through_block_by_block() -> None:
    skip_unless_runnable(SSE2)
    (one,), two = parts(TaskGrid(2, 5, 0.0, each=2), 2, (1, 2))
    assert one == [
        *((0, 0), (0, 1), (1, 0), (1, 1)),
        *((0, 2), (0, 3), (1, 2), (1, 3)),
        *((0, 4), (1, 4)),
    ]
    # Row blocks of a task begin where the task does.
    assert two[1] == [(0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]


def built(packed: Model, bodies: Any, hardware: Hardware, **changes: Any) -> Program:
    names = [str(n.name_hint) for n, f in packed.module.functions.items() if "composite" in f.attrs]
    schedules = {name: {**SCHEDULE, **changes} for name in names}
    return program_of(packed, bodies, schedules, hardware, compile_at_once)


Case = tuple[Hardware, Model, dict[str, Any], LegalizeOptions]


def bytes_case(hardware: Hardware, size: tuple[int, int, int]) -> Case:
    return hardware, residual(size), Net((*size, 12)).inputs(), MAC


def bits_case(hardware: Hardware, number: int) -> Case:
    case = geometry(GEOMETRIES[number], BIT)
    return hardware, case.model, case.inputs(), case.options


def transformed_case(hardware: Hardware, size: tuple[int, int]) -> Case:
    net = Net((1, *size, 12))
    model = net.model(net.conv(net.x, "w", 40))
    return hardware, model, net.inputs(), algorithm("winograd", "w*")


@pytest.mark.parametrize(
    "case",
    (
        pytest.param(lambda: bytes_case(AVX2, (1, 1, 9)), id="one row"),
        pytest.param(lambda: bytes_case(AVX512VNNI, (1, 13, 21)), id="a prime number of rows"),
        pytest.param(lambda: bytes_case(AVX2, (2, 7, 5)), id="joined rows of two images"),
        pytest.param(lambda: bytes_case(AMX, (1, 11, 21)), id="matrix tiles"),
        pytest.param(lambda: bytes_case(AARCH64, (1, 7, 14)), id="Arm"),
        pytest.param(lambda: bits_case(AVX2, 0), id="bits"),
        pytest.param(lambda: bits_case(AVX512VNNI, 1), id="bits, by two"),
        pytest.param(lambda: transformed_case(AVX2, (13, 23)), id="transformed"),
    ),
)
def test_row_blocks_and_limits_of_tasks_change_no_result(case: Callable[[], Case]) -> None:
    """Row blocks of one row, of some, of all and of more than there are; limits on both sides of
    the tasks that are asked for."""
    hardware, model, inputs, options = case()
    skip_unless_runnable(hardware)
    packed = pack(model, hardware, options)
    expected = interpret.run(packed, inputs)
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    default = built(packed, bodies, hardware)
    interleaved = {"interleaved": hardware is AMX}
    changes: list[dict[str, Any]] = [{"rows": rows, **interleaved} for rows in (1, 2, 5, 50)]
    changes += [{"threads": most} for most in (1, 2, 1000)]
    changes.append({"rows": 3, "threads": 2, "spread": MANY, **interleaved})
    for changed in changes:
        program = built(packed, bodies, hardware, **changed)
        for call, before in zip(program.calls, default.calls, strict=True):
            most = changed.get("threads", before.max_tasks)
            assert call.max_tasks == min(most, before.max_tasks)
        for tasks in (1, 2, 5):
            outputs = Executor(program, hardware).run(inputs, tasks)
            for name, value in expected.items():
                np.testing.assert_array_equal(outputs[name], value, f"{changed}, {tasks} tasks")


def lowered(rows: int | None) -> tuple[ComposedKernel, Kernel]:
    """The second convolution of 3x3 pixels by two blocks of channels, 13 rows of 21."""
    packed = pack(residual((1, 13, 21)), AVX512VNNI, MAC)
    bodies = synthesizing.run(model=packed, hardware=AVX512VNNI, memo=kept)
    functions = [f for _, f in calls_of(packed) if f.attrs["composite"] == LINEAR]
    stated = {"rows": rows} if rows is not None else {}
    with target_of(AVX512VNNI):
        made = compose(functions[1], {**SCHEDULE, **stated}, AVX512VNNI)
        assert made.blocks == 2
        return made, made.kernel(bodies)


def test_a_row_block_of_all_rows_is_none() -> None:
    _, plain = lowered(None)
    for rows in (13, 14, 1000):
        _, found = lowered(rows)
        assert found.function.script() == plain.function.script()
    _, found = lowered(12)
    assert found.function.script() != plain.function.script()


@pytest.mark.parametrize("rows", (2, 5, None))
def test_the_calls_of_a_row_block_fetch_the_next_block_s_weights(rows: int | None) -> None:
    made, _ = lowered(rows)
    weights = prod(shape_of(made.composite.main.args[1].ty)[1:])
    work, reads = made.work, made.reads
    assert isinstance(reads, Windows)
    fetched = work.tiles_per_row_block * reads.prefetched
    assert weights <= fetched < weights + work.tiles_per_row_block * max(1, weights // 8)
    assert work.tiles_per_row_block == (
        work.tiles_per_block if rows is None else work.runs_per_row_block * work.tiles
    )
    assert rows is None or work.tiles_per_row_block < work.tiles_per_block


def test_a_limit_of_tasks_is_the_most_that_threads_share() -> None:
    kernel = Kernel(tirx.PrimFunc([], tirx.Evaluate(0)), 0, 64, few=FewThreads(2, 8))
    assert (kernel.capped(4).max_tasks, kernel.capped(4).few) == (4, None)
    # As many tasks for few threads as for all of them.
    assert kernel.capped(8).few is None and kernel.capped(9).few == FewThreads(2, 8)
    assert kernel.capped(None) is kernel.capped(64) is kernel.capped(1000) is kernel
