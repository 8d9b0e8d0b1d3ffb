"""Depthwise convolutions with taps side by side: any window, on every instruction set."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tvm import relax

from hw.isa import isa_of
from hw.isa.instruction import Vector, helper
from hw.isa.instruction_set import Dot, Isa
from hw.isa.operation import Operation
from hw.profile import Hardware
from pipelines.benchmarks.peaks import linked
from stages.codegen import caller, compile_object
from stages.dialect.operators import OPERATORS
from stages.graph.bindings import calls_of
from stages.kernels.packed_depthwise import pack_depthwise, unpack_depthwise
from stages.packaging.sums.depthwise_text import NAME, Tile, depthwise_text
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact, pack
from tests.targets import (
    AARCH64,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VBMI,
    AVX512VNNI,
    SSE2,
    VNNI_256,
    is_native,
    skip_unless_runnable,
)

op = relax.op
TARGETS = pytest.mark.parametrize(
    "hardware",
    (SSE2, AVX2, VNNI_256, AVX512BW, AVX512VNNI, AVX512VBMI, AARCH64, ARMV7),
    ids=lambda p: p.name,
)
CASES = st.fixed_dictionaries(
    {
        "size": st.tuples(st.integers(5, 9), st.integers(5, 19)),
        "window": st.tuples(st.integers(1, 5), st.integers(1, 5)),
        "channels": st.sampled_from([1, 5, 8, 24, 32, 33, 70]),
        "strides": st.tuples(st.integers(1, 2), st.integers(1, 3)),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 1)),
        "is_signed": st.booleans(),
        "weight": st.sampled_from([("int8", 0), ("uint8", 117)]),
        "seed": st.integers(0, 9),
    }
)


@given(
    arrays.arrays(np.int8, st.tuples(*[st.integers(1, 5)] * 2, st.integers(1, 70))),
    st.sampled_from([1, 2, 4]),
)
def test_weights_come_back(levels: Any, group: int) -> None:
    packed = pack_depthwise(levels, group, "int8")
    assert packed.shape[2:] == (32, group)
    found = unpack_depthwise(packed, levels.shape[:2], levels.shape[2])
    assert np.array_equal(found, levels)


def network(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A depthwise convolution of what is computed, padded, with all that may follow it."""
    dtype = "int8" if case["is_signed"] else "uint8"
    net = Net((1, *case["size"], case["channels"]), dtype, case["seed"])
    x = net.emit(op.maximum(net.x, net.builder.tensor("low", np.array(3, dtype))), "bounded")
    y = net.conv(
        x,
        "dw",
        case["channels"],
        kernel=1,
        groups=case["channels"],
        zero_point=7,
        window=case["window"],
        strides=list(case["strides"]),
        dilation=list(case["dilation"]),
        padding=[2, 1, 2, 2],
        weight_dtype=case["weight"][0],
        weight_zero_point=case["weight"][1],
    )
    return net.model(y), net.inputs()


@pytest.mark.slow
@TARGETS
@settings(max_examples=12)
@given(case=CASES)
def test_any_window_gives_the_models_bits(hardware: Hardware, case: dict[str, Any]) -> None:
    skip_unless_runnable(hardware)
    assert_exact(*network(case), hardware, tasks=(1, 3))


CASE: dict[str, Any] = {
    "size": (7, 9), "window": (3, 3), "channels": 40, "strides": (1, 1), "dilation": (1, 1),
    "is_signed": True, "weight": ("int8", 0), "seed": 0,
}  # fmt: skip


@TARGETS
@pytest.mark.parametrize("weight", [("int8", 0), ("uint8", 117)])
def test_which_are_computed_so(hardware: Hardware, weight: tuple[str, int]) -> None:
    """All, though bytes less a zero point need operands of 16 bits."""
    model, inputs = network(CASE | {"weight": weight})
    packed = pack(model, hardware)
    assert str(packed.module).count("R.qnn.packed_depthwise(") == 1
    kinds = {v.dtype for name, v in packed.params.items() if name.startswith("dw.weights")}
    is_byte = isa_of(hardware)[Operation.DOT].operands[2].bits == 8 and weight[0] == "int8"
    assert kinds == {np.dtype(np.int8 if is_byte else np.int16)}
    skip_unless_runnable(hardware)
    assert_exact(model, inputs, hardware)


@pytest.mark.parametrize("hardware", [AVX2, AARCH64], ids=lambda p: p.name)
def test_a_result_is_written_with_the_halo_of_the_next_window(hardware: Hardware) -> None:
    """No pass over memory lays it out in front of the layer that reads it."""
    skip_unless_runnable(hardware)
    net = Net((1, 9, 7, 32), "uint8")
    data: dict[str, Any] = {"dtype": "uint8", "zero_point": 123}
    x = net.conv(net.conv(net.x, "first", 32, kernel=1, **data), "taps", 32, groups=32, **data)
    model = net.model(net.conv(x, "next", 40, **data))
    packed, _ = assert_exact(model, net.inputs(), hardware)
    assert "next.bytes" not in [str(binding.var.name) for binding, _ in calls_of(packed)]


def four_at_once(lanes: int) -> Isa:
    """An instruction set that multiplies four bytes at once, whatever the processor has."""
    wide, narrow = Vector(lanes, 32), Vector(4 * lanes, 8)
    words = f"<{4 * lanes} x i32>"
    quarters = "\n".join(
        f"shufflevector {words} %c, {words} poison, <{lanes} x i32> "
        f"<{', '.join(f'i32 {4 * lane + part}' for lane in range(lanes))}>"
        for part in range(4)
    )
    dot = helper(
        "four_bytes",
        (wide, narrow, narrow),
        wide,
        f"zext {narrow.llvm} %1 to {words}\nsext {narrow.llvm} %2 to {words}\n"
        f"mul {words} %a, %b\n{quarters}\n"
        f"add {wide.llvm} %d, %e\nadd {wide.llvm} %f, %g\n"
        f"add {wide.llvm} %h, %i\nadd {wide.llvm} %0, %j",
        lambda total, x, y: total,
    )
    return replace(
        isa_of(AVX2), lanes=lanes, rows={Operation.DOT: dot}, dots=(Dot(Operation.DOT, 4),)
    )


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("window", [(3, 3), (5, 2), (1, 4)])
def test_four_taps_at_once(lanes: int, is_signed: bool, window: tuple[int, int]) -> None:
    """What VNNI's instruction multiplies, tried with one made of others."""
    hardware = next((h for h in (AVX2, SSE2, AARCH64) if is_native(h)), None)
    if hardware is None:
        pytest.skip("no profile of the tests is of this processor's kind")
    rng, (kh, kw), pixels, width = np.random.default_rng(lanes), window, 3, 11
    dtype, offset = ("int8", 128) if is_signed else ("uint8", 0)
    data = rng.integers(0, 256, (1, kh, width, lanes), np.uint8).view(dtype)
    weights = pack_depthwise(rng.integers(-128, 128, (kh, kw, lanes)), 4, "int8")
    tile = Tile(
        pixels=pixels,
        channels=lanes,
        step=2 * lanes,
        columns=tuple(x * lanes for x in range(kw)),
        rows=tuple(y * width * lanes for y in range(kh)),
        is_signed=is_signed,
        offset=offset,
    )
    bias = rng.integers(-999, 999, 32, np.int32)
    isa = four_at_once(lanes)
    function = caller("tried", NAME, depthwise_text(tile, isa, isa[Operation.DOT]), 4, ())
    library = linked({"tried.o": compile_object({"tried": function}, hardware)})
    sums = np.zeros((pixels, 32), np.int32)
    library.tried(*(ctypes.c_void_p(array.ctypes.data) for array in (data, weights, sums, bias)))
    expected = OPERATORS["relax.qnn.packed_depthwise"].meaning(
        data, weights, bias, window=window, strides=[1, 2], dilation=[1, 1], offset=offset
    )
    assert np.array_equal(sums[:, :lanes], expected[0, 0, :pixels, :lanes])
