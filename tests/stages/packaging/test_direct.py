"""Tiles whose sums stay in registers: which are so, and that nothing of them goes to memory."""

from __future__ import annotations

import pytest

from hw.profile import Hardware
from stages.kinds import Model
from stages.packaging.kernel import Kernel
from stages.qnn import integer
from tests.stages.packaging.listings import listing, stack_accesses
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
    found = lowered(pack(model, hardware), hardware).values()
    return [kernel for kernel in found if kernel.helpers or kernel.uses_tiles]


def is_direct(kernel: Kernel) -> bool:
    return any(helper.symbol.startswith("tile_") for helper in kernel.helpers)


@EACH
@pytest.mark.parametrize("groups", [1, 64])
def test_sums_need_no_scratch(hardware: Hardware, groups: int) -> None:
    (kernel,) = kernels(layer(groups=groups), hardware)
    assert is_direct(kernel)
    assert kernel.scratch_bytes == 0


@pytest.mark.parametrize("groups", [1, 64])
def test_no_register_of_sums_is_stored(groups: int) -> None:
    """28 registers of them, and an epilogue among the other four."""
    (kernel,) = kernels(layer(groups=groups), AVX512VBMI)
    (tile,) = kernel.helpers
    lines = listing(tile.function, AVX512VBMI)
    assert not [line for line in stack_accesses(lines) if "%zmm" in line]
    assert not [line for line in lines if "\tvmovdqu64\t%zmm" in line]


def test_pictures_are_added_where_there_are_registers_for_it() -> None:
    _, model = added((1, 14, 28), is_deep=False)
    direct = {
        hardware.name: [is_direct(kernel) for kernel in kernels(model, hardware)]
        for hardware in (AVX512VNNI, AARCH64, ARMV7)
    }
    assert all(direct[AARCH64.name] + direct[ARMV7.name])
    assert sorted(direct[AVX512VNNI.name]) == [False, True]


def test_sums_of_matrix_tiles_go_through_scratch() -> None:
    (kernel,) = kernels(layer(), AMX)
    assert not is_direct(kernel)
    assert kernel.scratch_bytes > 0


@EACH
@pytest.mark.parametrize("outputs", [8, 24, 33, 72])
def test_blocks_that_are_not_full(hardware: Hardware, outputs: int) -> None:
    """A strip with fewer channels than others, or with none at all."""
    skip_unless_runnable(hardware)
    net = Net((1, 16, 16, 64))
    assert_exact(layer(outputs), net.inputs(), hardware, tasks=(1, 3))
