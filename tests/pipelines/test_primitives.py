"""`doit bench primitives=`: the same sums with every scheduling primitive."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hw.profile import Hardware
from pipelines.benchmarks import primitives
from pipelines.benchmarks.peaks import linked
from pipelines.benchmarks.primitives import PRIMITIVES, REPEATED, RUNS, ConvolutionShape, loops
from stages.codegen import compile_object
from tests.pipelines.fake_clone import doit
from tests.targets import AVX2, SSE2, skip_unless_runnable

RECIPE = "ci/residual_block_a2w1_host"
BITS = "layers=[{match: layer1.0.conv1, algorithm: bitserial}]"
"""On every processor: some multiply bytes faster."""


@pytest.mark.parametrize("hardware", (SSE2, AVX2), ids=lambda item: item.name)
@pytest.mark.parametrize("steps", range(len(PRIMITIVES)))
def test_loops_count_the_bits_that_both_have(steps: int, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    layer = ConvolutionShape((2, 3), (2, 1), (70, 24), (3, 10), (2, 1))
    rng = np.random.default_rng(steps)
    data = rng.integers(0, 1 << 32, (2, *layer.size, layer.words), np.uint32)
    weights = rng.integers(0, 1 << 32, (1, 2, 3, layer.words, 24), np.uint32)
    function = loops("tried", layer, hardware, steps)
    made = compile_object({"tried": function}, hardware)
    sums = np.zeros((3, 10, 24), np.int32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (data, weights, sums)]
    linked({"tried.o": made}).tried(*pointers)
    wanted = np.zeros_like(sums)
    for y, x in np.ndindex(3, 10):
        window = data[:, 2 * y : 2 * y + 2, x : x + 3, :, None]
        bits = np.unpackbits((window & weights).view(np.uint8), axis=-1).sum(axis=(1, 2, 3))
        wanted[y, x] = (bits.reshape(2, 24, 32).sum(axis=2) * [[1], [2]]).sum(axis=0)
    np.testing.assert_array_equal(sums, wanted)


def test_loops_and_the_package_are_timed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way runs as often, in as many tries: the best of some is less than the mean of some."""
    runs: Counter[str] = Counter()

    class Entries:
        def __getitem__(self, name: str) -> Callable[..., None]:
            return lambda *_: runs.update([name])

    call = SimpleNamespace(layer="conv", scratch_bytes=0)
    program = SimpleNamespace(
        program=SimpleNamespace(calls=[call]), kernel=lambda _: (Entries()["package"], [None] * 3)
    )
    monkeypatch.setattr(primitives, "loops", lambda *_: None)
    monkeypatch.setattr(primitives, "linked", lambda _: Entries())
    monkeypatch.setattr("stages.codegen.compile_object", lambda *_: b"")
    layer = ConvolutionShape((1, 1), (1, 1), (32, 16), (4, 4), (1, 1))
    found = primitives.times(layer, SSE2, cast(Any, program), "conv", 2)
    assert list(found) == [*PRIMITIVES, "+ 2 threads", "the package's kernel"]
    each = RUNS * REPEATED
    loops_alone = {f"steps{number}": each for number in range(len(PRIMITIVES))}
    assert runs == {**loops_alone, "part": 2 * each, "package": 2 * each}


@pytest.mark.slow
def test_one_primitive_more_at_a_time(tmp_path: Path, alone: Callable[[str], str]) -> None:
    target = tmp_path / "r.json"
    given = ("primitives=layer1.0.conv1", "threads=2", f"json={target}")
    recipe = alone(RECIPE)
    done = doit("bench", f"recipe={recipe}", BITS, *given)
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = json.loads(target.read_text())["seconds"]
    assert list(seconds) == [*PRIMITIVES, "+ 2 threads", "the package's kernel"]
    assert all(each > 0 for each in seconds.values())
    assert all(name in done.stdout for name in seconds)
    for layer, said in (("fc", "the layer has no kernel of 1 to 3 bits"), ("x", "no such layer")):
        done = doit("bench", f"recipe={recipe}", BITS, f"primitives={layer}")
        assert done.returncode != 0 and said in done.stderr
