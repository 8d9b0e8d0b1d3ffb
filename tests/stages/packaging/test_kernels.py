"""Compiled kernels give the very bits of the packed model, natively and emulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw import host
from hw.profile import Hardware
from pipelines.runners import choose
from stages import packaging, scheduling, synthesizing
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Golden, in_memory
from stages.numerics.qonnx_operators import ROUNDING
from stages.options import PackageOptions
from stages.packaging.compiling.object_file import ObjectFile
from tests.compiled import Library
from tests.kept import kept
from tests.pool import PAGE
from tests.stages.packaging.input_cases import pooled, rounding
from tests.stages.packaging.kernel_cases import CASES, GEOMETRIES, Geometry, geometry
from tests.stages.packaging.level_net import BIT, MAC, Case
from tests.stages.packaging.programs import (
    Executor,
    assert_exact,
    compile_at_once,
    compile_program,
    pack,
)
from tests.stages.packaging.random_networks import RandomNet
from tests.stages.packaging.support import write
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    PROFILES,
    SSE2,
    VNNI_256,
    is_native,
    obstacle,
    skip_unless_runnable,
)

Array = np.ndarray[Any, Any]


X86 = (AVX512VNNI, AVX2, SSE2, AVX512BW, VNNI_256)


ARM = (AARCH64, ARMV7)


MEMORY_FUNCTIONS = {"memset", "memcpy", "memmove", "__aeabi_unwind_cpp_pr0"} | {
    f"__aeabi_mem{name}{size}" for name in ("set", "clr", "cpy", "move") for size in ("", 4, 8)
}


def in_turn(number: int) -> Hardware:
    """An x86 profile and an ARM one in turn; what cannot run here gives way to the next."""
    able = [hardware for hardware in X86 if not obstacle(hardware)] or [SSE2]
    return (able, ARM)[number % 2][number // 2 % (len(able), 2)[number % 2]]


IN_TURN = [
    pytest.param(name, in_turn(number), id=f"{name}-{in_turn(number).name}")
    for number, name in enumerate(CASES)
]


KINDS = ("input", "sums", "levels", "signs", "average", "mean")


WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, (1, 0, 1, 1)))


POOLS = [
    pytest.param(kind, window, hardware, id=f"{kind}-{window}-{hardware.name}")
    for i, kind in enumerate(KINDS)
    for j, window in enumerate(WINDOWS)
    for k, hardware in enumerate(PROFILES)
    if (i + j + k) % len(WINDOWS) == 0
]
"""Every two of a kind, a window and a processor meet once."""


def spread(names: Iterable[Any]) -> list[Any]:
    """Every name on every third profile, which differ from one to the next."""
    return [
        pytest.param(name, hardware, id=f"{name}-{hardware.name}")
        for i, name in enumerate(names)
        for k, hardware in enumerate(PROFILES)
        if (i + k) % 3 == 0
    ]


def check(case: Case, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    packed, program = assert_exact(case.model, case.inputs(), hardware, case.options)
    assert set(case.expects) <= operators(packed)
    assert_self_contained(program.objects)


def operators(packed: Any) -> set[str]:
    """Names of the operators in a packed model's composites, without their prefix."""
    return {
        str(binding.value.op.name).rsplit(".", 1)[1]
        for function in packed.module.functions.values()
        if "composite" in (function.attrs or {})
        for binding in bindings_of(function)
        if hasattr(binding.value, "op")
    }


@pytest.mark.parametrize(("name", "hardware"), IN_TURN)
def test_a_network(name: str, hardware: Hardware) -> None:
    check(CASES[name](), hardware)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hardware"), spread(CASES))
def test_a_network_everywhere(name: str, hardware: Hardware) -> None:
    check(CASES[name](), hardware)


TILED = ("residual_a2w1", "ternary_levels_of_falling_channels", "input_thresholds")
"""Networks with quantizers that are computed in matrix tiles, epilogues of all kinds behind."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == TILED[0] else pytest.mark.slow) for n in CASES],
)
def test_a_network_by_matrix_tiles(name: str) -> None:
    """By products of bytes, which tiles multiply where an image is large enough."""
    skip_unless_runnable(AMX)
    case = CASES[name]()
    _, program = assert_exact(case.model, case.inputs(), AMX, MAC)
    assert any(call.fallback is not None for call in program.calls) or name not in TILED


@pytest.mark.parametrize("shape", GEOMETRIES, ids=str)
def test_a_geometry(shape: Geometry) -> None:
    number = GEOMETRIES.index(shape)
    check(geometry(shape, (BIT, MAC)[number % 2]), in_turn(number + number // 2))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "hardware"), spread(GEOMETRIES))
def test_a_geometry_everywhere(shape: Geometry, hardware: Hardware) -> None:
    number = GEOMETRIES.index(shape) + PROFILES.index(hardware)
    check(geometry(shape, (BIT, MAC)[number % 2]), hardware)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "window", "hardware"), POOLS)
def test_a_pool_everywhere(kind: str, window: Any, hardware: Hardware) -> None:
    check(pooled(kind, *window), hardware)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_random_network(seed: int) -> None:
    check(RandomNet(seed).case(), in_turn(seed))


def halves_and_neighbours() -> Array:
    """Quarters around zero, and the floats next to them, none of them below 2^-126."""
    exact = np.random.default_rng(2).integers(-16, 16, (1, 3, 6, 7)).astype(np.float32) / 8
    moved = exact.copy()
    moved[0, 0] = np.nextafter(exact[0, 0], np.float32(9))
    moved[0, 1] = np.nextafter(exact[0, 1], np.float32(-9))
    return np.where(np.abs(moved) < np.finfo(np.float32).tiny, exact, moved)


@pytest.mark.parametrize("mode", ROUNDING)
def test_a_rounding_mode_of_a_float_input(mode: str) -> None:
    check_rounding(mode, in_turn(list(ROUNDING).index(mode)))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "hardware"), spread(ROUNDING))
def test_a_rounding_mode_of_a_float_input_everywhere(mode: str, hardware: Hardware) -> None:
    check_rounding(mode, hardware)


def check_rounding(mode: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    case = rounding(mode, halves_and_neighbours())
    assert_exact(case.model, case.inputs(), hardware, case.options, (1,))


@pytest.mark.parametrize("hardware", (SSE2, AVX2, AARCH64), ids=lambda item: item.name)
def test_numbers_below_the_normal_ones_count(hardware: Hardware) -> None:
    """Not so on 32-bit ARM, whose vector instructions take them for zero."""
    skip_unless_runnable(hardware)
    tiny = np.full((1, 3, 6, 7), 1e-40, np.float32)
    tiny[0, 1] *= -1
    case = rounding("UP", tiny)
    assert_exact(case.model, case.inputs(), hardware, case.options, (1,))


@pytest.mark.parametrize(
    "hardware", (AVX2, pytest.param(AARCH64, marks=pytest.mark.slow)), ids=lambda item: item.name
)
@pytest.mark.parametrize(
    "name", ("residual_a2w1", "ternary_levels_of_falling_channels", "outputs_of_every_kind")
)
def test_no_two_tasks_of_a_call_write_the_same_byte(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    case = CASES[name]()
    executor = Executor(
        compile_program(pack(case.model, hardware, case.options), hardware), hardware
    )
    written = executor.written(case.inputs(), tasks=3)
    for call, tasks in zip(executor.program.calls, written, strict=True):
        assert len(tasks) > 1, call.layer
        count = np.sum(tasks, axis=0)
        assert count.min() >= 0 and count.max() == 1, call.layer


def test_the_memory_around_an_array_is_watched() -> None:
    """The executor would notice what the tests above are to rule out."""
    skip_unless_runnable(SSE2)
    case = CASES["dense_bits"]()
    program = compile_program(pack(case.model, SSE2, case.options), SSE2)
    library = Library(program.objects, SSE2)
    placed = library.place(np.zeros(100, np.uint8))
    library.memory.write(placed.address + 100, b"\0")
    with pytest.raises(AssertionError, match="wrote outside"):
        placed.fetch()
    assert (placed.start + placed.room) % PAGE == 0


def assert_self_contained(objects: Mapping[str, bytes]) -> None:
    """Nothing of TVM, of a C library or of the compiler's own is called but memory functions."""
    own = {file.removesuffix(".o") for file in objects}
    for file, data in objects.items():
        symbols = ObjectFile(data, file).symbols
        assert {s.name for s in symbols if not s.is_defined} <= MEMORY_FUNCTIONS | own
        strong = [s.name for s in symbols if s.is_defined and not s.is_weak]
        assert [f"{symbol}.o" for symbol in strong] == [file]


@pytest.mark.parametrize(
    "hardware",
    (AVX2, *(pytest.param(h, marks=pytest.mark.slow) for h in (SSE2, AVX512VNNI, *ARM))),
    ids=lambda item: item.name,
)
def test_a_package_on_threads(hardware: Hardware, tmp_path: Path) -> None:
    skip_unless_runnable(hardware)
    case = CASES["residual_a2w1"]()
    packed = pack(case.model, hardware, case.options)
    expected = interpret.run(packed, case.inputs())
    samples = [
        {name: value[None] for name, value in tensors.items()}
        for tensors in (case.inputs(), expected)
    ]
    files = packaging.run(
        model=packed,
        bodies=synthesizing.run(model=packed, hardware=hardware, memo=kept),
        schedules=scheduling.run(model=packed, hardware=hardware, choices={}),
        golden=Golden(*samples),
        options=PackageOptions(name="net"),
        hardware=hardware,
        memo=compile_at_once,
    )
    with choose(write(tmp_path, in_memory(files)), host.detect()) as runner:
        for threads in (1, 2, 3, 1) if is_native(hardware) else (1,):
            for _ in range(3):
                outputs = runner.run(case.inputs(), threads)
                assert outputs["y0"].tobytes() == expected["y0"].tobytes()
