"""What other engines executed comes back as it was kept, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.emulating import kept_runs
from pipelines.modelling.code_blocks import Block, Events

COUNTS = st.integers(0, 2**63 - 1)
BLOCKS = st.builds(
    Block, COUNTS, st.integers(1, 99), COUNTS, st.binary(), st.builds(Events, *[COUNTS] * 8)
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.lists(BLOCKS, max_size=4).map(tuple), max_size=3))
def test_what_is_kept_comes_back(intervals: list[tuple[Block, ...]]) -> None:
    outputs: list[kept_runs.Array] = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([], np.int8),
    ]
    kept_runs.keep("key", [(outputs, interval) for interval in intervals])
    found = kept_runs.recall("key")
    assert found is not None and [interval for _, interval in found] == intervals
    for back, _ in found:
        for old, new in zip(outputs, back, strict=True):
            assert old.dtype == new.dtype and np.array_equal(old, new)


def test_what_is_not_whole_is_not_there() -> None:
    assert kept_runs.recall("key") is None
    kept_runs.keep("key", [([np.zeros(3)], (Block(1, 1, 1, b"abcd"),))])
    path = kept_runs.folder() / "key.npz"
    data = path.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert kept_runs.recall("key") is None


def test_other_models_inputs_and_releases_have_other_keys() -> None:
    x = np.zeros((2, 3), np.int8)
    variants = [
        (["LiteRT 1"], [(b"a", [x])]),
        (["LiteRT 2"], [(b"a", [x])]),
        (["LiteRT 1"], [(b"b", [x])]),
        (["LiteRT 1"], [(b"a", [x + 1])]),
        (["LiteRT 1"], [(b"a", [x.reshape(3, 2)])]),
        (["LiteRT 1"], [(b"a", [x]), (b"a", [x])]),
    ]
    assert len({kept_runs.key_of(*each) for each in variants}) == len(variants)
