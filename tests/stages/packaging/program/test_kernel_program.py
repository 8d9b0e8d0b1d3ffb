"""A program that contradicts itself cannot be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stages.packaging.program.kernel_program import Call, Program, ProgramError, Slot, TensorSpec

X, Y = Slot("input", "x"), Slot("output", "y")
B, W = Slot("buffer", "b"), Slot("constant", "w")
FIRST = Call("f", "first", (X, W), (B,), 0, 1)
LAST = Call("g", "last", (B,), (Y,), 64, 4)


def make(**changes: Any) -> Program:
    fields: dict[str, Any] = {
        "inputs": (TensorSpec("x", "uint8", (4,)),),
        "outputs": (TensorSpec("y", "float32", (2, 2)),),
        "buffers": {"b": 64},
        "constants": {"w": np.zeros(3, np.int16)},
        "calls": (FIRST, LAST),
        "objects": {"k.o": b""},
    }
    return Program(**{**fields, **changes})


def test_a_sound_program_knows_its_sizes() -> None:
    program = make()
    assert [program.size(slot) for slot in (X, Y, B, W)] == [4, 16, 64, 6]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"calls": (LAST, FIRST)}, "reads buffer 'b', which nothing has written yet"),
        ({"calls": (FIRST,)}, "output 'y' is never written"),
        ({"buffers": {"b": 64, "c": 1}}, "buffer 'c' is never written"),
        ({"buffers": {"b": 0}}, "buffer 'b' has 0 bytes"),
        ({"buffers": {}}, "no buffer is named 'b'"),
        ({"constants": {}}, "no constant is named 'w'"),
        ({"constants": {"w": np.zeros(0)}}, "constant 'w' is empty"),
        ({"objects": {"a/k.o": b""}}, "'a/k.o' is not a plain file name"),
        ({"outputs": ()}, "it has no output"),
        ({"inputs": (TensorSpec("x", "uint8", (4,)),) * 2}, "two inputs are named 'x'"),
        ({"calls": (FIRST, Call("g", "l", (B,), (Y, W), 0, 1))}, "writes constant 'w'"),
        ({"calls": (FIRST, Call("g", "l", (B,), (Y, B), 0, 1))}, "reads and writes buffer 'b'"),
        ({"calls": (FIRST, Call("g g", "l", (B,), (Y,), 0, 1))}, "is no C identifier"),
        ({"calls": (FIRST, Call("f", "l", (B,), (Y,), 0, 1))}, "takes (1, 1) reads and writes"),
        ({"calls": (FIRST, Call("g", "l", (B,), (Y,), 0, 0))}, "max_tasks=0"),
        ({"calls": (FIRST, Call("g", "l", (B,), (), 0, 1), LAST)}, "writes nothing"),
        (
            {"calls": (FIRST, Call("g", "l", (Slot("buffer", "b", 64),), (Y,), 0, 1))},
            "offset 64 into 'b' of 64 bytes",
        ),
    ],
)
def test_a_contradiction_is_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProgramError) as caught:
        make(**changes)
    assert fault in str(caught.value)


def test_tensors_have_c_types_and_extents() -> None:
    with pytest.raises(ProgramError, match="dtype 'int4'; accepted: bool, int8"):
        TensorSpec("x", "int4", (1,))
    with pytest.raises(ProgramError, match="every extent must be positive"):
        TensorSpec("x", "int8", (1, 0))


OF_TWO: dict[str, Any] = {
    "inputs": (TensorSpec("x", "uint8", (2, 4)),),
    "outputs": (TensorSpec("y", "float32", (2, 2)),),
    "buffers": {"b": 128},
    "images": 2,
    "batch_call_count": 1,
}


def test_calls_that_are_run_once_find_all_images() -> None:
    program = make(**OF_TWO)
    assert (program.calls_per_image, program.calls_per_batch) == ((FIRST,), (LAST,))
    assert program.collected == {"b": 64}
    assert program.outputs_per_batch == {"y"}
    assert [program.size(slot) for slot in (X, Y, B)] == [4, 16, 128]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"images": 1}, "calls are to be run once for a batch that is none"),
        ({"buffers": {"b": 64}}, "buffer 'b' of 2 images has 64 bytes"),
        ({"inputs": (TensorSpec("x", "uint8", (4,)),)}, "input 'x' is not of 2 images"),
        (
            {"batch_call_count": 0, "outputs": (TensorSpec("y", "float32", (1, 4)),)},
            "output 'y' is not of 2 images",
        ),
        (
            {"calls": (FIRST, Call("g", "last", (B, X), (Y,), 0, 1))},
            "reads input 'x' of all images at once",
        ),
        (
            {"calls": (Call("f", "first", (X, W), (B, Y), 0, 1), LAST)},
            "call of f (first): writes an output of all images",
        ),
    ],
)
def test_a_contradiction_of_a_batch_is_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProgramError) as caught:
        make(**{**OF_TWO, **changes})
    assert fault in str(caught.value)
