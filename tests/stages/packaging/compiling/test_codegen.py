"""Compiling: bare C functions, no symbol of a runtime, the same bytes every time."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.profile import Hardware
from stages.codegen import build_library, compile_object, target_of
from stages.nodes import PrimFunc
from stages.packaging.compiling.object_file import ObjectFile
from tests.compiled import Library
from tests.targets import AARCH64, ARMV7, AVX512VPOPCNTDQ, EVERY, SSE2, skip_unless_runnable

N = 37


def scale(symbol: str = "scale") -> PrimFunc:
    """`y[i] = x[i] * factor + i`, the buffers first, then a number."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        x = T.arg("x", T.Buffer((N,), "int16"))
        y = T.arg("y", T.Buffer((N,), "int32"))
        factor = T.arg("factor", T.int32())
        with T.serial(0, N) as i:
            T.buffer_store(y, T.Cast("int32", x[i]) * factor + i, [i])
    return builder.get()


@EVERY
def test_buffers_become_pointers(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    data = compile_object({"scale": scale()}, hardware)
    assert [s.name for s in ObjectFile(data, "k.o").symbols if not s.is_weak] == ["scale"]
    x = np.arange(-18, N - 18).astype(np.int16)
    y = np.zeros(N, np.int32)
    Library({"k.o": data}, hardware).call("scale", x, y, 1000)
    np.testing.assert_array_equal(y, x.astype(np.int32) * 1000 + np.arange(N))


def test_several_functions_share_an_object() -> None:
    data = compile_object({"one": scale("one"), "two": scale("two")}, SSE2)
    strong = {s.name for s in ObjectFile(data, "k.o").symbols if not s.is_weak}
    assert strong == {"one", "two"}


@pytest.mark.parametrize("hardware", (SSE2, AARCH64, ARMV7), ids=lambda item: item.name)
def test_equal_functions_give_equal_bytes(hardware: Hardware) -> None:
    first, second = (compile_object({"scale": scale()}, hardware) for _ in range(2))
    assert first == second


def test_a_target_has_what_the_profile_says() -> None:
    target = target_of(AVX512VPOPCNTDQ)
    assert target.attrs["mtriple"] == "x86_64-linux-gnu" and target.attrs["mcpu"] == "x86-64"
    assert [str(f) for f in target.attrs["mattr"]] == list(AVX512VPOPCNTDQ.features)
    assert target_of(ARMV7).attrs["mfloat-abi"] == "hard"
    assert "mfloat-abi" not in target_of(AARCH64).attrs


def test_loads_and_stores_need_no_test_for_overlap() -> None:
    """The parameters are promised not to alias, so the loop is a vector loop without checks."""
    text = str(build_library({"scale": scale()}, SSE2).inspect_source("ll"))
    head = next(
        line for line in text.splitlines() if line.startswith("define") and "@scale" in line
    )
    assert head.count("noalias") == 2
