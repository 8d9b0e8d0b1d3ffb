"""TensorFlow Lite files, as LiteRT's reference kernels compute them."""

from __future__ import annotations

from stages.importing.tflite.tflite_description import describe_graph
from stages.importing.tflite.tflite_importer import import_graph
from stages.importing.tflite.tflite_reader import read
from stages.kinds import Model, Table
from stages.options import ImportOptions


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model that computes exactly what LiteRT's reference kernels do.

    StageError for a damaged file, and one StageError listing everything unsupported.
    """
    return import_graph(read(source), options).required()


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows; what is unsupported is listed, not raised.

    StageError only for a damaged file.
    """
    return describe_graph(source, options)
