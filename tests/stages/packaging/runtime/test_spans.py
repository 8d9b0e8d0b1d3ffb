"""Layer times in a library: what runs note, and what layers are said to take."""

from __future__ import annotations

import ctypes
import io
import json
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.package import open_package
from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.program.kernel_program import Program
from tests.stages.packaging.profiled import NAMES, check_trace, native, profiled
from tests.stages.packaging.runtime.loaded import (
    SPAN,
    Loaded,
    memory,
    of_three_images,
    run_program,
    with_a_last_call_for_all,
)
from tests.stages.packaging.runtime.test_layer_shares import swept
from tests.stages.packaging.support import (
    AARCH64,
    ARMV7,
    X86_64,
    assembled,
    compile_object,
    make_golden,
    meaning,
    write,
    zig,
)

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("profiled"), profiled(X86_64))


class Armed:
    """An armed context of a package."""

    def __init__(self, package: Loaded, threads: int, clock: Any = None) -> None:
        self.package, self.threads = package, threads
        entry = package.entry
        for function in ("most_spans", "spans"):
            entry(function).restype = ctypes.c_size_t
        self.context = package.open(threads)
        self.here = ctypes.c_void_p(self.context.ctypes.data)
        self.most = int(entry("most_spans")(threads))
        self.room = np.zeros(self.most, SPAN)
        at = ctypes.c_void_p(self.room.ctypes.data)
        assert entry("profile")(self.here, at, clock) == 0

    def spans(self) -> np.ndarray:
        return self.room[: int(self.package.entry("spans")(self.here))]

    def times(self) -> np.ndarray:
        found = np.zeros(int(self.package.entry("layers")()))
        self.package.entry("layer_times")(self.here, ctypes.c_void_p(found.ctypes.data))
        return found


def run(armed: Armed, images: int) -> float:
    """Run the toy on so many images and compare; how long it took, ns."""
    image = make_golden().inputs["image"][:images]
    expected = meaning(image)
    source = memory(image.nbytes)
    source[:] = image.ravel()
    outs = [memory(value.nbytes) for value in expected.values()]
    begin = monotonic()
    assert armed.package.run(armed.context, [source], outs) == 0
    end = monotonic()
    for out, value in zip(outs, expected.values(), strict=True):
        assert out.tobytes() == value.tobytes()
    spans = armed.spans()
    if len(spans):
        assert begin <= spans["begin"].min() and spans["end"].max() <= end
    return end - begin


def monotonic() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@native
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_run_notes_who_was_where(folder: Path, threads: int) -> None:
    toy = Loaded(folder, "toy")
    toy.entry("layer_name").restype = toy.entry("layer_kernel").restype = ctypes.c_char_p
    armed = Armed(toy, threads)
    manifest = json.loads((folder / "manifest.json").read_text())
    for index, layer in enumerate(manifest["layers"]):
        assert toy.entry("layer_name")(index).decode() == layer["layer"] == NAMES[index]
        assert toy.entry("layer_kernel")(armed.here, index).decode() == layer["kernel"]
    assert toy.entry("layer_name")(4) is toy.entry("layer_kernel")(armed.here, -1) is None
    for _ in range(30):
        whole = run(armed, 1)
        spans = armed.spans()
        assert len(spans) <= armed.most == 3 * threads + 1
        assert set(spans["layer"]) == set(range(4)) and set(spans["thread"]) <= set(range(threads))
        assert not spans["picture"].any() and not spans["reserved"].any()
        pairs = Counter((int(s["layer"]), int(s["thread"])) for s in spans)
        assert max(pairs.values()) == 1 and sum(layer == 3 for layer, _ in pairs) == 1
        # Layers wait for each other.
        for layer in range(3):
            last = spans["end"][spans["layer"] == layer].max()
            assert last <= spans["begin"][spans["layer"] == layer + 1].min()
        times = armed.times()
        assert 0 < times.sum() <= whole
        np.testing.assert_allclose(times, swept(spans, 4), rtol=1e-9)
    assert toy.entry("profile")(armed.here, None, None) == 0
    assert run(armed, 1) > 0 and len(armed.spans()) == 0
    toy.finish(armed.context)
    assert toy.entry("profile")(armed.here, None, None) == 6
    assert toy.entry("profile")(None, None, None) == 1
    assert toy.entry("most_spans")(0) == toy.entry("most_spans")(257) == 0


@pytest.fixture(scope="module", params=[of_three_images, with_a_last_call_for_all])
def batch(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Program, Path]:
    """The toy on three images, and its package."""
    program, golden = request.param(), make_golden()
    files = assembled(
        program=program,
        golden=Golden(
            {name: value.swapaxes(0, 1) for name, value in golden.inputs.items()},
            {name: value.swapaxes(0, 1) for name, value in golden.outputs.items()},
        ),
        options=PackageOptions(name="toy", profile=True),
        hardware=X86_64,
        provenance={},
    )
    return program, write(tmp_path_factory.mktemp("batch"), files)


@native
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_images_of_a_batch_are_told_apart(
    batch: tuple[Program, Path], threads: int, tmp_path: Path
) -> None:
    made, folder = batch
    armed = Armed(Loaded(folder, "toy"), threads)
    for _ in range(10):
        whole = run(armed, 3)
        spans = armed.spans()
        found = defaultdict(set)
        for span in spans:
            found[int(span["layer"])].add(int(span["picture"]))
        last = {-1} if made.batch_call_count else {0, 1, 2}
        assert dict(found) == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: last}
        assert len(spans) <= armed.most
        if threads <= 3:  # an image is one thread's alone
            apart = spans[spans["picture"] >= 0]
            assert len({(s["picture"], s["thread"]) for s in apart}) == 3
        assert 0 < armed.times().sum() <= whole
        np.testing.assert_allclose(armed.times(), swept(spans, 4), rtol=1e-9)
    armed.package.finish(armed.context)
    trace = tmp_path / "trace.json"
    done = run_program(folder / "toy", "--threads", str(threads), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    check_trace(json.loads(trace.read_text()), made, threads, 1)


CLOCK = """
unsigned long long clock(void) { return ++*(volatile unsigned long long *)0x300000; }
"""


@pytest.mark.parametrize("hardware", [AARCH64, ARMV7], ids=lambda item: item.name)
def test_a_clock_of_the_caller_s_needs_no_operating_system(
    hardware: Hardware, tmp_path: Path
) -> None:
    """The emulator fails where the library calls libc. The clock counts how often it is read."""
    pytest.importorskip("unicorn", reason="needs the extra 'emulator'")
    golden = make_golden()
    runner = EmulatedRunner(open_package(write(tmp_path, profiled(hardware))))
    expected = {name: value[0] for name, value in golden.outputs.items()}
    image = {"image": golden.inputs["image"][0]}
    machine, call = runner._machine, runner._call
    found = runner.run(image)
    assert all((found[name] == value).all() for name, value in expected.items())
    code = elffile.ELFFile(io.BytesIO(compile_object(CLOCK, hardware)))
    machine.map(0x200000, 4096)
    machine.map(0x300000, 4096)
    machine.write(0x200000, code.get_section_by_name(".text").data())
    spans = machine.allocate(SPAN.itemsize * call("most_spans", 1))
    assert call("profile", runner._context, spans, 0x200000) == 0
    for count in range(2):
        found = runner.run(image)
        assert all((found[name] == value).all() for name, value in expected.items())
        assert call("spans", runner._context) == 4
        noted = np.frombuffer(machine.read(spans, 4 * SPAN.itemsize), SPAN)
        assert noted["layer"].tolist() == [0, 1, 2, 3] and not noted["thread"].any()
        assert noted["begin"].tolist() == [8 * count + at for at in (1, 3, 5, 7)]
        assert noted["end"].tolist() == [8 * count + at for at in (2, 4, 6, 8)]
        times = machine.allocate(4 * 8)
        call("layer_times", runner._context, times)
        assert np.frombuffer(machine.read(times, 32)).tolist() == [1] * 4
    assert call("profile", runner._context, spans, 0) == 0
    with pytest.raises(UserError, match="called clock_gettime"):
        runner.run(image)


MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "toy.h"
static unsigned char x[1003], levels[1003];
static int scores[1003];
static uint64_t now;
static uint64_t ticks(void) { return __atomic_add_fetch(&now, 1, __ATOMIC_RELAXED); }
int main(void)
{
    enum { THREADS = 2 };
    const void *in[] = {x};
    void *out[] = {scores, levels};
    void *context = memset(aligned_alloc(64, toy_context_size()), 0, toy_context_size());
    struct toy_span *spans = malloc(toy_most_spans(THREADS) * sizeof *spans);
    double times[TOY_LAYERS], sum = 0;
    if (toy_init(context, aligned_alloc(64, toy_arena_size(THREADS)), THREADS)
        || toy_profile(context, spans, ticks) || toy_run(context, in, out))
        return 1;
    toy_layer_times(context, times);
    for (int i = 0; i < toy_layers(); i++)
        sum += times[i];
    printf("%d\n", 0 < sum && sum <= (double)now && now >= 2 * toy_spans(context));
    toy_finish(context);
}
"""


@native
def test_c_calls_it_as_the_header_says(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    paths = (f"-I{folder}", "main.c", str(folder / "libtoy.a"))
    zig(tmp_path, "cc", "-Wall", "-Wextra", *paths, "-lpthread", "-o", "main")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
