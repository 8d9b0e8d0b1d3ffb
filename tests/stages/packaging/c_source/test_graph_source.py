"""The emitted C: golden text, and what names from a model file may do to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.kernels.signature import ALIGNMENT
from stages.numerics.qonnx_operators import ROUNDING
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.c_source.kernel_calls import comment
from stages.packaging.emitting.kernel import FewThreads
from stages.packaging.files.header import ROUNDED, header_source
from stages.packaging.program.arena import SLACK, plan
from stages.packaging.program.packed_constants import pack_constants
from tests.stages.packaging import golden_text
from tests.stages.packaging.support import AARCH64, ARMV7, X86_64, make_program, zig


def test_graph_source_is_as_agreed() -> None:
    program = make_program(AARCH64)
    text = graph_source(program, plan(program), pack_constants(program), AARCH64)
    golden_text.check("graph.c", text)


def test_few_threads_split_a_call_into_fewer_tasks() -> None:
    program = make_program(X86_64)
    first, *others = program.calls
    call = replace(first, max_tasks=8, few=FewThreads(threads=2, tasks=3))
    text = graph_source(
        replace(program, calls=(call, *others)), plan(program), pack_constants(program), X86_64
    )
    assert "rt_tasks(runtime, rt_threads(runtime) > 2 ? 8 : 3, 4)" in text


def test_header_is_as_agreed() -> None:
    golden_text.check("toy.h", header_source(make_program(ARMV7), "toy", ARMV7))


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({"scale": 0.5, "zero_point": 3}, "a stored q stands for 0.5 * (q - 3)"),
        (
            {"scale": float(np.float32(0.1)), "zero_point": -4.0},
            "a stored q stands for 0.1 * (q + 4)",
        ),
        ({"scale": 1.0, "zero_point": 0}, "a stored q stands for 1.0 * q"),
        (
            {"scale": 0.25, "zero_point": 0.0, "low": 0, "high": 255, "rounding": "ROUND"},
            "the package begins with q = x / 0.25, rounded to the nearest integer, halves to the "
            "even one, 0 at least, 255 at most",
        ),
        (
            {"scale": 0.25, "zero_point": -2.0, "low": -128, "high": 127, "rounding": "FLOOR"},
            "the package begins with q = x / 0.25 - 2, rounded down, -128 at least, 127 at most",
        ),
    ],
)
def test_quantization_is_said_in_words(quantization: dict[str, Any], said: str) -> None:
    toy = make_program(X86_64)
    inputs = (replace(toy.inputs[0], quantization=quantization),)
    text = header_source(replace(toy, inputs=inputs), "toy", X86_64)
    assert f" *        {said}\n" in text and "{'" not in text


def test_every_rounding_mode_has_words() -> None:
    assert set(ROUNDED) >= set(ROUNDING)


@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_header_compiles_alone(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "toy.h").write_text(header_source(make_program(X86_64), "toy", X86_64))
    source = tmp_path / f"use.{'c' if compiler == 'cc' else 'cc'}"
    source.write_text('#include "toy.h"\nint main(void) { return toy_abi_version(); }\n')
    zig(tmp_path, compiler, "-c", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source.name)


def test_equal_constants_are_stored_once_and_all_are_aligned() -> None:
    constants = pack_constants(make_program(X86_64))
    assert constants.offsets == {"table": 0, "bias": 256, "bias again": 256}
    assert all(offset % ALIGNMENT == 0 for offset in constants.offsets.values())
    assert constants.size == len(b"".join(constants.chunks())) == 256 + 20 + SLACK


@given(st.text())
def test_no_name_ends_a_comment(text: str) -> None:
    safe = comment(text)
    assert safe.isascii() and safe.isprintable()
    assert not set(safe) & set('*"\\')
