"""Converters of functions of float32, position by position.

Sources: tensorflow/lite/kernels/{activations,elementwise,floor,ceil,round,exp,pow}.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from stages.importing.tflite.broadcast_arithmetic import operands
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import float_elementwise

Converter = Callable[[TfliteBuilder, Operator], Any]


def unary(build: Callable[[Any], Any]) -> Converter:
    """A function of one operand."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        return builder.emit(build(builder.read(operator.input(0))), operator.layer)

    return convert


def clipped(low: float, high: float) -> Converter:
    """RELU6 and its kin."""
    return unary(lambda x: relax.op.clip(x, low, high))


def leaky_relu(builder: TfliteBuilder, operator: Operator) -> Any:
    """LEAKY_RELU."""
    alpha = float(operator.option("alpha", 0.0))
    call = float_elementwise.leaky_relu(builder.read(operator.input(0)), alpha=alpha)
    return builder.emit(call, operator.layer)


def gelu(builder: TfliteBuilder, operator: Operator) -> Any:
    """GELU by the error function."""
    if operator.option("approximate", False):
        raise UnsupportedError("approximates by tanh; the error function is accepted")
    return unary(float_elementwise.gelu)(builder, operator)


def binary(build: Callable[[Any, Any], Any]) -> Converter:
    """A function of two operands that broadcast."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        lhs, rhs = (builder.read(index) for index in operands(builder, operator))
        return builder.emit(build(lhs, rhs), operator.layer)

    return convert


FLOAT = {
    "RELU": unary(relax.op.nn.relu),
    "RELU6": clipped(0.0, 6.0),
    "RELU_N1_TO_1": clipped(-1.0, 1.0),
    "RELU_0_TO_1": clipped(0.0, 1.0),
    "LEAKY_RELU": leaky_relu,
    "PRELU": binary(float_elementwise.prelu),
    "ELU": unary(float_elementwise.elu),
    "GELU": gelu,
    "HARD_SWISH": unary(float_elementwise.hard_swish),
    "LOGISTIC": unary(float_elementwise.sigmoid),
    "TANH": unary(float_elementwise.tanh),
    "EXP": unary(float_elementwise.exp),
    "LOG": unary(float_elementwise.log),
    "SIN": unary(float_elementwise.sin),
    "COS": unary(float_elementwise.cos),
    "POW": binary(float_elementwise.power),
    "ABS": unary(relax.op.abs),
    "NEG": unary(relax.op.negative),
    "FLOOR": unary(relax.op.floor),
    "CEIL": unary(relax.op.ceil),
    "ROUND": unary(relax.op.round),
    "SQRT": unary(relax.op.sqrt),
    "RSQRT": unary(relax.op.rsqrt),
    "SQUARE": unary(relax.op.square),
    "SIGN": unary(relax.op.sign),
}
