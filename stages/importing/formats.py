"""The file formats there are: how each is known by its first bytes, and the module that reads it.

A format's module has two functions. `convert_file(source, options)` gives the Relax model that
computes exactly what the file's own framework does; it raises StageError for a damaged file, and
one StageError listing everything unsupported. `describe_file(source, options)` gives what
`doit import` shows; it lists what is unsupported and raises only for a damaged file.

The model's tensors have the types they are stored in, and the source's own layout. Attributes of
`main`: `numerics` names the rounding rules, `quantization` is a JSON text of the real meaning of
graph inputs and outputs, `{tensor: {"scale": s, "zero_point": z}}`, for those that are quantized.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from stages.errors import StageError
from stages.importing.archive import MXNET_SYMBOL, is_zip, member_names


@dataclass(frozen=True)
class Format:
    """One file format."""

    name: str
    module: str
    """Imported when a file of the format is met, with the libraries it needs."""
    matches: Callable[[bytes], bool]

    def load(self) -> ModuleType:
        """The module that reads it; StageError names a library that is not installed."""
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            missing = error.name or "a library"
            if missing.split(".")[0] in ("stages", "hw"):
                raise
            raise StageError(
                f"this is {self.name}, and reading it needs the Python package '{missing}'",
                hint="pip install the extra that pyproject.toml lists it under",
            ) from error


ONNX = Format("an ONNX file", "stages.importing.onnx", lambda source: True)
FORMATS = (
    Format("a TensorFlow Lite file", "stages.importing.tflite", lambda s: s[4:8] == b"TFL3"),
    Format(
        "an MXNet model", "stages.importing.mxnet",
        lambda s: s.lstrip()[:1] == b"{" or (is_zip(s) and MXNET_SYMBOL in member_names(s)),
    ),
    Format("a PyTorch file", "stages.importing.torch_export", is_zip),
    ONNX,
)  # fmt: skip
"""Formats in the order in which they are tried; ONNX has no mark, so it is what nothing else is."""


def format_of(source: bytes) -> Format:
    """The format of a file."""
    return next(each for each in FORMATS if each.matches(source))
