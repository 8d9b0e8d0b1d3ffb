"""Convolutions by matrix tiles: work that tasks share, epilogues between products."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hw.profile import Hardware
from stages import scheduling, synthesizing
from stages.codegen import target_of
from stages.graph import interpret
from stages.graph.bindings import calls_of
from stages.graph.composites import LINEAR
from stages.kernels.kernel_candidates import to_table
from stages.kernels.operand_storage import WeightCode
from stages.kernels.problems import Problem
from stages.kernels.selection import byte_candidates
from stages.kernels.signature import TILES_BEGIN, TILES_END
from stages.packaging.program_builder import program_of
from tests.kept import kept
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import MAC
from tests.stages.packaging.level_net import Net as FewBits
from tests.stages.packaging.programs import Executor, assert_exact, compose, pack
from tests.stages.packaging.sums.convolution_nets import MANY, convolutions, is_joined, residual
from tests.stages.pipeline import kept_candidates, random_inputs
from tests.targets import (
    AMX,
    AMX_GFNI,
    AVX2,
    AVX512VNNI,
    skip_unless_runnable,
)


@pytest.mark.parametrize("hardware", (AVX2, AVX512VNNI, AMX), ids=lambda item: item.name)
@pytest.mark.parametrize("images", (1, 2))
def test_how_work_is_shared_changes_no_result(hardware: Hardware, images: int) -> None:
    """By runs, by groups of blocks, or block by block; epilogues behind the sums, or between
    products of the next tile."""
    skip_unless_runnable(hardware)
    size = (images, 19, 21)
    packed = pack(residual(size), hardware, MAC)
    inputs = Net((*size, 12)).inputs()
    expected = interpret.run(packed, inputs)
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    names = [str(n.name_hint) for n, f in packed.module.functions.items() if "composite" in f.attrs]
    for spread, interleaved in product((0.0, 1.0, MANY), (False, True)):
        schedule = {"order": "rows_inner", "spread": spread, "interleaved": interleaved}
        schedules = dict.fromkeys(names, schedule)
        program = program_of(packed, bodies, schedules, hardware, kept)
        for tasks in (1, 2, 5, 8):
            outputs = Executor(program, hardware).run(inputs, tasks)
            for name, value in expected.items():
                np.testing.assert_array_equal(outputs[name], value, f"{schedule}, {tasks} tasks")


def test_blocks_of_a_task_follow_one_another_without_a_pause() -> None:
    """Tiles begin and end but once in a task, though their weights change with every block."""
    packed = pack(residual((1, 19, 21)), AMX)
    bodies = synthesizing.run(model=packed, hardware=AMX, memo=kept)
    schedule = {"order": "rows_inner", "spread": 0.0, "interleaved": True}
    several = 0
    for function in [f for _, f in calls_of(packed) if f.attrs["composite"] == LINEAR]:
        with target_of(AMX):
            made = compose(function, schedule, AMX)
            text = made.kernel(bodies).function.script()
        several += made.blocks > 1
        lines = [line for line in text.splitlines() if TILES_BEGIN in line or TILES_END in line]
        assert [line.index("T.call_extern") for line in lines] == [4, 4]
    assert several


@pytest.mark.parametrize("hardware", (AMX, AVX512VNNI, AVX2), ids=lambda item: item.name)
@pytest.mark.parametrize("strides", (1, 2))
def test_images_of_seven_by_seven(hardware: Hardware, strides: int) -> None:
    """Which tiles take as a whole, in phases where windows move by two."""
    skip_unless_runnable(hardware)
    side = 7 * strides
    net = Net((1, side, side, 64))
    model = net.model(net.conv(net.x, "c", 48, strides=[strides] * 2))
    packed, _ = assert_exact(model, net.inputs(), hardware, MAC)
    (made,) = convolutions(packed, hardware)
    if hardware is AMX:
        assert is_joined(made) and made.composite.signature.covers_layer
        assert (made.sums.rows, made.work.runs) == {1: (61, 1), 2: (55, 1)}[strides]


@pytest.mark.parametrize(
    ("bits", "encoding", "code"),
    [
        (1, "bipolar", "odd1"),
        (2, "bipolar", "odd2"),
        (2, "signed", "signed2"),
        (3, "signed", "signed4"),
        (3, "bipolar", "odd4"),
        (1, "unipolar", "signed2"),
        (5, "signed", None),
    ],
)
@pytest.mark.parametrize("strides", (1, 2))
@pytest.mark.parametrize("is_interleaved", (False, True))
def test_weights_of_few_bits_become_bytes_between_products(
    monkeypatch: pytest.MonkeyPatch,
    bits: int,
    encoding: str,
    code: str | None,
    strides: int,
    is_interleaved: bool,
) -> None:
    """Of images that tiles take as a whole, where weights are read once."""
    skip_unless_runnable(AMX_GFNI)
    monkeypatch.setattr(scheduling, "GAINING", 0 if is_interleaved else 2)
    net = FewBits((1, 64, 7 * strides, 7 * strides))
    x = net.quant(net.x, "a", 2, 0.5)
    y = net.conv(x, "c", 72, stride=strides, bits=bits, encoding=encoding)
    model = net.model(net.quant(net.batch_norm(y, "bn", 8.0), "b", 2, 0.5))
    packed, _ = assert_exact(model, random_inputs(model, 1), AMX_GFNI, MAC)
    (made,) = convolutions(packed, AMX_GFNI)
    signature = made.composite.signature
    assert signature.covers_layer
    assert (signature.code and signature.code.name) == code


def test_weights_that_no_code_stores_are_bytes() -> None:
    """Channels whose weights are negated may have one beyond the two bits of the others."""
    for levels, is_stored in (([-2, 1], True), ([-1, 2], False), ([-1, 1], True)):
        weight = np.resize(np.array(levels, np.int8), (32, 3, 3, 64))
        table = {"few": to_table(kept_candidates(Problem(2, 2, "signed"), AMX_GFNI))}
        codes = {candidate.signature.code for candidate in byte_candidates(table, 2, weight)}
        assert (WeightCode(2, False) in codes) == is_stored
