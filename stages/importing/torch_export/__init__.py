"""Importing PyTorch's exported programs, quantized by PT2E or torchao.

The numerics `torch` is that of the exported graph: float32 `dequantize -> operator -> quantize`,
halves to even. Convolutions and matrix products of quantized operands add exact integers here,
where PyTorch adds float32 products in an order of its own: results can differ by one step.
"""

from __future__ import annotations

from stages.importing.torch_export.exported_program import read_program
from stages.importing.torch_export.torch_description import describe_program
from stages.importing.torch_export.torch_importer import import_program
from stages.kinds import Model, Table
from stages.options import ImportOptions

__all__ = ["convert_file", "describe_file"]


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model of a `.pt2` file; see `stages.importing.formats`."""
    return import_program(read_program(source), options).required()


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows of a `.pt2` file."""
    return describe_program(source, read_program(source), options)
