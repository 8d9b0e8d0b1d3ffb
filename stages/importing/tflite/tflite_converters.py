"""The table of converters: how each operator of TensorFlow Lite becomes Relax.

A converter takes the builder and the operator and returns the value of its output (a Relax
variable, or a NumPy array where it is known at import), or a list of them. It raises
UnsupportedError, whose sentence continues the operator's name, for what it does not accept; the
walk collects these over the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stages.importing.tflite import broadcast_arithmetic as elementwise
from stages.importing.tflite import comparison as choosing
from stages.importing.tflite import float_functions, float_layers, larq, movement, softmaxes
from stages.importing.tflite import integer_layers as layers
from stages.importing.tflite import integer_pools as pools
from stages.importing.tflite import reduce_operators as reductions
from stages.importing.tflite import resize_operators as resizing
from stages.importing.tflite import scale_changes as scaling
from stages.importing.tflite import space_to_batch as blocks
from stages.importing.tflite import tensor_products as products
from stages.importing.tflite import unary_functions as functions
from stages.importing.tflite.signatures import wrong_count
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import ABSENT, Operator
from stages.importing.tflite.tflite_reader import BUILTINS, UNKNOWN_BUILTIN
from stages.importing.unsupported import UnsupportedError

Converter = Callable[[TfliteBuilder, Operator], Any]

CONVERTERS: Mapping[str, Converter] = {
    **movement.CONVERTERS,
    **layers.CONVERTERS,
    **elementwise.CONVERTERS,
    **pools.CONVERTERS,
    **scaling.CONVERTERS,
    **softmaxes.CONVERTERS,
    **functions.CONVERTERS,
    **reductions.CONVERTERS,
    **choosing.CONVERTERS,
    **resizing.CONVERTERS,
    **blocks.CONVERTERS,
    **larq.CONVERTERS,
    **products.CONVERTERS,
}
"""Builtin name in the schema, or custom operator's own name → converter."""

FLOAT: Mapping[str, Converter] = {
    **softmaxes.FLOAT,
    **reductions.FLOAT,
    **float_layers.FLOAT,
    **float_functions.FLOAT,
}
"""Converters that take the place of the former where the first output is float32."""

WHY: Mapping[str, str] = {
    "IF": "control flow is not supported; export the model for inference",
    "WHILE": "control flow is not supported; export the model for inference",
    "CALL_ONCE": "control flow is not supported; export the model for inference",
    "LSTM": "recurrent layers are not supported",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "recurrent layers are not supported",
    "SVDF": "recurrent layers are not supported",
    "TFLite_Detection_PostProcess": "leave box decoding to the caller: export the raw outputs",
}
"""More than "there is no converter" where there is more to say."""


def converter_of(builder: TfliteBuilder, operator: Operator) -> Converter:
    """The converter of an operator; UnsupportedError where there is none."""
    results = [builder.graph.tensors[index].dtype for index in operator.outputs[:1]]
    found = FLOAT.get(operator.kind) if results == ["float32"] else None
    found = found or CONVERTERS.get(operator.kind)
    if found is None:
        raise UnsupportedError(WHY.get(operator.kind) or _unknown(builder, operator))
    wrong = wrong_count(operator.kind, len(operator.inputs))
    if wrong is not None:
        raise UnsupportedError(wrong)
    return found


def _unknown(builder: TfliteBuilder, operator: Operator) -> str:
    if not operator.kind.startswith(UNKNOWN_BUILTIN) and operator.kind not in BUILTINS.values():
        return "is a custom operator; of those only Larq's are accepted"
    kinds = (*operator.inputs[:1], *operator.outputs[:1])
    types = " to ".join(builder.graph.tensors[index].dtype for index in kinds if index != ABSENT)
    return f"there is no converter from {types}"


def converted(builder: TfliteBuilder, operator: Operator) -> list[Any]:
    """One operator's results: Relax variables, or arrays where they are known at import."""
    try:
        found = converter_of(builder, operator)(builder, operator)
    except (IndexError, ValueError, OverflowError) as error:
        why = "has operands or options of the wrong number, shape or value"
        raise UnsupportedError(f"{why} ({error})") from error
    values = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(values) != len(operator.outputs):
        raise UnsupportedError(f"has {len(operator.outputs)} outputs instead of {len(values)}")
    return values
