"""Packages with kernels of tiles: where tiles are granted, and where they are refused."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hw import host
from stages import packaging, scheduling, synthesizing
from stages.graph import interpret
from stages.kinds import Files, Golden, in_memory
from stages.options import PackageOptions
from stages.packaging.c_source.features import needed_features
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.compiling.linker import Linker
from stages.packaging.emitting.kernel import TASKS, TASKS_OF_TILES
from stages.packaging.program.arena import plan
from stages.packaging.program.kernel_program import Call
from stages.packaging.program.packed_constants import pack_constants
from tests import tiles
from tests.kept import kept
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import pack, uncompiled_program
from tests.stages.packaging.runtime.loaded import Loaded, memory
from tests.stages.packaging.sums.convolution_nets import residual
from tests.stages.packaging.support import copy_runtime, write, zig
from tests.targets import AMX, AVX512VNNI, skip_unless_runnable

SIZE = (1, 12, 9)
GRANTED = "int rt_may_use_tiles(void);\nint rt_may_use_tiles(void) { return 1; }\n"


def built() -> tuple[Files, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A package of two convolutions, an input and its outputs."""
    packed = pack(residual(SIZE), AMX)
    inputs = Net((SIZE[0], *SIZE[1:], 12)).inputs()
    expected = interpret.run(packed, inputs)
    golden = Golden(*({k: v[None] for k, v in tensors.items()} for tensors in (inputs, expected)))
    made = packaging.run(
        model=packed,
        bodies=synthesizing.run(model=packed, hardware=AMX, memo=kept),
        schedules=scheduling.run(model=packed, hardware=AMX, choices={}),
        golden=golden,
        options=PackageOptions(name="tiled", formats=("shared",)),
        hardware=AMX,
        memo=kept,
    )
    return in_memory(made), inputs, expected


@pytest.mark.parametrize("granted", [True, False])
def test_a_package_gives_the_same_bits_with_tiles_and_without(
    granted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two threads each shapes its own registers."""
    skip_unless_runnable(AMX)
    unpack = Linker._unpack

    def replaced(linker: Linker, names: tuple[str, ...]) -> None:
        unpack(linker, names)
        if granted and "tiles.c" in names:
            (linker.folder / "tiles.c").write_text(GRANTED)

    monkeypatch.setattr(Linker, "_unpack", replaced)
    made, inputs, expected = built()
    if granted:
        tiles.provide()
    package = Loaded(write(tmp_path, made), "tiled")
    for threads in (1, 2, 3):
        context = package.open(threads)
        sources = [memory(value.nbytes) for value in inputs.values()]
        for source, value in zip(sources, inputs.values(), strict=True):
            source[:] = value.reshape(-1).view(np.uint8)
        for _ in range(2):
            results = [memory(value.nbytes) for value in expected.values()]
            assert package.run(context, sources, results) == 0
            for result, value in zip(results, expected.values(), strict=True):
                assert result.tobytes() == value.tobytes()
        package.finish(context)


def test_calls_choose_between_kernels_when_they_run() -> None:
    packed = pack(residual(SIZE), AMX)
    program = uncompiled_program(packed, AMX)
    program = replace(program, calls=tuple(replace(c, is_small=False) for c in program.calls))
    calls = [call for call in program.calls if call.fallback is not None]
    assert len(calls) == 3
    text = graph_source(program, plan(program), pack_constants(program), AMX)
    assert text.count("rt_may_use_tiles()") == 1
    for call in calls:
        assert _asks(text, call)
    without = uncompiled_program(pack(residual(SIZE), AVX512VNNI), AVX512VNNI)
    assert not any(call.fallback for call in without.calls)
    text = graph_source(without, plan(without), pack_constants(without), AVX512VNNI)
    assert "tiles" not in text


def _asks(text: str, call: Call) -> bool:
    assert call.fallback is not None
    symbols = rf"\(context->tiles \? {call.symbol} : {call.fallback.symbol}\)"
    most, other = (rf"[^,]*\b{each.max_tasks}\b[^,]*" for each in (call, call.fallback))
    tasks = (
        rf"context->tiles \? rt_tasks\(runtime, {most}, {TASKS_OF_TILES}\)\s+"
        rf": rt_tasks\(runtime, {other}, {TASKS}\)"
    )
    return bool(re.search(symbols, text) and re.search(tasks, text))


def test_a_package_does_not_refuse_processors_without_tiles() -> None:
    assert needed_features(AMX) == needed_features(AVX512VNNI)


def test_the_runtime_is_granted_what_the_host_is(tmp_path: Path) -> None:
    skip_unless_runnable(AVX512VNNI)
    (tmp_path / "ask.c").write_text(
        '#include "runtime.h"\nint main(void) { return rt_may_use_tiles(); }\n'
    )
    copy_runtime(tmp_path, "runtime.h", "processor.c", "tiles.c")
    zig(tmp_path, "cc", "ask.c", "processor.c", "tiles.c", "-lpthread", "-o", "ask")
    done = subprocess.run([tmp_path / "ask"], check=False)
    assert done.returncode == host.may_use_tiles()
