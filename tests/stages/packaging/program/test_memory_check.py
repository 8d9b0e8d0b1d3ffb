"""Programs that do not fit into a board's memory: refused before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages import scheduling, synthesizing
from stages.errors import StageError
from stages.packaging.program.arena import SLACK, plan
from stages.packaging.program.kernel_program import Call, Program, Slot, TensorSpec
from stages.packaging.program.memory_check import SYSTEM_MIB, check_fits, need_of
from stages.packaging.program_builder import program_of
from tests.kept import kept
from tests.stages.packaging.level_net import MAC, Net
from tests.stages.packaging.programs import pack
from tests.targets import SSE2

MIB = 1 << 20
PARTS = 4
"""Figures that are each rounded up to a tenth of a MiB."""


def board(memory_mib: int | None, threads: int = 1, hardware: Hardware = SSE2) -> Hardware:
    return hardware.model_copy(update={"memory_mib": memory_mib, "threads": threads})


def program(weights: int, scratch: int = 0, hidden: int = 64, images: int = 1) -> Program:
    """Two calls with a buffer between them; so many bytes of constants, scratch and the buffer."""
    x, b, y = Slot("input", "x"), Slot("buffer", "b"), Slot("output", "y")
    return Program(
        inputs=(TensorSpec("x", "uint8", (images, 64)),),
        outputs=(TensorSpec("y", "uint8", (images, 64)),),
        buffers={"b": hidden},
        constants={"w": np.broadcast_to(np.uint8(0), (weights,))},
        calls=(
            Call("f", "first", (x, Slot("constant", "w")), (b,), scratch, 4),
            Call("g", "last", (b,), (y,), 0, 4),
        ),
        objects={},
        images=images,
    )


def refused(given: Program, hardware: Hardware) -> bool:
    try:
        check_fits(given, hardware)
    except StageError:
        return True
    return False


@example(weights=MIB - 64, scratch=0, threads=1, memory=SYSTEM_MIB + 1)
@example(weights=64, scratch=MIB, threads=4, memory=SYSTEM_MIB + 4)
@given(
    st.integers(1, 6 * MIB), st.integers(0, MIB), st.integers(1, 8), st.integers(1, SYSTEM_MIB + 12)
)
def test_what_fits_passes_and_what_does_not_is_refused(
    weights: int, scratch: int, threads: int, memory: int
) -> None:
    """By bytes: what is larger is refused, what is smaller by less than is rounded may be."""
    made = program(weights, scratch)
    tensors = sum(spec.nbytes for spec in chain(made.inputs, made.outputs))
    taken = weights + plan(made).size(threads) + tensors
    left = (memory - SYSTEM_MIB) * MIB
    found = refused(made, board(memory, threads))
    assert found or taken <= left
    assert not found or taken + SLACK + PARTS * MIB // 10 > left


@pytest.mark.parametrize("weights", (MIB, 30 * MIB))
def test_one_mib_decides(weights: int) -> None:
    """What is beside the weights takes a little."""
    made, least = program(weights), SYSTEM_MIB + weights // MIB + 1
    check_fits(made, board(least))
    with pytest.raises(StageError, match=f"memory_mib {least - 1}"):
        check_fits(made, board(least - 1))


def test_the_sum_is_as_printed() -> None:
    made = program(2 * MIB + MIB // 4, scratch=MIB // 2, hidden=3 * MIB)
    with pytest.raises(StageError) as refusal:
        check_fits(made, board(SYSTEM_MIB + 7, threads=4))
    assert str(refusal.value) == (
        "the network takes 7.5 MiB on 4 threads (weights 2.3, buffers 3.1, scratch 2.0, inputs and "
        "outputs 0.1), and sse2 has 7.0 MiB for it (memory_mib 231, of which the operating system "
        "keeps 224); take a smaller input or network, or a board with more memory"
    )
    check_fits(made, board(SYSTEM_MIB + 8, threads=4))


def test_a_board_smaller_than_its_system_has_nothing() -> None:
    with pytest.raises(StageError, match=r"has 0\.0 MiB for it \(memory_mib 64, "):
        check_fits(program(64), board(64))


def test_boards_without_memory_refuse_nothing() -> None:
    check_fits(program(1 << 42), board(None, threads=1024))


def test_threads_take_scratch_each_and_of_a_batch_buffers() -> None:
    made = program(64, scratch=MIB, hidden=MIB, images=2)
    one, two, three = (need_of(made, threads) for threads in (1, 2, 3))
    assert [need.scratch for need in (one, two, three)] == [10, 20, 30]
    assert one.buffers < two.buffers and three.buffers == one.buffers
    assert need_of(replace(made, objects={"f.o": b"code"}), 1) == one


def test_nothing_is_compiled_of_what_is_refused() -> None:
    net = Net((1, 64, 12, 12))
    packed = pack(net.model(net.conv(net.quant(net.x, "a", 8, 0.5), "c", 256)), SSE2, MAC)
    bodies = synthesizing.run(model=packed, hardware=SSE2, memo=kept)
    schedules = scheduling.run(model=packed, hardware=SSE2, choices={})
    asked: list[str] = []

    def memo(kind: str, _problem: Mapping[str, object], _build: Callable[[], bytes]) -> bytes:
        asked.append(kind)
        return b""

    def linearized(memory_mib: int) -> Program:
        return program_of(packed, bodies, schedules, board(memory_mib, threads=2), memo)

    with pytest.raises(StageError, match=r"^the network takes "):
        linearized(SYSTEM_MIB)
    assert asked == []
    given = linearized(SYSTEM_MIB + 1)
    assert len(asked) == len(given.objects) > 0
    assert need_of(given, 2).total <= 10
