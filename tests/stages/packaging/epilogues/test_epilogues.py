"""Epilogues: no fused arithmetic, vectors everywhere, many thresholds in loops, clear refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect import integer
from stages.dialect.padding import NO_HALO
from stages.errors import StageError
from stages.graph.builder import FunctionBuilder
from stages.kernels import packed_edges
from stages.kernels.llvm import FunctionText
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import is_vectorizable
from stages.packaging.epilogues import vector_finisher
from stages.packaging.epilogues.channel_blocks import Epilogue
from stages.packaging.epilogues.threshold_counts import FEW
from stages.packaging.lowering import lower
from tests.hw.isa_code import caller
from tests.stages.packaging.kernel_cases import CASES
from tests.stages.packaging.listings import fused, listing
from tests.stages.packaging.programs import lowered, pack
from tests.stages.packaging.sums.test_composed_kernel import SCHEDULE
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2

TARGETS = pytest.mark.parametrize(
    "hardware", (AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
FLOAT_CASES = ("requantize_at_ties", "float_output_chain", "float_input_chain", "stem_and_head")


@TARGETS
@pytest.mark.parametrize(
    "name", (*FLOAT_CASES[:2], *(pytest.param(n, marks=pytest.mark.slow) for n in FLOAT_CASES[2:]))
)
def test_no_product_is_fused_with_a_sum(name: str, hardware: Hardware) -> None:
    case = CASES[name]()
    for kernel in lowered(pack(case.model, hardware, case.options), hardware).values():
        assert not fused(listing(kernel.function, hardware))


@TARGETS
def test_the_compiler_would_fuse_what_is_not_fenced(hardware: Hardware) -> None:
    code, kind = FunctionText(), f"<{isa_of(hardware).lanes} x float>"
    x, y, z = (code.load(kind, f"%{name}", 4) for name in "xyz")
    total = code.let(f"fadd {kind} {code.let(f'fmul {kind} {x}, {y}')}, {z}")
    code.store(kind, total, "%r", 4)
    code.do("ret void")
    text = code.function("line", [f"ptr %{name}" for name in "xyzr"])
    assert fused(listing(caller("k", [text], "line", [("float32", 16)] * 4), hardware))


@TARGETS
def test_epilogues_are_vectors(hardware: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TIR cannot vectorize is left to LLVM without a word, and takes several times as long."""

    def with_vectors(made: Callable[[Any], Kernel], hardware: Hardware) -> Kernel:
        kernel = made(T.vectorized)
        functions = (kernel.function, *(helper.function for helper in kernel.helpers))
        assert all(is_vectorizable(function, hardware) for function in functions)
        return kernel

    monkeypatch.setattr(vector_finisher, "with_vectors", with_vectors)
    for build in CASES.values():
        case = build()
        lowered(pack(case.model, hardware, case.options), hardware)


def composite(emit: Callable[[FunctionBuilder, Any], Any]) -> Any:
    """A packed composite around one emitted call on a float image [1, 1, 1, 32]."""
    builder = FunctionBuilder()
    data = builder.param("p1", (1, 1, 1, 32), "float32")
    value = builder.emit(emit(builder, data), "v")
    if "float" not in str(value.ty.dtype):
        attrs = {"halo": NO_HALO, "channels": 32, "packed_rows": 1, "phases": 1}
        value = builder.emit(packed_edges.to_bytes(value, **attrs), "bytes")
    return builder.finish([value], {"composite": "elementwise"})


def kernel_text(function: Any) -> str:
    return str(lower(function, "k", SCHEDULE, {}, SSE2).function)


def test_an_operator_without_a_form_is_named() -> None:
    def quantized(builder: FunctionBuilder, data: Any) -> Any:
        operands = builder.param("p2", (), "float32"), builder.param("p3", (), "float32")
        attrs = {"low": 0, "high": 3, "shift": 0, "rounding": "ROUND", "dtype": "uint2"}
        return integer.quantize(builder.emit(relax.op.nn.gelu(data), "g"), *operands, **attrs)

    function = composite(quantized)
    with pytest.raises(StageError, match=r"operator relax\.nn\.gelu has no epilogue form"):
        kernel_text(function)


@pytest.mark.parametrize(("levels", "loops"), ((FEW, 0), (FEW + 1, 1), (255, 1)))
def test_long_threshold_tables_become_loops(levels: int, loops: int) -> None:
    def thresholds(builder: FunctionBuilder, data: Any) -> Any:
        table = builder.param("p2", (levels, 32), "float32")
        flip = builder.param("p3", (32,), "uint8")
        return integer.threshold(data, table, flip, dtype="uint8")

    text = kernel_text(composite(thresholds))
    assert len(re.findall(rf"for \w+ in range\({levels}\)", text)) == loops


def test_the_form_behind_matrix_tiles_names_an_operator_too() -> None:
    function = composite(lambda _, data: relax.op.negative(data))
    with pytest.raises(StageError, match=r"operator relax\.negative has no epilogue form"):
        Epilogue(Composite(function), False).epilogue("e")
