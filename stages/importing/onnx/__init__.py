"""ONNX and QONNX files, as ONNX Runtime and qonnx's executor compute them."""

from __future__ import annotations

from stages.importing.onnx.onnx_description import describe_graph
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.kinds import Model, Table
from stages.options import ImportOptions

__all__ = ["convert_file", "describe_file"]


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model of an ONNX file; see `stages.importing.formats`."""
    return import_graph(read(source), options).required()


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows of an ONNX file."""
    return describe_graph(source, options)
