"""A source model executed by several processes: the same outputs in the same order, none left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluation import reference_workers as workers
from pipelines.evaluation.reference_model import Array, Reference

ROOT = Path(__file__).parents[2]
COUNT = 40


@pytest.fixture(scope="module")
def reference() -> Reference:
    source = (ROOT / "recipes/models/digits_a2w2.onnx").read_bytes()
    from stages import importing
    from stages.options import ImportOptions

    shapes, outputs = importing.signature(importing.run(source=source, options=ImportOptions()))
    return Reference.of_source(source, next(iter(shapes)), outputs[0])


def digits() -> Iterator[Array]:
    images = np.load(ROOT / "recipes/models/digits_test.npz")["images"]
    yield from (image[None] for image in images[:COUNT])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_outputs_are_those_of_one_process_and_no_process_is_left(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reference, "batch_size", lambda *_: 4)
    started: list[int] = []
    begin = workers.Worker.__init__

    def noted(worker: workers.Worker, given: Reference) -> None:
        begin(worker, given)
        started.append(worker._process.pid)

    monkeypatch.setattr(workers.Worker, "__init__", noted)
    alone = list(reference.batches(digits()))
    shared = list(workers.outputs(reference, digits(), COUNT, processes=2))
    assert len(started) == 2 and not any(map(is_running, started))
    np.testing.assert_array_equal(np.stack(shared), np.stack(alone))

    # Whoever stops looking, as an interrupt does, waits for nothing and leaves nothing.
    looking = workers.outputs(reference, digits(), COUNT, processes=2)
    assert [next(looking).shape for _ in range(5)] == [alone[0].shape] * 5
    looking.close()  # type: ignore[attr-defined]
    assert len(started) == 4 and not any(map(is_running, started))


def test_a_process_ends_when_nothing_more_can_be_asked(reference: Reference) -> None:
    worker = workers.Worker(reference)
    worker._requests.close()
    assert worker._process.wait(60) == 0
    worker.end()


def test_a_process_that_dies_is_made_up_for(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_ONE_THREAD", {"PYTHONPATH": "/nowhere", "PYTHONHOME": "/none"})
    monkeypatch.setattr(Reference, "batch_size", lambda *_: 4)
    alone = list(reference.batches(digits()))
    shared = list(workers.outputs(reference, digits(), COUNT, processes=2))
    np.testing.assert_array_equal(np.stack(shared), np.stack(alone))


def test_little_work_starts_no_process(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "Worker", None)
    assert len(list(workers.outputs(reference, digits(), COUNT))) == COUNT
