"""A package on a board: run through its library by the runner, or by its own program."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from pipelines.errors import UserError
from pipelines.remote.deployment import emulator_for, in_folder
from pipelines.remote.dialogue import is_count, is_time
from pipelines.remote.runner_session import Session
from pipelines.remote.timed_turns import State, state, times_of
from pipelines.remote.transport import FOLDER, Transport, ended, script
from pipelines.runners.package import Package
from pipelines.runners.replay import Replay, check_equal, read_replay, words

FIRST_SECONDS = 300.0
"""How long a package may take to be sent, opened and run once."""


@dataclass(frozen=True)
class _Library:
    """A package's shared library, as a runner loads it."""

    package: Package

    @property
    def name(self) -> str:
        """That of the package."""
        return self.package.name

    def shared(self) -> bytes:
        """The library."""
        return self.package.library().read_bytes()

    def static(self) -> bytes:
        """Packages need the C library of the board (UserError)."""
        raise UserError(
            f"{self.package.name} needs glibc 2.28 or newer, which the board has not; its kernels "
            "can be tuned there, and the package runs on another board"
        )


@dataclass(frozen=True)
class Opening:
    """What it took to open a package and to run it once."""

    seconds: float
    """To load the library, to make its context and to run: the time to the first inference."""
    arena_bytes: int
    peak_kib: int
    """Memory of the whole process at its height: the package, its tensors and the runner."""


@dataclass(frozen=True)
class Inferences:
    """Inferences, one after the other."""

    seconds: tuple[float, ...]
    state: State
    joules: float | None
    """Of all of them; None where the board does not tell."""


class RemoteRunner:
    """One package on one board; `close` ends what was started."""

    def __init__(self, to: Transport, package: Package) -> None:
        self.package, self.to = package, to
        self.how = f"on {to.board.name}"
        self.session = Session(to, package.architecture)
        self.session.ready(print)
        self._loading = 0.0

    def open(self, inputs: Mapping[str, np.ndarray], threads: int) -> Opening:
        """Open the package on inputs for so many threads, and run it once."""
        arrays = self.package.check_inputs(inputs)
        self._loading = self.session.load(_Library(self.package)) or self._loading
        blobs = {f"input{place}": array.tobytes() for place, array in enumerate(arrays)}
        self.session.keep(set())
        self.session.put(blobs)
        sizes = [item.nbytes for item in self.package.outputs]
        said = self.session.ask(
            f"package {self.package.name} {threads} {len(blobs)} {' '.join(blobs)} "
            f"{len(sizes)} {' '.join(map(str, sizes))}",
            seconds=FIRST_SECONDS,
        )
        first, arena, peak = (said.get(name) for name in ("first", "arena", "peak_kib"))
        if not is_time(first) or not is_count(arena) or not is_count(peak):
            raise self.session.garbage(said)
        return Opening(float(first) + self._loading, int(arena), int(peak))

    def run(self, inputs: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
        """Run one inference; inputs and outputs by name, in the package's shapes and dtypes."""
        self.open(inputs, threads)
        return {
            item.name: np.frombuffer(
                self.session.ask_bytes(f"output {place}", item.nbytes), item.dtype
            ).reshape(item.shape)
            for place, item in enumerate(self.package.outputs)
        }

    def infer(self, count: int) -> Inferences:
        """Run what was opened so many times more."""
        said = self.session.ask(f"infer {count}", seconds=FIRST_SECONDS)
        used = said.get("microjoules")
        joules = float(used) / 1e6 if is_time(used) else None
        return Inferences(times_of(self.session, said, count), state(said), joules)

    def close(self) -> None:
        """End the runner."""
        self.session.close()

    def __enter__(self) -> RemoteRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replay(to: Transport, package: Package, threads: int) -> Replay:
    """Run a package's own program on a board; it compares its golden vectors there.

    UserError if the processor is refused, or the program cannot run.
    """
    with _Program(to, package, package.file("golden.bin")) as program:
        return program.run(threads, 1)


def trace(to: Transport, package: Package, golden: bytes, threads: int, repeat: int) -> bytes:
    """Run the program there on golden vectors of the caller's, and return the trace of its layers.

    UserError as above, and where it tells no times.
    """
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder) / "golden"
        vectors.write_bytes(golden)
        with _Program(to, package, vectors) as program:
            check_equal(package.name, program.run(threads, repeat, program.names["trace"]))
            line = in_folder(to, ["cat", program.names["trace"]])
            return ended(to.board, line, None, FIRST_SECONDS).stdout.encode()


class _Program:
    """A package's program and golden vectors on a board, which go when it is left."""

    def __init__(self, to: Transport, package: Package, golden: Path) -> None:
        self.to, self.package = to, package
        self.emulator = emulator_for(to, package.architecture)
        self.files = {"program": package.file(package.name), "golden": golden}
        self.names = {kind: f"{kind}-{os.getpid()}" for kind in (*self.files, "trace")}
        # Nobody else's times are disturbed.
        self.held = Session(to, package.architecture)

    def run(self, threads: int, repeat: int, trace: str | None = None) -> Replay:
        """Run it; `trace` names the file for a trace."""
        command = words(f"./{self.names['program']}", threads, repeat, trace)
        line = in_folder(self.to, [*self.emulator, *command, self.names["golden"]])
        done = ended(self.to.board, line, None, FIRST_SECONDS)
        return read_replay(self.package.name, done.returncode, done.stdout, done.stderr)

    def __enter__(self) -> Self:
        try:
            self.held.ready(print)
            for kind, file in self.files.items():
                self.to.copy(file, f"{FOLDER}/{self.names[kind]}")
            script(self.to, f"chmod 755 {FOLDER}/{self.names['program']}\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()
        script(self.to, f"cd {FOLDER} && rm -f {' '.join(self.names.values())}\n")
