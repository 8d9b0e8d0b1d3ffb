"""A model is tried in a process of its own before an engine gets it in this one.

An engine that dies of a model would take all of `bench` with it. As a program,
`python -m pipelines.benchmarks.probe_process FOLDER` does what was described in the folder.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.benchmarks.variants import Variant
from pipelines.store import keys

Array = np.ndarray[Any, Any]

MODULE = "pipelines.benchmarks.probe_process"
_MODEL, _ARRAYS, _ASKED = "model", "inputs.npz", "asked.json"


def death(
    load: Callable[..., Any], variant: Variant, inputs: Mapping[str, Array], threads: int
) -> str | None:
    """Return the signal that ended a process in which `load` loaded and ran a model, or None.

    What `load` raises is no death. One that is no function of a module, such as that of an engine
    which has a process of its own anyway, is not tried.
    """
    if not hasattr(load, "__qualname__"):
        return None
    with tempfile.TemporaryDirectory(prefix="bitkiln-bench-") as name:
        _describe(Path(name), load, variant, inputs, threads)
        command = [sys.executable, "-m", MODULE, name]
        code = subprocess.run(command, cwd=keys.ROOT, capture_output=True, check=False).returncode
    return signal.Signals(-code).name if code < 0 else None


def _describe(
    folder: Path,
    load: Callable[..., Any],
    variant: Variant,
    inputs: Mapping[str, Array],
    threads: int,
) -> None:
    (folder / _MODEL).write_bytes(variant.source)
    np.savez(folder / _ARRAYS, *inputs.values())
    asked = {
        "load": [load.__module__, load.__qualname__],
        "variant": [variant.precision, variant.form],
        "inputs": list(inputs),
        "threads": threads,
    }
    (folder / _ASKED).write_text(json.dumps(asked))


def main(folder: Path) -> None:
    """Load and run what a folder describes, once."""
    asked = json.loads((folder / _ASKED).read_text())
    module, name = asked["load"]
    precision, form = asked["variant"]
    variant = Variant(precision, (folder / _MODEL).read_bytes(), form)
    with np.load(folder / _ARRAYS) as stored:
        inputs = dict(zip(asked["inputs"], (stored[file] for file in stored.files), strict=True))
    getattr(importlib.import_module(module), name)(variant, inputs, asked["threads"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
