"""Functions of one byte, compiled: tables that are looked up a register at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect import integer
from stages.dialect.calls import is_op
from stages.dialect.padding import NO_PADDING
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from stages.numerics import linear_quantizers, onnx_elementwise, rescale
from stages.packaging.emitting.byte_lut import has_byte_lut
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.listings import count, innermost_loops, listing
from tests.stages.packaging.programs import assert_exact, lowered, pack
from tests.targets import (
    AARCH64,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VBMI,
    SSE2,
    skip_unless_runnable,
)

PROFILES = [
    SSE2,
    AVX2,
    AVX512BW,
    AVX512VBMI,
    AARCH64,
    pytest.param(ARMV7, marks=pytest.mark.slow),
]
EVERY = pytest.mark.parametrize("hardware", PROFILES, ids=lambda item: item.name)


def looked_up(net: Net, data: Any, name: str, dtype: str = "int8") -> Any:
    """Any function of a byte."""
    values = net.rng.permutation(256).astype(np.uint8).view(dtype)
    return net.emit(rescale.table(data, net.builder.tensor(f"{name}.values", values)), name)


def silu(net: Net, data: Any, name: str) -> Any:
    """A byte times a function of it."""
    gate = looked_up(net, data, f"{name}.gate")
    ratio = net.builder.tensor(f"{name}.ratio", np.array(0.013, np.float32))
    return net.emit(
        onnx_elementwise.qlinear_mul(
            data, gate, ratio, lhs_zero_point=3, rhs_zero_point=-128, zero_point=-20,
            low=-128, high=127, offset=128,
        ),
        name,
    )  # fmt: skip


@EVERY
@pytest.mark.parametrize("size", [1, 31, 64, 200, 1023, 4096])
@pytest.mark.parametrize("kinds", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
def test_every_byte(kinds: tuple[str, str], size: int, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((1, size), kinds[0])
    assert_exact(net.model(looked_up(net, net.x, "t", kinds[1])), net.inputs(), hardware)


@pytest.mark.parametrize("size", [15, 16, 17, 33, 63, 65, 511, 513, 1040])
def test_lines_of_registers_end_anywhere(size: int) -> None:
    skip_unless_runnable(AARCH64)
    net = Net((1, size))
    assert_exact(net.model(looked_up(net, net.x, "t", "uint8")), net.inputs(), AARCH64)


@EVERY
@pytest.mark.parametrize("channels", [8, 16, 24, 32, 72])
def test_behind_products(channels: int, hardware: Hardware) -> None:
    """Results that products read with a halo, and the user as they are."""
    skip_unless_runnable(hardware)
    net = Net((1, 6, 7, 12))
    x = silu(net, net.conv(net.x, "a", channels), "a.silu")
    y = looked_up(net, net.conv(x, "b", channels, dtype="uint8"), "b.table")
    assert_exact(net.model(y, net.conv(y, "c", 8, kernel=1)), net.inputs(), hardware)


@pytest.mark.parametrize(
    ("shape", "channels", "kernel"),
    [
        pytest.param((1, 12, 12, 32), 40, 3, id="winograd"),
        pytest.param((2, 5, 5, 32), 20, 1, id="joined rows"),
        pytest.param((1, 1, 1, 64), 100, 1, id="one pixel"),
        pytest.param((1, 5, 5, 32), 9, 3, id="channels that are no eight"),
    ],
)
def test_bytes_of_tiles_are_looked_up_together(
    shape: tuple[int, ...], channels: int, kernel: int
) -> None:
    skip_unless_runnable(AARCH64)
    net = Net(shape)
    y = net.conv(net.x, "a", channels, kernel=kernel, dtype="uint8")
    assert_exact(net.model(looked_up(net, y, "a.table"), y), net.inputs(), AARCH64)


@pytest.mark.parametrize(
    ("low", "high", "fours"),
    [(-128, 127, 4), (-9, 54, 1), (64, 127, 1), (-9, 55, 2), (-128, -127, 1), (-60, 127, 3)],
)
def test_as_many_registers_as_there_are_bytes(low: int, high: int, fours: int) -> None:
    """A look-up finds 64 bytes, wherever they begin."""
    skip_unless_runnable(AARCH64)
    net = Net((1, 4, 4, 32))
    weights = net.builder.tensor("w", net.rng.integers(-128, 128, (32, 1, 1, 32)).astype(np.int8))
    scale = net.builder.tensor("scale", np.full(32, 1e-3, np.float32))
    attrs = {"strides": [1, 1], "padding": NO_PADDING, "groups": 1}
    points = {"data_zero_point": 0, "weight_zero_point": 0}
    sums = net.emit(integer.conv2d(net.x, weights, **attrs, **points), "sums")
    y = rescale.rescale(sums, scale, zero_point=5, low=low, high=high, dtype="int8", fits=True)
    model = net.model(looked_up(net, net.emit(y, "bytes"), "t"))
    assert_exact(model, net.inputs(), AARCH64)
    lines = code_of(model)
    assert count(lines, "tbl") and count(lines, "tbx") == (fours - 1) * count(lines, "tbl")


def test_a_table_of_its_own_is_looked_up_by_seven_instructions_a_register() -> None:
    """Two registers a turn, whose table was loaded in front of all."""
    net = Net((1, 4096))
    loops = [
        loop
        for loop in innermost_loops(code_of(net.model(looked_up(net, net.x, "t"))))
        if count(loop, "tbl")
    ]
    for loop in loops:
        assert [count(loop, name) for name in ("tbl", "tbx", "stp")] == [2, 6, 1]
        assert len(loop) <= 23  # a Cortex-A53 loads both registers by themselves
    assert loops


def test_the_code_of_an_epilogue() -> None:
    """For a tile of 64 bytes 16 look-ups, and not a byte that is looked up alone."""
    net = Net((1, 6, 8, 32))
    lines = code_of(net.model(looked_up(net, net.conv(net.x, "a", 32), "t")))
    assert (count(lines, "tbl"), count(lines, "tbx")) == (4, 12)
    assert not any(".b }[" in line for line in lines)
    assert not count(lines, "ldrb")


def code_of(model: Model) -> list[str]:
    """The assembly of all kernels."""
    kernels = lowered(pack(model, AARCH64), AARCH64).values()
    functions = [f for k in kernels for f in (k.function, *(h.function for h in k.helpers))]
    return [line for function in functions for line in listing(function, AARCH64)]


@EVERY
def test_values_may_be_larger_than_bytes(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((1, 6, 7, 12))
    values = net.builder.tensor("values", np.arange(256, dtype=np.int16) * 99)
    y = net.emit(rescale.table(net.conv(net.x, "a", 32), values), "words")
    assert_exact(net.model(y), net.inputs(), hardware)


def test_what_a_byte_is_multiplied_by_is_no_pass_of_its_own() -> None:
    net = Net((1, 6, 7, 12), "uint8")
    x = silu(net, net.conv(net.x, "a", 32), "a.silu")
    packed = pack(net.model(net.conv(x, "b", 32)), AVX512VBMI)
    calls = [b.value for f in packed.module.functions.values() for b in bindings_of(f)]
    assert not any(is_op(call, "relax.qnn.qlinear_mul") for call in calls)
    assert not any(is_op(call, "relax.qnn.rebase") for call in calls)
    assert sum(is_op(call, "relax.qnn.table") for call in calls) == 1


def test_what_floats_make_of_a_byte_is_one_table() -> None:
    """A GELU as quantizers of every step leave it: a byte, a function of it, a sum, a product."""
    skip_unless_runnable(SSE2)
    net = Net((1, 5, 30))
    scale, half = (
        net.builder.tensor(n, np.array(v, np.float32)) for n, v in (("s", 0.02), ("h", 0.5))
    )
    point = net.builder.tensor("p", np.array(-4, np.int8))

    def real(data: Any, name: str) -> Any:
        return net.emit(linear_quantizers.dequantize_linear(data, scale, point), name)

    gate = net.emit(relax.op.add(real(looked_up(net, net.x, "erf"), "wide"), half), "moved")
    y = net.emit(relax.op.multiply(gate, real(net.x, "x_wide")), "product")
    y = net.emit(linear_quantizers.quantize_linear(y, scale, point, low=-128, high=127), "bytes")
    packed, program = assert_exact(net.model(y), net.inputs(), SSE2)
    assert len(program.calls) == 1 and "dequantize" not in str(packed.module)


def test_what_integers_make_of_a_byte_stays() -> None:
    """Such as a uint8 image as int8, which is a part of laying it out."""
    net = Net((1, 5, 6, 3), "uint8")
    wide = net.emit(relax.op.astype(net.x, "int32"), "wide")
    moved = net.emit(
        relax.op.subtract(wide, net.builder.tensor("less", np.array(128, np.int32))), "moved"
    )
    x = net.emit(relax.op.astype(moved, "int8"), "signed")
    assert "qnn.table" not in str(pack(net.model(net.conv(x, "c", 8)), AVX2).module)


def test_bytes_of_other_positions_are_not_the_same() -> None:
    """A product of an image and its transpose stays one."""
    skip_unless_runnable(AVX2)
    net = Net((1, 8, 8))
    turned = net.emit(relax.op.permute_dims(net.x, [0, 2, 1]), "turned")
    ratio = net.builder.tensor("ratio", np.array(0.01, np.float32))
    points = {"lhs_zero_point": 0, "rhs_zero_point": 1, "zero_point": 2, "offset": 128}
    y = onnx_elementwise.qlinear_mul(net.x, turned, ratio, **points, low=-128, high=127)
    packed, _ = assert_exact(net.model(net.emit(y, "y")), net.inputs(), AVX2)
    assert "qlinear_mul" in str(packed.module)


def test_which_sets_look_up_registers() -> None:
    profiles = (SSE2, AVX2, AVX512BW, AVX512VBMI, AARCH64, ARMV7)
    found = [p.name for p in profiles if has_byte_lut(isa_of(p))]
    assert found == [AVX2.name, AVX512BW.name, AVX512VBMI.name, AARCH64.name]
