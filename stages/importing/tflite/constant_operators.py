"""Operators whose operands are all known at import: their value is that of their conversion.

Converters emit TensorFlow Lite's dynamic-batch idiom (SHAPE, STRIDED_SLICE, PACK, RESHAPE) as they
emit anything else; folding converts the operator alone and executes that in NumPy.
"""

from __future__ import annotations

from math import prod

import numpy as np

from stages.graph import interpret
from stages.importing.relax_builder import value_shape
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_converters import results_of
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError

FOLDED = {
    *("ADD", "BROADCAST_TO", "CAST", "CONCATENATION", "DIV", "EQUAL", "EXPAND_DIMS", "FILL"),
    *("FLOOR_DIV", "FLOOR_MOD", "GATHER", "GREATER", "LESS", "MAXIMUM", "MINIMUM", "MUL", "NEG"),
    *("PACK", "RANGE", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "RESHAPE", "SELECT"),
    *("SELECT_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "SUB", "SUM", "TILE"),
    *("TRANSPOSE", "UNPACK"),
}
"""Operators that shapes are computed with. All cost little more than their result is large."""
MAX_FOLDED = 1 << 22
"""How many elements may be folded over a whole graph."""


class Folder:
    """Folds constants, within a budget of elements."""

    def __init__(self) -> None:
        self._left = MAX_FOLDED

    def folds(self, builder: TfliteBuilder, operator: Operator) -> bool:
        """Whether an operator is to be folded."""
        are_known = all(builder.is_constant(index) for index in operator.operands)
        return operator.kind in FOLDED and are_known

    def fold(self, builder: TfliteBuilder, operator: Operator) -> dict[int, Array]:
        """The values of an operator's outputs, by tensor index."""
        alone = TfliteBuilder(builder.graph)
        alone.constants = builder.constants
        values = dict(zip(operator.outputs, results_of(alone, operator), strict=True))
        known = {index: v for index, v in values.items() if isinstance(v, np.ndarray)}
        computed = {i: v for i, v in values.items() if not isinstance(v, np.ndarray)}
        self._left -= sum(prod(value_shape(value)) for value in values.values())
        if self._left < 0:
            raise UnsupportedError(
                f"computes constants; at most {MAX_FOLDED:,} elements of them are accepted"
            )
        if computed:
            alone.variables = computed
            known.update(_execute(alone, [*computed]))
        return known


def _execute(alone: TfliteBuilder, computed: list[int]) -> dict[int, Array]:
    constants, alone.constants = alone.constants, {}
    model = alone.finish({index: alone.name_of(index) for index in computed}, {})
    alone.constants = constants
    try:
        results = interpret.run(model, {})
    except NotImplementedError as error:
        raise UnsupportedError(f"computes a constant in a way that is unknown: {error}") from error
    return dict(zip(computed, results.values(), strict=True))
