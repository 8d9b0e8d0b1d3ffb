"""TensorFlow Lite files, as LiteRT's reference kernels compute them."""

from __future__ import annotations

from stages.importing.tflite.tflite_description import describe
from stages.importing.tflite.tflite_importer import walk
from stages.importing.tflite.tflite_reader import read
from stages.importing.unsupported import refusal
from stages.kinds import Model, Table
from stages.options import ImportOptions


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model that computes exactly what LiteRT's reference kernels do.

    StageError for a damaged file, and one StageError listing everything unsupported.
    """
    result = walk(read(source), options)
    if result.model is None:
        raise refusal(result.unsupported)
    return result.model


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows; what is unsupported is listed, not raised.

    StageError only for a damaged file.
    """
    return describe(source, options)
