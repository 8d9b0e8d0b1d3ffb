"""Layer times in a library: what is emitted, what runs note, what layers are said to take."""

from __future__ import annotations

import ast
import ctypes
import io
import json
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.package import open_package
from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.c_source.layer_times import PUBLIC, c_string
from stages.packaging.files.header import header_source
from stages.packaging.program.arena import plan
from stages.packaging.program.constants import pack_constants
from stages.packaging.program.program import Fallback, Program
from tests.stages.packaging import golden_text
from tests.stages.packaging.profiled import NAMES, check_trace, native, profiled
from tests.stages.packaging.runtime.test_runtime import (
    Loaded,
    memory,
    of_three_pictures,
    run_program,
    with_a_last_call_for_all,
)
from tests.stages.packaging.support import (
    AARCH64,
    ARMV7,
    TARGETS,
    X86_64,
    assembled,
    compile_object,
    copy_runtime,
    make_golden,
    make_program,
    meaning,
    package,
    write,
    zig,
)
from tests.targets import is_native

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")

SPAN = np.dtype(
    [(name, "u8") for name in ("begin", "end")]
    + [(name, "i4") for name in ("layer", "picture", "thread", "reserved")]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("profiled"), profiled(X86_64))


def test_what_is_emitted_is_as_agreed() -> None:
    program = make_program(AARCH64)
    text = graph_source(program, plan(program), pack_constants(program), AARCH64, True)
    golden_text.check("profiled_graph.c", text)
    golden_text.check("profiled_toy.h", header_source(make_program(ARMV7), "toy", ARMV7, True))


def test_the_header_compiles_alone(tmp_path: Path) -> None:
    (tmp_path / "toy.h").write_text(header_source(make_program(X86_64), "toy", X86_64, True))
    (tmp_path / "use.c").write_text('#include "toy.h"\nstruct toy_span span;\n')
    for compiler in ("cc", "c++"):
        flags = ("-x", "c++") if compiler == "c++" else ()
        zig(tmp_path, compiler, *flags, "-c", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "use.c")


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_a_library_has_just_these_functions_more(hardware: Hardware) -> None:
    """Without layer times there is no trace of them; those of a package are other bytes alone."""
    without, built = package(hardware), profiled(hardware)
    tables = [
        elffile.ELFFile(io.BytesIO(files["libtoy.so"])).get_section_by_name(".dynsym")
        for files in (without, built)
    ]
    exported, more = (
        {item.name for item in table.iter_symbols() if item["st_shndx"] != "SHN_UNDEF"}
        for table in tables
    )
    assert more - exported == {f"toy_{function}" for function in PUBLIC}
    imports, wanted = (
        {item.name for item in table.iter_symbols() if item["st_shndx"] == "SHN_UNDEF"}
        for table in tables
    )
    assert wanted - imports == {"clock_gettime"}
    assert without.keys() == built.keys()
    changed = {name for name, data in built.items() if data != without[name]}
    texts = {"toy.h", "toy.py", "toy.cdx.json", "manifest.json"}
    assert changed == {"libtoy.so", "libtoy.a", "toy", *texts}
    for name in ("toy", "toy.py", "toy.h", "libtoy.so", "manifest.json"):
        assert b"profile" not in without[name] and b"PROFILE" not in without[name], name
    assert json.loads(built["manifest.json"])["profile"] is True


@given(st.text())
def test_names_survive_in_c(text: str) -> None:
    literal = c_string(text)
    assert literal.isascii() and literal.isprintable() and "??" not in literal
    kept = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    assert ast.literal_eval(f"b{literal}") == kept


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

    def has_wide_weights(self) -> np.ndarray:
        return self.room[: int(self.package.entry("spans")(self.here))]

    def times(self) -> np.ndarray:
        found = np.zeros(int(self.package.entry("layers")()))
        self.package.entry("layer_times")(self.here, ctypes.c_void_p(found.ctypes.data))
        return found


def run(armed: Armed, pictures: int) -> float:
    """Run the toy on so many pictures and compare; how long it took, ns."""
    image = make_golden().inputs["image"][:pictures]
    expected = meaning(image)
    source = memory(image.nbytes)
    source[:] = image.ravel()
    outs = [memory(value.nbytes) for value in expected.values()]
    begin = monotonic()
    assert armed.package.run(armed.context, [source], outs) == 0
    end = monotonic()
    for out, value in zip(outs, expected.values(), strict=True):
        assert out.tobytes() == value.tobytes()
    spans = armed.has_wide_weights()
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
        spans = armed.has_wide_weights()
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
    assert run(armed, 1) > 0 and len(armed.has_wide_weights()) == 0
    toy.finish(armed.context)
    assert toy.entry("profile")(armed.here, None, None) == 6
    assert toy.entry("profile")(None, None, None) == 1
    assert toy.entry("most_spans")(0) == toy.entry("most_spans")(257) == 0


@pytest.fixture(scope="module", params=[of_three_pictures, with_a_last_call_for_all])
def batch(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Program, Path]:
    """The toy on three pictures, and its package."""
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
def test_pictures_of_a_batch_are_told_apart(
    batch: tuple[Program, Path], threads: int, tmp_path: Path
) -> None:
    made, folder = batch
    armed = Armed(Loaded(folder, "toy"), threads)
    for _ in range(10):
        whole = run(armed, 3)
        spans = armed.has_wide_weights()
        found = defaultdict(set)
        for span in spans:
            found[int(span["layer"])].add(int(span["picture"]))
        last = {-1} if made.together else {0, 1, 2}
        assert dict(found) == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: last}
        assert len(spans) <= armed.most
        if threads <= 3:  # a picture is one thread's alone
            apart = spans[spans["picture"] >= 0]
            assert len({(s["picture"], s["thread"]) for s in apart}) == 3
        assert 0 < armed.times().sum() <= whole
        np.testing.assert_allclose(armed.times(), swept(spans, 4), rtol=1e-9)
    armed.package.finish(armed.context)
    trace = tmp_path / "trace.json"
    done = run_program(folder / "toy", "--threads", str(threads), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    check_trace(json.loads(trace.read_text()), made, threads, 1)


def test_the_kernel_is_the_one_that_runs() -> None:
    """Where the operating system refuses tiles, the other one."""
    made = make_program(X86_64)
    first, second, third, last = made.calls
    call = replace(third, fallback=Fallback("window", 8))
    program = replace(made, calls=(first, second, call, last))
    text = graph_source(program, plan(program), pack_constants(program), X86_64, True)
    own = "((const struct context *)context)"
    assert f'case 2: return {own}->tiles ? "divide" : "window";' in text


def swept(spans: np.ndarray, layers: int) -> np.ndarray:
    """What layer times are said to be: each moment in equal parts for each thread in a layer."""
    times = np.zeros(layers)
    moments = np.unique(np.concatenate([spans["begin"], spans["end"]]))
    for first, last in pairwise(moments):
        inside = spans["layer"][(spans["begin"] <= first) & (spans["end"] >= last)]
        if len(inside):
            np.add.at(times, inside, float(last - first) / len(inside))
    return times


@st.composite
def logs(draw: st.DrawFn) -> np.ndarray:
    """Spans of a few threads, those of each in order, as several write them."""
    spans = []
    for thread in range(draw(st.integers(1, 4))):
        edges = sorted(draw(st.lists(st.integers(0, 40), max_size=12)))
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            spans.append((begin, end, draw(st.integers(0, 4)), 0, thread, 0))
    return np.array(sorted(spans, key=lambda span: span[1]), SPAN)


@pytest.fixture(scope="module")
def layer_times(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The runtime's `rt_layer_times` on an array of spans."""
    if not is_native(X86_64):
        pytest.skip("runs natively")
    folder = tmp_path_factory.mktemp("times")
    copy_runtime(folder, "runtime.h", "profile.h", "profile.c")
    wrapper = (
        '#include "profile.h"\n'
        "void times(struct rt_span *s, uint32_t n, int32_t threads, int32_t layers, double *t)\n"
        "{ struct rt_log log = {s, 0, n}; rt_layer_times(&log, threads, layers, t); }\n"
    )
    (folder / "times.c").write_text(wrapper)
    zig(folder, "cc", "-shared", "-fPIC", "times.c", "profile.c", "-o", "times.so")
    return ctypes.CDLL(str(folder / "times.so")).times


@given(logs())
def test_layer_times_share_each_moment(layer_times: Any, spans: np.ndarray) -> None:
    found = np.full(5, np.nan)
    pointer = ctypes.c_void_p
    layer_times(pointer(spans.ctypes.data), len(spans), 4, 5, pointer(found.ctypes.data))
    np.testing.assert_allclose(found, swept(spans, 5), atol=1e-9)


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
