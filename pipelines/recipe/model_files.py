"""Model files on disk: which are accepted, and the bytes that importing takes of one.

A format is known by what stands in a file; its name only says which files belong together. An
MXNet model is two: NAME-symbol.json and, beside it, NAME-0000.params or the only NAME-*.params.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pipelines import paths
from pipelines.errors import UserError, shown

ENDINGS = {
    ".onnx": "ONNX, QONNX, FINN-ONNX",
    ".tflite": "TensorFlow Lite",
    ".pt2": "a PyTorch exported program",
    "-symbol.json": "MXNet, with NAME-*.params beside it",
}
"""How the name of a model file ends, and what such a file is."""
MAX_BYTES = 2 << 30
"""Most bytes a model file may have: no format's own limit is higher."""
_SYMBOL = "-symbol.json"


def is_accepted(path: Path) -> bool:
    """Whether a file's name says that it is a model file."""
    return path.name.endswith(tuple(ENDINGS))


def stem(path: Path) -> str:
    """Return the model's name: the file's without its ending."""
    ending = next((e for e in ENDINGS if path.name.endswith(e)), path.suffix)
    return path.name.removesuffix(ending) or path.stem


def parts(path: Path) -> tuple[Path, ...]:
    """Return the files a model consists of, the one that names it first.

    Raises UserError if it is not clear which parameters belong to a symbol file. One without any
    is complete: it can be described, and importing says what it lacks.
    """
    if not path.name.endswith(_SYMBOL):
        return (path,)
    name = stem(path)
    first = path.with_name(f"{name}-0000.params")
    if paths.is_file(first):
        return (path, first)
    found = sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith(f"{name}-") and file.suffix == ".params"
    )
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise UserError(
            f"{shown(path)}: {names} lie beside it; name the one to use {first.name}, or leave "
            "only one"
        )
    return (path, *found)


def read(path: Path) -> bytes:
    """Return a model as importing takes it, or raise UserError."""
    data = [contents(part) for part in parts(path)]
    if not path.name.endswith(_SYMBOL):
        return data[0]
    mxnet: Any = importlib.import_module("stages.importing.mxnet")
    bundled: bytes = mxnet.bundle(data[0], data[1] if len(data) > 1 else None)
    return bundled


def contents(path: Path) -> bytes:
    """Return the bytes of one file, or raise UserError."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{shown(path)}: holds {size:,} bytes; at most 2 GiB are read")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{shown(path)}: {error.strerror}") from error
