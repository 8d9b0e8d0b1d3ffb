"""Larq Compute Engine in an environment of its own, named by `peers.larq=PYTHON`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from pipelines.benchmarks.engines import Array, Engine, Loaded
from pipelines.benchmarks.variants import Variant
from pipelines.errors import UserError

NAME = "Larq Compute Engine"
WAYS = {"default": NAME, "fastest": f"{NAME}, indirect products and XNNPACK"}
"""How the worker runs a model → what that is called."""
FORMATS = ("larq", "tflite")
INSTALL = (
    "for example: python3.12 -m venv larq && larq/bin/pip install larq-compute-engine 'numpy<2'"
)
WORKER = Path(__file__).with_name("larq_worker.py")
_VERSION = "from importlib.metadata import version; print(version('larq-compute-engine'))"


def engines(python: str) -> list[Engine]:
    """Return what a Python runs, in Larq's own way and in its fastest; UserError without Larq."""
    path = shutil.which(python)
    if path is None:
        raise UserError(f"peers.larq={python}: no such program; a Python is accepted, {INSTALL}")
    asked = subprocess.run(
        [path, "-I", "-c", _VERSION], capture_output=True, text=True, check=False
    )
    version = asked.stdout.strip()
    if asked.returncode or not version:
        raise UserError(f"peers.larq={python}: it has no larq-compute-engine; {INSTALL}")
    return [Engine(name, version, FORMATS, partial(_load, path, way)) for way, name in WAYS.items()]


def _load(
    python: str, way: str, variant: Variant, inputs: Mapping[str, Array], threads: int
) -> Loaded:
    folder = tempfile.TemporaryDirectory(prefix="bitkiln-larq-")
    model, arrays = Path(folder.name) / "model.tflite", Path(folder.name) / "inputs.npz"
    model.write_bytes(variant.source)
    np.savez(arrays, *inputs.values())
    command = [python, "-I", str(WORKER), str(model), str(arrays), str(threads), way]
    worker = _Worker(command, folder)
    return Loaded(worker.outputs, worker.timed)


class _Worker:
    """A process that has a model loaded; it ends with this object."""

    def __init__(self, command: list[str], folder: tempfile.TemporaryDirectory[str]) -> None:
        self._folder = folder
        self._errors: IO[str] = (Path(folder.name) / "errors").open("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._answer()

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def timed(self, count: int) -> float:
        """Seconds of a run, over so many."""
        return float(self._asked(f"time {count}"))

    def outputs(self) -> list[Array]:
        """The outputs, in order."""
        file = Path(self._folder.name) / "outputs.npz"
        self._asked(f"outputs {file}")
        with np.load(file) as stored:
            return [np.array(stored[name]) for name in stored.files]

    def _asked(self, line: str) -> str:
        pipe: Any = self._process.stdin
        pipe.write(f"{line}\n")
        pipe.flush()
        return self._answer()

    def _answer(self) -> str:
        pipe: Any = self._process.stdout
        line = str(pipe.readline())
        if not line:
            self._errors.seek(0)
            said = [text for text in self._errors.read().splitlines() if text.strip()]
            raise RuntimeError(said[-1] if said else "it ended without a word")
        return line
