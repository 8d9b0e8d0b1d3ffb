"""Tiles whose sums stay in registers: which are so, and that nothing of them goes to memory."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from hw.profile import Hardware
from stages import synthesizing
from stages.kinds import Model
from stages.packaging.kernel import Kernel
from stages.qnn import integer
from stages.qnn.widening import widened
from tests.stages.packaging.kernel_cases import MAC
from tests.stages.packaging.listings import listing
from tests.stages.packaging.programs import assert_exact, lowered, pack
from tests.stages.packaging.test_convolution import added
from tests.stages.packaging.test_plain import Net
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512VBMI,
    AVX512VNNI,
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
    found = lowered(pack(model, hardware, MAC), hardware).values()
    return [kernel for kernel in found if kernel.helpers or kernel.uses_tiles]


def is_direct(kernel: Kernel) -> bool:
    return any(helper.symbol.startswith("tile_") for helper in kernel.helpers)


@EACH
@pytest.mark.parametrize("groups", [1, 64])
def test_sums_need_no_scratch(hardware: Hardware, groups: int) -> None:
    """Windows that are widened do."""
    model = layer(groups=groups)
    (kernel,) = kernels(model, hardware)
    assert is_direct(kernel)
    signatures = synthesizing.wanted(pack(model, hardware, MAC))
    wide = [widened(s.rows, (3, 3), 1, 64).size for s in signatures if s.is_widened]
    assert kernel.scratch_bytes == 2 * sum(wide)


def stores(kernel: Kernel) -> list[str]:
    """The lines of a kernel's tiles that store a register as it is."""
    lines = [line for tile in kernel.helpers for line in listing(tile.function, AVX512VBMI)]
    return [line for line in lines if re.match(r"\tvmov\w+\t%zmm\d+, .*\(", line)]


@pytest.mark.parametrize("groups", [1, 64])
def test_sums_are_not_stored(groups: int) -> None:
    """28 or 16 registers of them, and an epilogue in the others but for a constant or two."""
    (kernel,) = kernels(layer(groups=groups), AVX512VBMI)
    assert len(stores(kernel)) <= 2


def test_sums_that_a_picture_is_added_to_are_not_stored() -> None:
    """Though the epilogue has more constants than there are registers left."""
    _, model = added((1, 14, 28), is_deep=False)
    first, second = kernels(model, AVX512VBMI)
    assert is_direct(first) and is_direct(second)
    assert len(stores(first) + stores(second)) <= 6


def test_sums_of_matrix_tiles_go_through_scratch() -> None:
    (kernel,) = kernels(layer(), AMX)
    assert not is_direct(kernel)
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
    added_up = [line for line in lines if "vpaddd" in line and "(" in line]
    assert all("{1to16}" in line or "(%rip)" in line for line in added_up)


@EACH
@pytest.mark.parametrize("outputs", [8, 24, 33, 72])
def test_blocks_that_are_not_full(hardware: Hardware, outputs: int) -> None:
    """A strip with fewer channels than others, or with none at all."""
    skip_unless_runnable(hardware)
    net = Net((1, 16, 16, 64))
    assert_exact(layer(outputs), net.inputs(), hardware, MAC, tasks=(1, 3))
