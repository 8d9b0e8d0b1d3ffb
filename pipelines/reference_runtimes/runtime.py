"""The frameworks' own runtimes, to compare with: each opened from a model's bytes, where installed.

A reference runtime takes inputs by name and gives outputs by name, in the shapes and types of the
imported model. None of them belongs to bitkiln: the extra `peers` installs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import UserError
from pipelines.store import keys
from stages.options import ImportOptions

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class MissingError(UserError):
    """There is no runtime to compare with here; the message says what to install."""


class RefusedError(UserError):
    """The framework's own runtime does not run this model."""


@dataclass(frozen=True)
class Shape:
    """The inputs and outputs of an imported model, in its order, with each input's shape."""

    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]


Run = Callable[[Mapping[str, "Array"]], dict[str, "Array"]]


@dataclass(frozen=True)
class ReferenceRuntime:
    """A framework's runtime with a model loaded."""

    name: str
    """What it is called, with its version."""
    run: Run


@dataclass(frozen=True)
class _Kind:
    """A reference runtime: what it is called, our module for it, and where it is from."""

    name: str
    module: str
    distribution: str


_KINDS = {
    "tflite": _Kind(
        "LiteRT reference kernels", "pipelines.reference_runtimes.litert_runtime", "ai-edge-litert"
    ),
    "onnx": _Kind("ONNX Runtime", "pipelines.reference_runtimes.ort", "onnxruntime"),
    "torch": _Kind("PyTorch", "pipelines.reference_runtimes.pytorch", "torch"),
    "qonnx": _Kind("qonnx executor", "pipelines.reference_runtimes.qonnx_executor", "qonnx"),
}
"""By the numerics of the imported model."""


def asked_of(source: bytes, options: ImportOptions | None = None) -> tuple[str, bytes, Shape]:
    """Return what `open_runtime` is asked for a model file: importing it says its inputs."""
    from stages import importing

    model = importing.run(source=source, options=options or ImportOptions())
    return importing.numerics(model), source, Shape(*importing.signature(model))


def open_runtime(
    numerics: str, source: bytes, shape: Shape, *, is_default: bool = False
) -> ReferenceRuntime:
    """Return the runtime of the framework a model came from, with the model loaded.

    It computes what a package is to give. With `is_default`, ONNX Runtime computes what it does by
    itself, also where a package gives the results of the graph without optimizations.
    Raises MissingError if it is not installed, or there is none; RefusedError if it cannot load
    the model.
    """
    kind = _KINDS.get(numerics)
    if kind is None:
        raise MissingError(f"there is no runtime to compare {numerics} models with")
    try:
        words = {"is_default": True} if is_default else {}
        run: Run = importlib.import_module(kind.module).load(source, shape, **words)
    except ImportError as error:
        missing = error.name or kind.distribution
        if missing.partition(".")[0] in ("pipelines", "stages", "hw"):
            raise
        raise MissingError(
            f"{kind.name} is not installed ({missing}); pip install -e '.[peers]'"
        ) from error
    return ReferenceRuntime(f"{kind.name} {keys.tool_version(kind.distribution)}", run)
