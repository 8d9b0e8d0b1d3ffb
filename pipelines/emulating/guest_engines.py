"""Other engines' aarch64 wheels under QEMU: what one inference of theirs executes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.emulating import kept_runs, processors, userland
from pipelines.emulating.processors import Processor
from pipelines.modelling.code_blocks import Interval
from pipelines.modelling.memory import NO_MEMORY, Memory
from pipelines.modelling.plugin import plugin
from pipelines.modelling.qemu_counts import count
from pipelines.store import keys

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Guest:
    """An engine in the userland."""

    name: str
    wheel: str
    form: str
    """The ending of the files that it reads."""
    script: str

    @property
    def title(self) -> str:
        """Its name with its version."""
        return f"{self.name} {userland.WHEELS[self.wheel]}"


GUESTS: Mapping[str, Guest] = {
    "litert": Guest("LiteRT", "ai-edge-litert", "tflite", "litert.py"),
    "onnxruntime": Guest("ONNX Runtime", "onnxruntime", "onnx", "onnx_runtime.py"),
}
"""By the name that `peers=` takes."""

_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}
_FROM_HERE = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Ran:
    """One inference of a model: its outputs, and what was executed."""

    outputs: Sequence[Array]
    interval: Interval


def run(
    guest: Guest,
    models: Sequence[tuple[bytes, Sequence[Array]]],
    found: Processor,
    memory: Memory = NO_MEMORY,
) -> list[Ran]:
    """Run models, each with its inputs, one after another in one process of an engine.

    What ran once is remembered. UserError says what is not installed, or what the engine said that
    failed.
    """
    ingredients = [
        *(guest.title, userland.folder().name, *astuple(found), memory.options()),
        *(plugin().name, processors.qemu_version("aarch64"), keys.digest(_script(guest))),
    ]
    key = kept_runs.key_of(ingredients, models)
    kept = kept_runs.recall(key)
    if kept is None:
        kept = _run(guest, models, found, memory)
        kept_runs.keep(key, kept)
    return [Ran(outputs, interval) for outputs, interval in kept]


def _run(
    guest: Guest,
    models: Sequence[tuple[bytes, Sequence[Array]]],
    found: Processor,
    memory: Memory,
) -> list[tuple[list[Array], Interval]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bitkiln-guest-")))
        root = stack.enter_context(processors.root(found))
        script = folder / guest.script
        script.write_bytes(_script(guest))
        for index, (model, inputs) in enumerate(models):
            (folder / f"{index:05d}.{guest.form}").write_bytes(model)
            np.savez(folder / f"{index:05d}.npz", *inputs)
        command = [str(userland.python()), str(script), str(folder)]
        environment = {
            **dict.fromkeys(_FROM_HERE, ""),
            **_ENVIRONMENT,
            "PYTHONPATH": str(userland.site()),
        }
        intervals = count(
            command,
            architecture="aarch64",
            cpu=found.qemu,
            prefix=root,
            memory=memory,
            env=environment,
        )
        return [
            (_arrays(folder / f"{index:05d}.out.npz"), interval)
            for index, interval in enumerate(intervals)
        ]


def _script(guest: Guest) -> bytes:
    return files("pipelines.emulating").joinpath("guests", guest.script).read_bytes()


def _arrays(path: Path) -> list[Array]:
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]
