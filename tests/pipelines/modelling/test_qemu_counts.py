"""Blocks counted under QEMU, and its plugin's caches beside the same caches in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import UserError
from pipelines.modelling import qemu_counts
from pipelines.modelling.code_blocks import Events, events, executed
from pipelines.modelling.memory import Memory
from pipelines.modelling.plugin import compiled
from tests.pipelines.modelling.caches import Caches
from tests.pipelines.modelling.programs import NEEDS_QEMU, program

LOOP = 'asm volatile("1: subs %0, %0, #1\\n nop\\n nop\\n bne 1b" : "+r"(n) : : "cc");'
CPUS = {"aarch64": "cortex-a53", "armv7": "cortex-a15"}


@NEEDS_QEMU
@pytest.mark.parametrize("architecture", sorted(CPUS))
def test_a_loop_runs_as_often_as_it_says(tmp_path: Path, architecture: str) -> None:
    body = f"unsigned long n = 7; {LOOP} mark(1000001); n = 1000; {LOOP} mark(1000002);"
    body += f"mark(1000001); n = 500; {LOOP} mark(1000002);"
    made = program(tmp_path, architecture, body)
    found = qemu_counts.count([str(made)], architecture=architecture, cpu=CPUS[architecture])
    assert len(found) == 2
    for interval, rounds in zip(found, (1000, 500), strict=True):
        looped = [block for block in interval if block.code.endswith(interval[0].code[-4:])]
        hot = max(looped, key=lambda block: block.count)
        assert hot.instructions == 4 and rounds - 1 <= hot.count <= rounds
        assert 4 * rounds <= executed(interval) < 4 * rounds + 20


@NEEDS_QEMU
def test_lines_that_are_read_are_charged_to_the_block_that_reads(tmp_path: Path) -> None:
    # 64 KiB are read twice, a byte a line: twice too large for the L1 cache, not for the L2 cache.
    body = "mark(1000001); for (int r = 0; r < 2; r++) for (long i = 0; i < 65536; i += 64)"
    body += " (void)((volatile char *)room)[i]; mark(1000002);"
    made = program(tmp_path, "aarch64", body, "static char room[65536] = {1};")
    (interval,) = qemu_counts.count(
        [str(made)], architecture="aarch64", cpu="cortex-a53", memory=Memory(32, 4, 512, 16)
    )
    found = events(interval)
    assert 1024 <= found.loads_memory <= 1028 and 1024 <= found.loads_l2 <= 1028
    hot = [block for block in interval if block.count > 8]
    assert sum(block.l2_misses for block in hot) > 950 < sum(b.events.loads_l2 for b in hot)


@NEEDS_QEMU
def test_a_program_without_marks_and_one_that_fails_are_told(tmp_path: Path) -> None:
    silent = program(tmp_path, "aarch64", "mark(1);")
    with pytest.raises(UserError, match=r"set no marks: call sched_get_priority_max\(1000001\)"):
        qemu_counts.count([str(silent)], architecture="aarch64", cpu="cortex-a53")
    with pytest.raises(UserError, match=r"ended with status .* under qemu-aarch64 -cpu no-such"):
        qemu_counts.count([str(silent)], architecture="aarch64", cpu="no-such")


def test_a_missing_emulator_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"needs qemu-arm and .* apt install qemu-user"):
        qemu_counts.count(["program"], architecture="armv7", cpu="max")


_DRIVER = b"""
#include "memory.h"
__attribute__((visibility("default")))
void run(const uint32_t *o, uint32_t n, const uint64_t *at, const uint8_t *store,
         uint64_t *events) {
  memory_t m = {.streams = o[6], .train = o[7], .distance = o[8], .reach = o[9], .random = o[5]};
  uint32_t kib[2] = {o[0], o[2]}, ways[2] = {o[1], o[3]};
  memory_make(&m, kib, ways, o[4]);
  for (uint32_t k = 0; k < n; k++) memory_access(&m, at[k], 8, store[k], events);
}
"""
_MEMORIES = st.builds(
    Memory,
    l1_kib=st.sampled_from([1, 2]),
    l1_ways=st.sampled_from([1, 2, 4]),
    l2_kib=st.sampled_from([2, 4]),
    l2_ways=st.sampled_from([2, 8]),
    random=st.booleans(),
    streams=st.integers(0, 3),
    train=st.integers(1, 3),
    distance=st.integers(1, 4),
    reach=st.integers(1, 4),
)
_WALKS = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(-3, 3), st.integers(1, 30), st.booleans()
    ),  # line, stride, steps, stores
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(memory=_MEMORIES, walks=_WALKS)
def test_caches_do_what_they_do_in_python(
    memory: Memory, walks: Sequence[tuple[int, int, int, bool]]
) -> None:
    trace = [
        (max(0, line + step * stride) * 64 + 60 * (step % 2), stores)
        for line, stride, steps, stores in walks
        for step in range(steps)
    ]
    header = files("pipelines.modelling").joinpath("memory.h").read_bytes()
    library = ctypes.CDLL(str(compiled({"memory.h": header, "driver.c": _DRIVER}, "driver.c")))
    options = (ctypes.c_uint32 * 10)(
        *(int(item.partition("=")[2]) for item in memory.options().split(","))
    )
    found = (ctypes.c_uint64 * 8)()
    library.run(
        options,
        len(trace),
        (ctypes.c_uint64 * len(trace))(*(at for at, _ in trace)),
        (ctypes.c_uint8 * len(trace))(*(stores for _, stores in trace)),
        found,
    )
    caches = Caches(memory)
    for at, stores in trace:
        caches.access(at, 8, stores)
    assert Events(*found) == Events(**caches.events)
