"""The process that is asked: one for all files, a new one after its death or when it stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.conformance import examiner_process


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[examiner_process.Worker]:
    monkeypatch.setattr(examiner_process, "MODULE", "tests.pipelines.conformance.dying_worker")
    with examiner_process.Worker() as made:
        yield made


def test_one_process_answers_until_it_dies(worker: examiner_process.Worker) -> None:
    first, second = (worker.row(Path(name), {}) for name in ("a", "b"))
    assert first["process"] == second["process"]
    dead = worker.row(Path("dies"), {})
    assert dead["status"] == "crashed" and dead["trace"] == ["last words"]
    assert dead["why"].startswith("importing ended the process (-")
    third = worker.row(Path("c"), {})
    assert third["status"] == "exact" and third["process"] != first["process"]


def test_that_the_framework_dies_is_not_our_fault(worker: examiner_process.Worker) -> None:
    row = worker.row(Path("peer dies"), {})
    assert row["status"] == "alone"
    assert row["why"].startswith("the framework's own runtime ended the process")


def test_a_file_that_stands_still_is_ended(
    worker: examiner_process.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examiner_process, "SECONDS", 3)
    row = worker.row(Path("stands"), {})
    assert row["status"] == "crashed" and row["why"] == "importing took more than 3 seconds"
    assert worker.row(Path("a"), {})["status"] == "exact"
