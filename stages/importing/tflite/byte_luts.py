"""Functions of one byte: computed at import for all the 256 values it can have."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.numerics import rescale
from stages.numerics.quantization import Quantization


def numerators_of_byte(source: Quantization) -> Array:
    """The 256 integers of a byte less its zero point, ascending: int64."""
    low, high = source.limits
    return np.arange(low, high + 1, dtype=np.int64) - source.zero_point.whole


def tabled(
    builder: TfliteBuilder, operator: Operator, index: int, values: Array, name: str = ""
) -> Any:
    """A tensor of bytes through a table: `values[i]` for `numerators_of_byte(...)[i]`.

    The table is in the type of the operator's output.
    """
    name, dtype = name or operator.layer, builder.dtype(operator.outputs[0])
    table = builder.tensor(f"{name}.table", values.astype(dtype))
    return builder.emit(rescale.table(builder.read(index), table), name)
