"""Tiles of a convolution that go on from row to row."""

from __future__ import annotations

from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages import scheduling, synthesizing
from stages.bitpacking import kernel_choice
from stages.codegen import target_of
from stages.dialect import integer
from stages.graph import interpret
from stages.graph.bindings import calls_of
from stages.graph.composites import PLAIN, PRODUCTS
from stages.kernels.kernel_candidates import to_table
from stages.kernels.operand_storage import WeightCode
from stages.kernels.problems import Problem
from stages.kernels.selection import byte_candidates
from stages.kernels.signature import TILES_BEGIN, TILES_END
from stages.kinds import Model
from stages.numerics import onnx_elementwise
from stages.packaging.emitting.composite import Composite
from stages.packaging.program_builder import program_of
from stages.packaging.sums.composed_kernel import ComposedKernel
from stages.packaging.sums.tile_order import Joined, Turning
from tests.kept import kept
from tests.stages.networks import SourceNet
from tests.stages.packaging.kernel_cases import BIT, MAC, Case
from tests.stages.packaging.kernel_cases import Net as FewBits
from tests.stages.packaging.programs import Executor, assert_exact, pack, put_together
from tests.stages.packaging.standalone.test_te_kernel import Net
from tests.stages.pipeline import offered, random_inputs
from tests.targets import (
    AARCH64,
    AMX,
    AMX_GFNI,
    AVX2,
    AVX512VNNI,
    DOTPROD,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)

MANY = 100.0
"""Weights for positions, as `spread`."""
SIZES = [(1, 9, 5), (3, 9, 5), (1, 7, 7), (2, 7, 7), (1, 9, 3), (5, 3, 1)]
"""Pictures, height and width, of which tiles of several pixels fill rows badly."""


def residual(size: tuple[int, int, int]) -> Model:
    """Windows of 3x3 and 1x1, the latter with an addend, behind a halo that both read."""
    net = Net((size[0], *size[1:], 12))
    x = net.conv(net.x, "first", 12)
    y = net.conv(x, "window", 40)
    return net.model(net.conv(y, "point", 12, kernel=1), y)


def convolutions(packed: Model, hardware: Hardware) -> list[ComposedKernel]:
    schedule = {"order": "rows_inner", "spread": MANY, "interleaved": False}
    found = []
    for _, function in calls_of(packed):
        if str(function.attrs["composite"]) != PLAIN and Composite(function).is_convolution:
            found.append(put_together(function, schedule, hardware))
    return found


def is_joined(made: ComposedKernel) -> bool:
    """Whether tiles go on from row to row, over what lies in between."""
    return type(made.work) is Joined


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


def strided(size: tuple[int, int, int]) -> Model:
    """Windows of 3x3, by one pixel and by two, and of 1x1, of 64 channels."""
    net = Net((*size, 64))
    x = net.conv(net.x, "window", 64, limit=127, strides=[2, 2])
    y = net.conv(x, "further", 96, limit=127)
    return net.model(net.conv(y, "point", 64, kernel=1, limit=127), y)


def test_tiles_of_two_pixels_lie_anywhere() -> None:
    """One goes on from the end of a row to the next one's begin, also into the next picture; of
    single pixels, two are half a row apart."""
    skip_unless_runnable(AARCH64)
    turns, apart = 0, set[int | None]()
    for size in ((1, 14, 14), (2, 10, 10), (1, 6, 12), (3, 5, 2)):
        net = Net((*size, 64))
        packed, _ = assert_exact(strided(size), net.inputs(), AARCH64, MAC)
        made = convolutions(packed, AARCH64)
        turns += sum(isinstance(one.work, Turning) for one in made)
        apart |= {one.work.distance for one in made} - {None}
        assert all(one.sums.rows <= one.width or isinstance(one.work, Joined) for one in made)
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


@pytest.mark.parametrize("hardware", (AVX2, AVX512VNNI, AMX), ids=lambda item: item.name)
@pytest.mark.parametrize("pictures", (1, 2))
def test_how_work_is_shared_changes_no_result(hardware: Hardware, pictures: int) -> None:
    """By runs, by groups of blocks, or block by block; epilogues behind the sums, or between
    products of the next tile."""
    skip_unless_runnable(hardware)
    size = (pictures, 19, 21)
    packed = pack(residual(size), hardware, MAC)
    inputs = Net((*size, 12)).inputs()
    expected = interpret.run(packed, inputs)
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    names = [str(n.name_hint) for n, f in packed.module.functions.items() if "composite" in f.attrs]
    for spread, interleaved in product((0.0, 1.0, MANY), (False, True)):
        schedule = {"order": "rows_inner", "spread": spread, "interleaved": interleaved}
        schedules = dict.fromkeys(names, schedule)
        program = program_of(packed, bodies, schedules, hardware, kept)
        for tasks in (1, 2, 5, 8):
            outputs = Executor(program, hardware).run(inputs, tasks)
            for name, value in expected.items():
                np.testing.assert_array_equal(outputs[name], value, f"{schedule}, {tasks} tasks")


def test_blocks_of_a_task_follow_one_another_without_a_pause() -> None:
    """Tiles begin and end but once in a task, though their weights change with every block."""
    packed = pack(residual((1, 19, 21)), AMX)
    bodies = synthesizing.run(model=packed, hardware=AMX, memo=kept)
    schedule = {"order": "rows_inner", "spread": 0.0, "interleaved": True}
    several = 0
    for function in [f for _, f in calls_of(packed) if f.attrs["composite"] == PRODUCTS]:
        with target_of(AMX):
            made = put_together(function, schedule, AMX)
            text = made.kernel(bodies).function.script()
        several += made.blocks > 1
        lines = [line for line in text.splitlines() if TILES_BEGIN in line or TILES_END in line]
        assert [line.index("T.call_extern") for line in lines] == [4, 4]
    assert several


def test_joined_rows_are_work_for_as_many_tasks_as_there_are_tiles() -> None:
    packed = pack(residual((1, 9, 3)), AVX512VNNI)
    joined = [made.work for made in convolutions(packed, AVX512VNNI) if is_joined(made)]
    assert joined
    for work in joined:
        assert isinstance(work, Joined)
        rows, positions = work.of.sums.rows, work.line.positions
        firsts = [min(n * rows, positions - rows) for n in range(work.runs)]
        assert firsts[0] == 0 and firsts[-1] + rows == positions
        assert all(later - earlier <= rows for earlier, later in pairwise(firsts))


def added(size: tuple[int, int, int], is_deep: bool) -> tuple[Net, Model]:
    """A picture that a window reaches beyond, and that the result is added to, or also the next."""
    net = Net((*size, 32), "uint8")
    x = net.conv(net.x, "first", 32, dtype="uint8")
    y = net.conv(x, "window", 32, dtype="uint8")
    numbers = {"lhs": 0.7, "rhs": 0.4, "fixed": -3.5}
    ratios = [net.builder.tensor(n, np.array(v, np.float32)) for n, v in numbers.items()]
    total = net.emit(onnx_elementwise.qlinear_add(y, x, *ratios, low=0, high=255, fits=True), "sum")
    if is_deep:  # what is added later is not what the product multiplies
        z = net.conv(total, "next", 32, kernel=1, dtype="uint8")
        return net, net.model(
            net.emit(onnx_elementwise.qlinear_add(z, x, *ratios, low=0, high=255), "last")
        )
    return net, net.model(total)


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
def test_windows_of_all_sizes_read_one_picture(hardware: Hardware) -> None:
    """It is written once, with the halo of the largest window."""
    skip_unless_runnable(hardware)
    net = Net((1, 9, 7, 32))
    x = net.conv(net.x, "first", 32, kernel=1, dtype="uint8")
    branches = [net.conv(x, f"of{kernel}", 8, kernel=kernel) for kernel in (1, 3, 5)]
    _, program = assert_exact(net.model(*branches), net.inputs(), hardware, MAC)
    first = next(call for call in program.calls if call.layer == "first")
    assert len(first.writes) == 1


@pytest.mark.parametrize("hardware", (AMX, AVX512VNNI, AVX2), ids=lambda item: item.name)
@pytest.mark.parametrize("strides", (1, 2))
def test_pictures_of_seven_by_seven(hardware: Hardware, strides: int) -> None:
    """Which tiles take as a whole, in phases where windows move by two."""
    skip_unless_runnable(hardware)
    side = 7 * strides
    net = Net((1, side, side, 64))
    model = net.model(net.conv(net.x, "c", 48, strides=[strides] * 2))
    packed, _ = assert_exact(model, net.inputs(), hardware, MAC)
    (made,) = convolutions(packed, hardware)
    if hardware is AMX:
        assert is_joined(made) and made.composite.signature.covers_layer
        assert (made.sums.rows, made.work.runs) == {1: (61, 1), 2: (55, 1)}[strides]


@pytest.mark.parametrize(
    ("bits", "encoding", "code"),
    [
        (1, "bipolar", "odd1"),
        (2, "bipolar", "odd2"),
        (2, "signed", "signed2"),
        (3, "signed", "signed4"),
        (3, "bipolar", "odd4"),
        (1, "unipolar", "signed2"),
        (5, "signed", None),
    ],
)
@pytest.mark.parametrize("strides", (1, 2))
@pytest.mark.parametrize("is_interleaved", (False, True))
def test_weights_of_few_bits_become_bytes_between_products(
    monkeypatch: pytest.MonkeyPatch,
    bits: int,
    encoding: str,
    code: str | None,
    strides: int,
    is_interleaved: bool,
) -> None:
    """Of pictures that tiles take as a whole, where weights are read once."""
    skip_unless_runnable(AMX_GFNI)
    monkeypatch.setattr(scheduling, "GAINING", 0 if is_interleaved else 2)
    net = FewBits((1, 64, 7 * strides, 7 * strides))
    x = net.quant(net.x, "a", 2, 0.5)
    y = net.conv(x, "c", 72, stride=strides, bits=bits, encoding=encoding)
    model = net.model(net.quant(net.batch_norm(y, "bn", 8.0), "b", 2, 0.5))
    packed, _ = assert_exact(model, random_inputs(model, 1), AMX_GFNI, MAC)
    (made,) = convolutions(packed, AMX_GFNI)
    signature = made.composite.signature
    assert signature.covers_layer
    assert (signature.code and signature.code.name) == code


def test_weights_that_no_code_stores_are_bytes() -> None:
    """Channels whose weights are negated may have one beyond the two bits of the others."""
    for levels, is_stored in (([-2, 1], True), ([-1, 2], False), ([-1, 1], True)):
        weight = np.resize(np.array(levels, np.int8), (32, 3, 3, 64))
        table = {"few": to_table(offered(Problem(2, 2, "signed"), AMX_GFNI))}
        codes = {offer.signature.code for offer in byte_candidates(table, 2, weight)}
        assert (WeightCode(2, False) in codes) == is_stored


@pytest.mark.parametrize(
    "hardware", (AMX, AVX512VNNI, AVX2, SSE2, AARCH64), ids=lambda item: item.name
)
@pytest.mark.parametrize("size", [(14, 14), (9, 13), (8, 5)])
@pytest.mark.parametrize("before", ("conv", "pool", "nothing", "sum"))
@pytest.mark.parametrize("has_point", (False, True))
def test_rows_in_phases_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
    hardware: Hardware,
    size: tuple[int, int],
    before: str,
    has_point: bool,
) -> None:
    """Whatever writes them, and for a window of one pixel that begins in an odd row."""
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    net = Net((1, *size, 32), "uint8")
    x = net.x if before == "nothing" else net.conv(net.x, "first", 32, dtype="uint8")
    if before == "pool":
        attrs = {"kernel": [3, 3], "strides": [1, 1], "padding": [1, 1, 1, 1]}
        x = net.emit(integer.max_pool2d(x, **attrs), "pool")
    if before == "sum":
        ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
        x = net.emit(onnx_elementwise.qlinear_add(x, net.x, *ratios, low=0, high=255), "sum")
    y = net.conv(x, "window", 40, strides=[2, 2], zero_point=3)
    z = net.conv(x, "point", 40, kernel=1, strides=[2, 2], zero_point=3) if has_point else y
    packed, _ = assert_exact(net.model(y, z) if has_point else net.model(y), net.inputs(), hardware)
    assert str(packed.module).count("phases=2") >= 2 + has_point


@pytest.mark.parametrize("hardware", (AMX, AVX2), ids=lambda item: item.name)
@pytest.mark.parametrize("reader", ("window", "sum", "output"))
def test_rows_that_anything_else_reads_lie_one_below_the_other(
    monkeypatch: pytest.MonkeyPatch, hardware: Hardware, reader: str
) -> None:
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    net = Net((1, 14, 14, 32), "uint8")
    x = net.conv(net.x, "first", 32, dtype="uint8")
    y = net.conv(x, "strided", 32, strides=[2, 2])
    if reader == "window":
        other = net.conv(x, "other", 32)
    elif reader == "sum":
        ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
        other = net.emit(onnx_elementwise.qlinear_add(x, net.x, *ratios, low=0, high=255), "sum")
    else:
        other = x
    packed, _ = assert_exact(net.model(y, other), net.inputs(), hardware)
    assert "phases=2" not in str(packed.module)


@pytest.mark.parametrize("hardware", (AMX, AVX2, AARCH64), ids=lambda item: item.name)
@pytest.mark.parametrize("size", (14, 11))
def test_rows_of_a_network_with_quantizers_lie_in_phases(
    monkeypatch: pytest.MonkeyPatch, hardware: Hardware, size: int
) -> None:
    """Beside readers with paddings of their own, which need not be even together."""
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    source = SourceNet((1, 32, size, size))
    x = source.quant(source.x, "data", 8, 0.5)
    first = source.op(
        relax.op.nn.conv2d(x, source.weights("w1", (32, 32, 3, 3), 8, "signed"), 1, 1), "c"
    )
    x = source.quant(first, "levels", 8, 0.5)
    window = source.weights("w2", (40, 32, 3, 3), 8, "signed")
    y = source.op(relax.op.nn.conv2d(x, window, (2, 2), (1, 1, 1, 1)), "window")
    point = source.weights("w3", (40, 32, 1, 1), 8, "signed")
    z = source.op(relax.op.nn.conv2d(x, point, (2, 2), (0, 0, 0, 0)), "point")
    y, z = (source.quant(v, f"{v.name}.q", 8, 0.5, signed=True) for v in (y, z))
    model = source.model(source.op(relax.op.add(y, z), "sum"))
    packed, _ = assert_exact(model, random_inputs(model, 1), hardware)
    assert "phases=2" in str(packed.module)


@pytest.mark.parametrize("hardware", (AMX, AVX512VNNI), ids=lambda item: item.name)
def test_rows_are_not_joined_over_strides_in_a_batch(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((2, 14, 14, 32))
    model = net.model(net.conv(net.x, "c", 32, strides=[2, 2]))
    packed, _ = assert_exact(model, net.inputs(), hardware)
    assert not any(map(is_joined, convolutions(packed, hardware)))
