"""Floats to 64-bit integers and back on 32-bit ARM, where LLVM calls functions of the runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.package import open_package
from stages.codegen import caller, compile_object
from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.program.kernel_program import Call, Program, Slot, TensorSpec
from tests.stages.packaging.support import ARMV7, assembled, write

pytest.importorskip("unicorn", reason="needs the extra 'emulator'")

LLVM = {"float32": "float", "float64": "double", "int64": "i64", "uint64": "i64"}
CASES = [
    *(("fptosi", real, "int64") for real in ("float32", "float64")),
    *(("fptoui", real, "uint64") for real in ("float32", "float64")),
    *(("sitofp", "int64", real) for real in ("float32", "float64")),
    *(("uitofp", "uint64", real) for real in ("float32", "float64")),
]
"""LLVM's instruction, and what it makes of what."""


def values(dtype: str) -> np.ndarray:
    """Numbers of every size, and those beside which a float has no fraction or a bit is lost."""
    powers = 2.0 ** np.arange(-2, 63)
    if np.dtype(dtype).kind == "f":
        return np.concatenate([powers, powers * 1.3, [0.0, 0.5, 1.5, 2**24 - 1]]).astype(dtype)
    whole = powers[2:].astype(dtype)
    return np.concatenate([whole, whole - 1, whole + 1, whole // 3]).astype(dtype)


def program(name: str, given: np.ndarray, made: str) -> Program:
    """A network of one kernel, as LLVM compiles it for TVM, that converts all of `given`."""
    source, target = LLVM[str(given.dtype)], LLVM[made]
    text = f"""
define internal void @loop(ptr %x, ptr %y, ptr %scratch, ptr %task, ptr %n) {{
entry:
  br label %body
body:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr {source}, ptr %x, i32 %i
  %to = getelementptr {target}, ptr %y, i32 %i
  %read = load {source}, ptr %from
  %made = {name} {source} %read to {target}
  store {target} %made, ptr %to
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, {given.size}
  br i1 %again, label %body, label %done
done:
  ret void
}}
"""
    kernel = compile_object({"convert": caller("convert", "loop", (text, []), 5, ())}, ARMV7)
    return Program(
        inputs=(TensorSpec("x", str(given.dtype), (given.size,)),),
        outputs=(TensorSpec("y", made, (given.size,)),),
        buffers={},
        constants={},
        calls=(Call("convert", "all", (Slot("input", "x"),), (Slot("output", "y"),), 0, 1),),
        objects={"convert.o": kernel},
    )


@pytest.mark.parametrize(("name", "source", "target"), CASES)
def test_conversions_of_64_bits(name: str, source: str, target: str, tmp_path: Path) -> None:
    given = values(source)
    if source in ("float32", "float64", "int64") and target != "uint64":
        given = np.concatenate([given, -given])
    expected = given.astype(target)
    files = assembled(
        program=program(name, given, target),
        golden=Golden({"x": given[None]}, {"y": expected[None]}),
        options=PackageOptions(name="toy"),  # all formats: each is linked
        hardware=ARMV7,
        provenance={},
    )
    runner = EmulatedRunner(open_package(write(tmp_path, files)))
    np.testing.assert_array_equal(runner.run({"x": given})["y"], expected)
