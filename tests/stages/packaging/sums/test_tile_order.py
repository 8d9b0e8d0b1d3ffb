"""Tiles of a convolution that go on from row to row."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.profile import Hardware
from stages.packaging.sums.tile_order import JoinedRows, WrappedRows
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.level_net import BIT, MAC, Case
from tests.stages.packaging.level_net import Net as FewBits
from tests.stages.packaging.programs import assert_exact, pack
from tests.stages.packaging.sums.convolution_nets import (
    SIZES,
    added,
    convolutions,
    is_joined,
    residual,
    strided,
)
from tests.targets import (
    AARCH64,
    AMX,
    AVX2,
    AVX512VNNI,
    DOTPROD,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)


@pytest.mark.parametrize(
    "hardware",
    (AVX2, VNNI_256, AVX512VNNI, AMX, SSE2, AARCH64, DOTPROD),
    ids=lambda item: item.name,
)
def test_rows_that_are_joined_give_the_same_bits(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    joined = 0
    for size in SIZES:
        net = Net((size[0], *size[1:], 12))
        packed, _ = assert_exact(residual(size), net.inputs(), hardware, MAC)
        made = convolutions(packed, hardware)
        joined += sum(map(is_joined, made))
        assert all(one.sums.rows <= one.width or is_joined(one) for one in made)
    assert joined


def test_tiles_of_two_pixels_lie_anywhere() -> None:
    """One goes on from the end of a row to the next one's begin, also into the next image; of
    single pixels, two are half a row apart."""
    skip_unless_runnable(AARCH64)
    turns, apart = 0, set[int | None]()
    for size in ((1, 14, 14), (2, 10, 10), (1, 6, 12), (3, 5, 2)):
        net = Net((*size, 64))
        packed, _ = assert_exact(strided(size), net.inputs(), AARCH64, MAC)
        made = convolutions(packed, AARCH64)
        turns += sum(isinstance(one.work, WrappedRows) for one in made)
        apart |= {one.work.distance for one in made} - {None}
        assert all(one.sums.rows <= one.width or isinstance(one.work, JoinedRows) for one in made)
    assert turns
    assert apart > {1}


@pytest.mark.parametrize("hardware", (AVX512VNNI, AARCH64), ids=lambda item: item.name)
def test_bits_of_rows_that_are_joined(hardware: Hardware) -> None:
    """Tiles of planes and tables go on from row to row as well."""
    skip_unless_runnable(hardware)
    joined = 0
    for height, width in ((7, 9), (5, 11), (9, 13)):
        net = FewBits((1, 8, height, width))
        data = net.quant(net.x, "a", 2, 0.5)
        model = net.model(net.conv(data, "c", 40, 1, 1))
        case = Case(model, BIT)
        packed, _ = assert_exact(case.model, case.inputs(), hardware, case.options)
        joined += sum(map(is_joined, convolutions(packed, hardware)))
    assert joined


def test_joined_rows_are_work_for_as_many_tasks_as_there_are_tiles() -> None:
    packed = pack(residual((1, 9, 3)), AVX512VNNI)
    joined = [made.work for made in convolutions(packed, AVX512VNNI) if is_joined(made)]
    assert joined
    for work in joined:
        assert isinstance(work, JoinedRows)
        rows, positions = work.kernel.sums.rows, work.line.positions
        firsts = [min(n * rows, positions - rows) for n in range(work.runs)]
        assert firsts[0] == 0 and firsts[-1] + rows == positions
        assert all(later - earlier <= rows for earlier, later in pairwise(firsts))


@pytest.mark.parametrize(
    "hardware", (AMX, AVX512VNNI, AVX2, SSE2, AARCH64), ids=lambda item: item.name
)
@pytest.mark.parametrize("size", [(1, 9, 10), (1, 33, 5), (2, 9, 10)])
@pytest.mark.parametrize("is_deep", (False, True))
def test_an_addend_is_read_inside_a_halo(
    hardware: Hardware, size: tuple[int, int, int], is_deep: bool
) -> None:
    """So that it is written once; of a batch it is written as it is, too."""
    skip_unless_runnable(hardware)
    net, model = added(size, is_deep)
    packed, program = assert_exact(model, net.inputs(), hardware, MAC)
    assert ("qnn.from_bytes" in str(packed.module)) == (size[0] == 1)
    first = next(call for call in program.calls if call.layer == "first")
    assert len(first.writes) == size[0]


@pytest.mark.parametrize("hardware", (AVX2, AARCH64), ids=lambda item: item.name)
def test_windows_of_all_sizes_read_one_image(hardware: Hardware) -> None:
    """It is written once, with the halo of the largest window."""
    skip_unless_runnable(hardware)
    net = Net((1, 9, 7, 32))
    x = net.conv(net.x, "first", 32, kernel=1, dtype="uint8")
    branches = [net.conv(x, f"of{kernel}", 8, kernel=kernel) for kernel in (1, 3, 5)]
    _, program = assert_exact(net.model(*branches), net.inputs(), hardware, MAC)
    first = next(call for call in program.calls if call.layer == "first")
    assert len(first.writes) == 1


@pytest.mark.parametrize("hardware", (AMX, AVX512VNNI), ids=lambda item: item.name)
def test_rows_are_not_joined_over_strides_in_a_batch(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((2, 14, 14, 32))
    model = net.model(net.conv(net.x, "c", 32, strides=[2, 2]))
    packed, _ = assert_exact(model, net.inputs(), hardware)
    assert not any(map(is_joined, convolutions(packed, hardware)))
