"""Tiles whose sums stay in registers: which are so, and that nothing of them goes to memory."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from hw.profile import Hardware
from stages import synthesizing
from stages.dialect import integer
from stages.kernels.widened_windows import widened
from stages.kinds import Model
from stages.packaging.emitting.kernel import Kernel
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import BIT, MAC
from tests.stages.packaging.level_net import Net as QuantizerNet
from tests.stages.packaging.listings import listing
from tests.stages.packaging.programs import assert_exact, lowered, pack
from tests.stages.packaging.sums.convolution_nets import added
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512VBMI,
    AVX512VNNI,
    AVX512VPOPCNTDQ,
    SSE2,
    skip_unless_runnable,
)

TARGETS = (SSE2, AVX2, AVX512VNNI, AVX512VBMI, AARCH64, ARMV7)
EACH = pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)


def layer(outputs: int = 64, groups: int = 1) -> Model:
    """A 3x3 convolution of what a pooling computes."""
    net = Net((1, 16, 16, 64))
    x = net.emit(integer.max_pool2d(net.x, kernel=[2, 2], strides=[1, 1], padding=[0] * 4), "p")
    return net.model(net.conv(x, "c", outputs, groups=groups))


def kernels(model: Model, hardware: Hardware) -> list[Kernel]:
    """Those of convolutions, whatever computes their sums."""
    found = lowered(pack(model, hardware, MAC), hardware)
    return [kernel for name, kernel in found.items() if not name.startswith("plain")]


def in_registers(kernel: Kernel) -> bool:
    """Whether no function of its own writes sums, or several, to memory."""
    has_sums = any(helper.symbol.startswith("sums_") for helper in kernel.helpers)
    return not has_sums and not kernel.uses_tiles


@EACH
@pytest.mark.parametrize("groups", [1, 64])
def test_sums_need_no_scratch(hardware: Hardware, groups: int) -> None:
    """Windows that are widened do."""
    model = layer(groups=groups)
    (kernel,) = kernels(model, hardware)
    assert in_registers(kernel)
    signatures = synthesizing.wanted(pack(model, hardware, MAC))
    wide = [widened(s.rows, (3, 3), 1, 64).size for s in signatures if s.is_widened]
    assert kernel.scratch_bytes == 2 * sum(wide)


def stores(kernel: Kernel, hardware: Hardware = AVX512VBMI) -> list[str]:
    """The lines of a kernel's tiles that store a register as it is, where it has a function."""
    functions = [tile.function for tile in kernel.helpers] or [kernel.function]
    lines = [line for function in functions for line in listing(function, hardware)]
    return [line for line in lines if re.match(r"\tvmov\w+\t%zmm\d+, .*\(", line)]


@pytest.mark.parametrize(("width", "stays"), [(8, True), (14, False)])
def test_tiles_that_leave_registers_stay_in_the_loop(width: int, stays: bool) -> None:
    """Half of the 32, to constants of the epilogue: sums of 8 pixels take 16, of 14 do not."""
    net = Net((1, width, width, 32))
    (kernel,) = kernels(net.model(net.conv(net.x, "c", 32)), AVX512VBMI)
    assert bool(kernel.helpers) == (not stays)
    assert not stores(kernel)


def test_bits_that_are_counted_in_32_are_not_stored() -> None:
    """Their counters are never emptied: the epilogue makes levels of them where they are."""
    net = QuantizerNet((1, 64, 16, 16))
    x = net.quant(net.quant(net.x, "a", 1, 0.5), "b", 1, 0.5)
    y = net.quant(net.conv(x, "c", 64, 3, 1, 1, "bipolar"), "d", 1, 0.5)
    found = lowered(pack(net.model(net.conv(y, "e", 32)), AVX512VPOPCNTDQ, BIT), AVX512VPOPCNTDQ)
    kernel = found["qnn_bitserial_conv2d"]
    assert in_registers(kernel) and kernel.scratch_bytes == 0
    assert not [line for line in stores(kernel, AVX512VPOPCNTDQ) if "%rsp" in line]


@pytest.mark.parametrize("groups", [1, 64])
def test_sums_are_not_stored(groups: int) -> None:
    """28 or 16 registers of them, and an epilogue in the others but for a constant or two."""
    (kernel,) = kernels(layer(groups=groups), AVX512VBMI)
    assert len(stores(kernel)) <= 2


def test_sums_that_a_image_is_added_to_are_not_stored() -> None:
    """Though the epilogue has more constants than there are registers left."""
    _, model = added((1, 14, 28), is_deep=False)
    first, second = kernels(model, AVX512VBMI)
    assert in_registers(first) and in_registers(second)
    assert len(stores(first) + stores(second)) <= 6


def test_sums_of_matrix_tiles_go_through_scratch() -> None:
    (kernel,) = kernels(layer(), AMX)
    assert not in_registers(kernel)
    assert kernel.scratch_bytes > 0


@pytest.mark.parametrize("hardware", [AVX512VBMI, AMX], ids=lambda item: item.name)
def test_an_epilogue_adds_no_bias_and_packs_bytes(hardware: Hardware) -> None:
    """Sums begin with it; of two registers one is made, by instructions that saturate."""
    (kernel,) = kernels(layer(), hardware)
    functions = (kernel.function, *(helper.function for helper in kernel.helpers))
    lines = [line for function in functions for line in listing(function, hardware)]
    found = Counter(line.split()[0] for line in lines if "%zmm" in line)
    assert found["vpacksswb"] and found["vpackssdw"] == found["vpacksswb"]
    assert not found["vpmovsdb"] and not found["vmaxps"]
    # What is added to all channels alike is the zero point.
    accumulate_rows = [line for line in lines if "vpaddd" in line and "(" in line]
    assert all("{1to16}" in line or "(%rip)" in line for line in accumulate_rows)


@EACH
@pytest.mark.parametrize("outputs", [8, 24, 33, 72])
def test_blocks_that_are_not_full(hardware: Hardware, outputs: int) -> None:
    """A strip with fewer channels than others, or with none at all."""
    skip_unless_runnable(hardware)
    net = Net((1, 16, 16, 64))
    assert_exact(layer(outputs), net.inputs(), hardware, MAC, tasks=(1, 3))
