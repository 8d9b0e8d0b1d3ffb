"""Importing MXNet models: symbol JSON and parameters, read without MXNet.

The numerics `mxnet` is what release 1.9.1 computes on an x86 processor with VNNI, where oneDNN 2.4
runs its quantized operators; BMXNet's binary layers compute what its xnor kernels count.
"""

from __future__ import annotations

from stages.errors import StageError
from stages.importing.mxnet.container import bundle, unbundle
from stages.importing.mxnet.mxnet_description import describe_symbol
from stages.importing.mxnet.mxnet_importer import import_symbol
from stages.importing.mxnet.params import read_params
from stages.importing.mxnet.symbol import read_symbol
from stages.importing.mxnet.symbol_graph import missing_parameters, unknown_operators
from stages.importing.unsupported import refusal
from stages.kinds import Model, Table
from stages.options import ImportOptions

__all__ = ["bundle", "convert_file", "describe_file"]


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model of a bundled symbol and its parameters (see `container`)."""
    text, binary = unbundle(source)
    symbol = read_symbol(text)
    unknown = unknown_operators(symbol)
    if unknown:
        raise refusal(unknown)
    params = {} if binary is None else read_params(binary)
    missing = missing_parameters(symbol, params)
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise StageError(
            f"the weights of the model are missing: {len(missing)} parameters, such as {shown}",
            hint="put NAME-0000.params, which MXNet saved with NAME-symbol.json, beside it",
        )
    return import_symbol(symbol, params, options).required()


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows; parameters may be missing."""
    text, binary = unbundle(source)
    params = None if binary is None else read_params(binary)
    return describe_symbol(source, read_symbol(text), params, options)
