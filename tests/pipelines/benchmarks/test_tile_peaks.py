"""Tiles under the clock: what is measured of them runs, be it emulated."""

from __future__ import annotations

import pytest

from hw import host
from pipelines.benchmarks.kernel_timings import PEAK, timings
from pipelines.benchmarks.peaks import peaks
from stages.kernels.families import TileDots
from stages.kernels.signature import KernelSignature
from tests import tiles
from tests.targets import AMX, AVX512VNNI, skip_unless_runnable


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_runnable(AMX)
    tiles.provide()
    monkeypatch.setattr(host, "may_use_tiles", lambda: True)
    for module in ("peaks", "kernel_timings"):
        monkeypatch.setattr(f"pipelines.benchmarks.{module}._RUNS", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("granted")
def test_the_peak_of_tiles_is_measured_where_there_are_any() -> None:
    found = peaks(AMX)
    vectors = {"mac8", "mac16", "macf32", "macbf16", "popcount"}
    assert set(found) == vectors | {"tiles", "tiles_bf16"}
    assert all(rate > 0 for rate in found.values())
    assert set(peaks(AVX512VNNI)) == vectors


@pytest.mark.slow
@pytest.mark.usefixtures("granted")
def test_kernels_of_tiles_are_timed() -> None:
    kernel = KernelSignature(AMX.isa, None, TileDots(4, 16), 16, 32, "none", 0)
    found = timings([kernel], AMX, 2)
    assert set(found) == {kernel.name, PEAK}
    assert all(timing.median > 0 for timing in found.values())
