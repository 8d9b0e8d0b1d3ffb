"""Processes that execute a source model, each a share of the samples; outputs come in order.

NumPy spends its time in copies and in products of matrices, which it multiplies on all cores only
where they are large: as many processes as cores, of one thread each, finish sooner. They are
started where that is worth it, know nothing of the terminal, and end with this process however it
ends: what they read then stops.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

import numpy as np

from pipelines.evaluation.reference_model import Array, Chunk, Reference
from pipelines.store import keys

WORTH = 5.0
"""Seconds of work left from which on processes are started: one takes about two to begin."""
MOST = 16
"""Most processes: each holds the model, and a batch of what it computes."""
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def outputs(
    reference: Reference, samples: Iterator[Array], count: int, processes: int | None = None
) -> Iterator[Array]:
    """Yield the output of every one of `count` samples, in the samples' order.

    `processes` are started whatever is left to do; without it as many as there are cores, where
    the work is worth it and the reference can be told to another process.
    """
    chunks = reference.chunks(samples)
    wanted = processes or min(MOST, cores())
    done, seconds = 0, 0.0
    for chunk in chunks:
        start = time.monotonic()
        yield from reference.together(chunk)
        done, seconds = done + len(chunk), seconds + time.monotonic() - start
        left = seconds * (count - done) / done
        if reference.source is not None and wanted > 1 and (processes or left > WORTH):
            break
    else:
        return
    yield from _shared(reference, chunks, wanted)


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _shared(reference: Reference, chunks: Iterator[Chunk], count: int) -> Iterator[Array]:
    idle: queue.Queue[Worker] = queue.Queue()
    workers: list[Worker] = []
    is_over = threading.Event()

    def answered(chunk: Chunk) -> Chunk:
        worker = idle.get()
        try:
            return worker.together(chunk)
        except (OSError, EOFError, ValueError):
            if is_over.is_set():
                raise
            # What stopped it happens here once more, and is said as it is said here.
            return reference.together(chunk)
        finally:
            idle.put(worker)

    waiting: deque[Future[Chunk]] = deque()
    pool = ThreadPoolExecutor(count)
    try:
        for _ in range(count):
            workers.append(Worker(reference))
            idle.put(workers[-1])
        for chunk in chunks:
            waiting.append(pool.submit(answered, chunk))
            if len(waiting) > 2 * count:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        is_over.set()
        for future in waiting:
            future.cancel()
        for worker in workers:
            worker.end()
        pool.shutdown()


class Worker:
    """A process that executes a reference."""

    def __init__(self, reference: Reference) -> None:
        reading, writing = os.pipe()
        with contextlib.ExitStack() as started:
            started.callback(os.close, writing)
            self._answers = open(reading, "rb")  # noqa: SIM115, PTH123, closed by end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(writing)],
                cwd=keys.ROOT,
                env={**os.environ, **_ONE_THREAD},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._requests: IO[bytes] = self._process.stdin
        self._begins = [json.dumps(reference.to_plain()).encode(), reference.source or b""]

    def together(self, chunk: Chunk) -> Chunk:
        """Return the output of each sample; OSError or EOFError if the process is gone."""
        for data in self._begins:
            _send(self._requests, data)
        self._begins = []
        _send(self._requests, _packed(np.stack(chunk)))
        return list(_unpacked(_received(self._answers)))

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for file in (self._requests, self._answers):
            with contextlib.suppress(OSError, ValueError):
                file.close()


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Execute what is asked for until nothing more is."""
    told: dict[str, Any] = json.loads(_received(requests))
    reference = Reference.as_told(told, _received(requests))
    while True:
        chunk = list(_unpacked(_received(requests)))
        _send(answers, _packed(np.stack(reference.together(chunk))))


def _send(file: IO[bytes], data: bytes) -> None:
    file.write(struct.pack("<Q", len(data)))
    file.write(data)
    file.flush()


def _received(file: IO[bytes]) -> bytes:
    (size,) = struct.unpack("<Q", _exactly(file, 8))
    return _exactly(file, size)


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _packed(values: Array) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, allow_pickle=False)
    return buffer.getvalue()


def _unpacked(data: bytes) -> Array:
    return np.asarray(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False))


if __name__ == "__main__":
    with (
        contextlib.suppress(EOFError, BrokenPipeError),
        open(int(sys.argv[1]), "wb") as _answers,  # noqa: PTH123
    ):
        serve(sys.stdin.buffer, _answers)
