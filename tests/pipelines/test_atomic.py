"""Files written whole, whoever else writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.store import atomic


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As where two boards of a kind are reached for the first time, and both want a runner."""
    path, contents = tmp_path / "runner", [bytes([n]) * 10_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            list(pool.map(lambda data: atomic.replace(path, data), contents))
            assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
