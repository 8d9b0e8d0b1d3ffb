"""Epilogues: no fused arithmetic, every rounding mode, clear refusals."""

from __future__ import annotations

import pytest
from tvm import relax

from hw.isa import isa_of
from hw.profile import Hardware
from stages.errors import StageError
from stages.packaging.epilogue import Epilogue
from stages.packaging.values import MAX_MASKS
from stages.packaging.vectors import ROUNDING_MODES, Vectors
from stages.qnn import integer
from stages.qnn.builder import FunctionBuilder
from stages.qnn.source import ROUNDING
from tests.hw.isa_code import caller
from tests.stages.packaging.kernel_cases import CASES
from tests.stages.packaging.listings import fused, listing
from tests.stages.packaging.programs import lowered, pack
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW

FUSING = pytest.mark.parametrize(
    "hardware", (AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
FLOAT_CASES = ("requantize_at_ties", "float_output_chain", "float_input_chain", "stem_and_head")


@FUSING
@pytest.mark.parametrize(
    "name", (*FLOAT_CASES[:2], *(pytest.param(n, marks=pytest.mark.slow) for n in FLOAT_CASES[2:]))
)
def test_no_product_is_fused_with_a_sum(name: str, hardware: Hardware) -> None:
    case = CASES[name]()
    for kernel in lowered(pack(case.model, hardware, case.options), hardware).values():
        assert not fused(listing(kernel.function, hardware))


def multiply_add(hardware: Hardware, fenced: bool) -> list[str]:
    """`r = x * y + z` on vectors, with the fence of epilogues or without."""
    code = Vectors(hardware.architecture, isa_of(hardware).lanes)
    x, y, z = (code.load(code.floats, f"%{name}", 4) for name in "xyz")
    product = code.arithmetic("fmul", x, y) if fenced else code.let(f"fmul {code.floats} {x}, {y}")
    code.store(code.floats, code.let(f"fadd {code.floats} {product}, {z}"), "%r", 4)
    code.do("ret void")
    text = code.function("line", [f"ptr %{name}" for name in "xyzr"])
    buffers = [("float32", 16)] * 4
    return listing(caller("k", [*code.declarations, text], "line", buffers), hardware)


@FUSING
def test_the_compiler_would_fuse_what_is_not_fenced(hardware: Hardware) -> None:
    assert fused(multiply_add(hardware, fenced=False))
    assert not fused(multiply_add(hardware, fenced=True))


def test_every_rounding_mode_of_quantizers_has_a_form() -> None:
    assert set(ROUNDING_MODES) == set(ROUNDING)


def test_the_fence_adds_no_instruction() -> None:
    plain, fenced = (multiply_add(AVX512BW, fenced) for fenced in (False, True))
    assert len(fenced) <= len(plain) + 2 * 16


def composite(emit: object) -> object:
    """A packed composite around one emitted call on an accumulator int32 [1, 1, 1, 32]."""
    builder = FunctionBuilder()
    data = builder.param("p1", (1, 1, 1, 32), "int32")
    value = builder.emit(emit(builder, data), "v")  # type: ignore[operator]
    return builder.finish([value], {"composite": "elementwise"})


def test_an_operator_without_a_form_is_named() -> None:
    function = composite(lambda _, data: relax.op.negative(data))
    with pytest.raises(StageError, match=r"operator relax\.negative has no epilogue form"):
        Epilogue(function, "x86_64", False).text("e")


@pytest.mark.parametrize(("levels", "loops"), ((MAX_MASKS, 0), (MAX_MASKS + 1, 2), (255, 2)))
def test_long_threshold_tables_become_loops(levels: int, loops: int) -> None:
    def thresholds(builder: FunctionBuilder, data: object) -> object:
        table = builder.param("p2", (levels, 32), "int32")
        flip = builder.param("p3", (32,), "uint8")
        return integer.threshold(data, table, flip, dtype="uint8")

    text, _ = Epilogue(composite(thresholds), "x86_64", False).text("e")
    assert text.count(" = phi i64 ") == loops
    assert text.count("icmp sge") == (2 * levels if not loops else 2)


def test_a_constant_is_written_as_llvm_reads_it() -> None:
    code = Vectors("x86_64")
    assert code.constant("<2 x i8>", 3).startswith("<i8 3, ")
    assert code.constant(code.floats, 3).startswith("<float 3.0, ")
    assert code.constant(code.floats, -0.5).startswith("<float -0.5, ")
