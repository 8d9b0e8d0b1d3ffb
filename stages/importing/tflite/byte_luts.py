"""Functions of one byte: computed at import for all the 256 values it can have."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.numerics import rescale

BYTES = ("int8", "uint8")


def stored_values(dtype: str) -> Array:
    """The 256 integers that a type of one byte holds, ascending: int64."""
    smallest = int(np.iinfo(dtype).min)
    return np.arange(smallest, smallest + 256, dtype=np.int64)


def tabled(
    builder: TfliteBuilder, operator: Operator, index: int, values: Array, name: str = ""
) -> Any:
    """A tensor of bytes through a table: `values[i]` for `stored_values(...)[i]`.

    The table is in the type of the operator's output.
    """
    name, dtype = name or operator.layer, builder.dtype(operator.outputs[0])
    table = builder.tensor(f"{name}.table", values.astype(dtype))
    return builder.emit(rescale.table(builder.read(index), table), name)
