"""The table of converters: how each operator of TensorFlow Lite becomes Relax.

A converter takes the builder and the operator and returns the value of its output (a Relax
variable, or a NumPy array where it is known at import), or a list of them. It raises
UnsupportedError, whose sentence continues the operator's name, for what it does not accept; the
walk collects these over the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stages.importing.importer import Results, converted
from stages.importing.relax_builder import Value
from stages.importing.tflite import (
    broadcast_arithmetic,
    comparison_operators,
    float_functions,
    float_layers,
    integer_layers,
    integer_pools,
    larq,
    movement,
    reduce_operators,
    resize_operators,
    scale_changes,
    softmaxes,
    space_to_batch,
    tensor_products,
    unary_functions,
)
from stages.importing.tflite.operand_counts import wrong_count
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import ABSENT, Operator
from stages.importing.tflite.tflite_reader import BUILTINS, UNKNOWN_BUILTIN
from stages.importing.unsupported import CONTROL_FLOW, NO_CONVERTER, UnsupportedError

Converter = Callable[[TfliteBuilder, Operator], Results]

CONVERTERS: Mapping[str, Converter] = {
    **movement.CONVERTERS,
    **integer_layers.CONVERTERS,
    **broadcast_arithmetic.CONVERTERS,
    **integer_pools.CONVERTERS,
    **scale_changes.CONVERTERS,
    **softmaxes.CONVERTERS,
    **unary_functions.CONVERTERS,
    **reduce_operators.CONVERTERS,
    **comparison_operators.CONVERTERS,
    **resize_operators.CONVERTERS,
    **space_to_batch.CONVERTERS,
    **larq.CONVERTERS,
    **tensor_products.CONVERTERS,
}
"""Builtin name in the schema, or custom operator's own name → converter."""

FLOAT: Mapping[str, Converter] = {
    **softmaxes.FLOAT,
    **reduce_operators.FLOAT,
    **float_layers.FLOAT,
    **float_functions.FLOAT,
}
"""Converters that take the place of the former where the first output is float32."""

RECURRENT = "recurrent layers are not supported"

REASONS: Mapping[str, str] = {
    "IF": CONTROL_FLOW,
    "WHILE": CONTROL_FLOW,
    "CALL_ONCE": CONTROL_FLOW,
    "LSTM": RECURRENT,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": RECURRENT,
    "SVDF": RECURRENT,
    "TFLite_Detection_PostProcess": "leave box decoding to the caller: export the raw outputs",
}
"""Why there is no converter, where more is to be said than that."""


def converter_of(builder: TfliteBuilder, operator: Operator) -> Converter:
    """The converter of an operator; UnsupportedError where there is none."""
    results = [builder.graph.tensors[index].dtype for index in operator.outputs[:1]]
    found = FLOAT.get(operator.kind) if results == ["float32"] else None
    found = found or CONVERTERS.get(operator.kind)
    if found is None:
        raise UnsupportedError(REASONS.get(operator.kind) or _unknown(builder, operator))
    wrong = wrong_count(operator.kind, len(operator.inputs))
    if wrong is not None:
        raise UnsupportedError(wrong)
    for index in (*operator.operands, *operator.outputs):
        builder.stated(index)
    return found


def _unknown(builder: TfliteBuilder, operator: Operator) -> str:
    if not operator.kind.startswith(UNKNOWN_BUILTIN) and operator.kind not in BUILTINS.values():
        return "is a custom operator; of those only Larq's are accepted"
    kinds = (*operator.inputs[:1], *operator.outputs[:1])
    types = " to ".join(builder.graph.tensors[index].dtype for index in kinds if index != ABSENT)
    return f"{NO_CONVERTER} from {types}"


def results_of(builder: TfliteBuilder, operator: Operator) -> list[Value]:
    """One operator's results: Relax variables, or arrays where they are known at import."""
    values = converted(converter_of(builder, operator), builder, operator)
    check_count(operator, values)
    return values


def check_count(operator: Operator, values: Sequence[Value]) -> None:
    """UnsupportedError unless an operator has as many outputs as it gives values."""
    if len(values) != len(operator.outputs):
        raise UnsupportedError(f"has {len(operator.outputs)} outputs instead of {len(values)}")
