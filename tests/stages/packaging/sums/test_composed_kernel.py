"""Lowering: index arithmetic against NumPy, schedules and task counts that change no result."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from tvm import sym, tirx

from hw.profile import Hardware
from stages import synthesizing
from stages.codegen import compile_object
from stages.dialect.calls import shape_of
from stages.dialect.zero_point import ZeroPoint
from stages.graph import interpret
from stages.graph.bindings import calls_of
from stages.kernels.packed_conv2d import border_classes
from stages.kernels.packing import round_up
from stages.layer_options import Algorithm
from stages.nodes import Function
from stages.numerics import qonnx_operators
from stages.packaging.emitting.addressing import border_expression
from stages.packaging.emitting.composite import Composite
from stages.packaging.program_builder import program_of
from stages.packaging.sums.pooled import pool_text
from stages.packaging.sums.window_reads import Windows
from stages.synthesizing.operands import SHARES
from tests.compiled import Library
from tests.hw.isa_code import caller
from tests.kept import kept
from tests.stages.networks import SourceNet
from tests.stages.packaging.kernel_cases import CASES, GEOMETRIES, geometry
from tests.stages.packaging.level_net import BIT, Net
from tests.stages.packaging.listings import listing
from tests.stages.packaging.programs import Executor, compile_at_once, compose, lowered, pack
from tests.stages.pipeline import algorithm
from tests.targets import AARCH64, AVX2, AVX512VNNI, SSE2, skip_unless_runnable

SCHEDULE = {"order": "rows_inner", "spread": 0.0, "interleaved": False}


@pytest.mark.parametrize(
    ("size", "before", "after"),
    [(s, b, a) for s, b, a in product((1, 2, 5, 8), (0, 1, 3), (0, 1, 2)) if b <= s and a <= s],
)
def test_border_classes_as_expressions(size: int, before: int, after: int) -> None:
    variable = tirx.Var("y", "int32")
    expression = border_expression(variable, size, before, after)
    found = []
    for position in range(size):
        analyzer = sym.Analyzer()
        analyzer.bind(variable, tirx.const(position, "int32"))
        found.append(int(analyzer.simplify(tirx.convert(expression))))
    np.testing.assert_array_equal(found, border_classes(size, before, after))


@pytest.mark.parametrize(
    "hardware", (AVX2, pytest.param(AARCH64, marks=pytest.mark.slow)), ids=lambda item: item.name
)
def test_the_order_of_work_changes_no_result(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    case = geometry(GEOMETRIES[0], BIT)
    packed = pack(case.model, hardware, case.options)
    expected = interpret.run(packed, case.inputs())
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    names = [n.name_hint for n, f in packed.module.functions.items() if "composite" in f.attrs]
    for order in ("rows_inner", "blocks_inner"):
        schedules = {str(name): {**SCHEDULE, "order": order} for name in names}
        program = program_of(packed, bodies, schedules, hardware, compile_at_once)
        for tasks in (1, 2, 5):
            outputs = Executor(program, hardware).run(case.inputs(), tasks)
            for name, value in expected.items():
                np.testing.assert_array_equal(outputs[name], value, f"{order}, {tasks} tasks")


def test_a_kernel_states_its_scratch_and_its_tasks() -> None:
    net = Net((1, 10, 6, 5))
    y = net.quant(net.x, "a", 2, 0.5)
    model = net.model(net.conv(y, "c", 40, 3, 2), net.conv(y, "d", 3, 1, 1))
    packed = pack(model, SSE2, BIT)
    kernels = lowered(packed, SSE2)
    # Blocks of 32 channels times output rows.
    tasks = sorted(kernel.max_tasks for kernel in kernels.values())
    assert tasks == [1 * 6, 1 * 6, 2 * 3]
    for kernel in kernels.values():
        assert kernel.scratch_bytes % 128 == 0 and kernel.scratch_bytes >= 128


def test_more_tasks_than_work_are_never_asked_for() -> None:
    case = CASES["dense_bits"]()
    for kernel in lowered(pack(case.model, SSE2, case.options), SSE2).values():
        assert kernel.max_tasks <= round_up(100, 32) // 32


@pytest.mark.parametrize("kind", ("max", "sum"))
@pytest.mark.parametrize("hardware", (AVX2, SSE2, AARCH64), ids=lambda item: item.name)
def test_pools_of_bytes(kind: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    zero_point = ZeroPoint.of(7 if kind == "sum" else 0)
    height, width, channels = 3, 4, 64
    text, declarations = pool_text("pool", kind, zero_point, width * channels, channels)
    size = "define internal void @run(ptr %data, ptr %sums, ptr %shape) alwaysinline {\n"
    size += "  %h = load i32, ptr %shape\n  %p = getelementptr i8, ptr %shape, i64 4\n"
    size += "  %w = load i32, ptr %p\n"
    size += "  call void @pool(ptr %data, ptr %sums, i32 %h, i32 %w)\n  ret void\n}"
    buffers = [("uint8", height * width * channels), ("int32", 32), ("int32", 2)]
    function = caller("k", [*declarations, text, size], "run", buffers)
    library = Library({"k.o": compile_object({"k": function}, hardware)}, hardware)
    rng = np.random.default_rng(1)
    for h, w in ((1, 1), (2, 3), (3, 4)):
        data = rng.integers(0, 256, (height, width, channels), np.uint8)
        data[0, 0, :2] = 0, 255
        sums = np.zeros(32, np.int32)
        library.call("k", data, sums, np.array([h, w], np.int32))
        window = data[:h, :w, :32].astype(np.int32)
        expected = window.max((0, 1)) if kind == "max" else (window - 7).sum((0, 1))
        np.testing.assert_array_equal(sums, expected)


def prefetches(lines: list[str]) -> int:
    return sum(line.split()[:1] in (["prefetcht0"], ["prefetcht1"]) for line in lines)


@pytest.mark.parametrize(("size", "outputs"), [((3, 5), 70), ((9, 30), 96), ((56, 56), 64)])
def test_calls_for_a_block_fetch_the_next_one_between_them(
    size: tuple[int, int], outputs: int
) -> None:
    """All of it, and hardly more; one that shares its lines with others fetches none."""
    net = SourceNet((1, 8, *size))
    model = net.model(net.conv(net.quant(net.x, "a", 8, 2.0**-5, signed=True), "c", outputs, 3, 1))
    packed = pack(model, AVX512VNNI, algorithm("mac8"))
    bodies = synthesizing.run(model=packed, hardware=AVX512VNNI, memo=kept)
    (function,) = [f for _, f in calls_of(packed) if _is_convolution(f)]
    for order in ("rows_inner", "blocks_inner"):
        made = compose(function, {**SCHEDULE, "order": order}, AVX512VNNI)
        assert isinstance(made.reads, Windows)
        weights = prod(shape_of(made.composite.main.args[1].ty)[1:])
        fetched = made.work.tiles_per_block * made.reads.prefetched
        if order == "blocks_inner":
            assert fetched == 0
        else:
            assert weights <= fetched < weights + made.work.tiles_per_block * max(1, weights // 8)
        kernel = made.kernel(bodies)
        functions = kernel.function, *(helper.function for helper in kernel.helpers)
        assert sum(prefetches(listing(function, AVX512VNNI)) for function in functions) >= 3


@pytest.mark.parametrize("channels", [32, 256])
def test_kernels_of_bits_fetch_the_next_block_too(channels: int) -> None:
    """Every line of it, by the calls for a block."""
    net = SourceNet((1, channels, 12, 12))
    bits = net.op(qonnx_operators.bipolar_quant(net.x, net.constant("a", 1.0)), "a.of")
    packed = pack(net.model(net.conv(bits, "c", 64)), AVX512VNNI, algorithm("bitserial"))
    bodies = synthesizing.run(model=packed, hardware=AVX512VNNI, memo=kept)
    (function,) = [f for _, f in calls_of(packed) if _is_convolution(f)]
    made = compose(function, SCHEDULE, AVX512VNNI)
    made.sums.include(bodies)
    signature = made.composite.signature
    words = 9 * channels // 32
    each = prefetches(listing(made.helpers[0].function, AVX512VNNI))
    assert each == -(-signature.words // SHARES)
    assert made.work.tiles_per_block * each * (words // signature.words) * 64 >= words * 32 * 4


@pytest.mark.parametrize(
    ("hardware", "wanted", "fetches"),
    [(SSE2, "mac8", False), (AVX2, "bitserial", False), (AVX2, "mac8", True)],
    ids=("SSE2", "AVX2, bits", "AVX2, bytes"),
)
def test_narrow_registers_fetch_little(
    hardware: Hardware, wanted: Algorithm, fetches: bool
) -> None:
    net = SourceNet((1, 8, 5, 5))
    bits = net.quant(net.x, "a", 2, 2.0**-5, signed=False)
    model = net.model(net.conv(bits, "c", 40, 3, 1))
    kernels = lowered(pack(model, hardware, algorithm(wanted)), hardware)
    helpers = [helper for kernel in kernels.values() for helper in kernel.helpers]
    assert helpers
    found = [bool(prefetches(listing(helper.function, hardware))) for helper in helpers]
    assert found == [fetches] * len(helpers)


def _is_convolution(function: Function) -> bool:
    return Composite(function).is_convolution
