"""The operators that MXNet symbols may hold, each with the converter that makes it Relax.

A converter takes the builder and the node. It returns the values of the node's outputs: Relax
variables, or NumPy arrays where they are known at import. It raises UnsupportedError, whose
sentence continues the operator's name, for what it does not accept.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from stages.importing.mxnet import (
    binary,
    float_operators,
    fused,
    quantized,
    quantized_joins,
    range_conversions,
)
from stages.importing.mxnet.mxnet_builder import Converter
from stages.importing.mxnet.symbol import Node
from stages.importing.unsupported import NO_CONVERTER, ONLY_LAST, UnsupportedError

CONVERTERS: Mapping[str, Converter] = {
    "_contrib_quantize_v2": range_conversions.quantize_v2,
    "_contrib_quantize": range_conversions.quantize,
    "_contrib_dequantize": range_conversions.dequantize,
    "_contrib_requantize": range_conversions.requantize,
    "_contrib_quantized_conv": quantized.conv,
    "_contrib_quantized_fully_connected": quantized.fully_connected,
    "_contrib_quantized_pooling": quantized.pooling,
    "_contrib_quantized_flatten": quantized.flatten,
    "_contrib_quantized_act": quantized.act,
    "_contrib_quantized_batch_norm": quantized.batch_norm,
    "_contrib_quantized_elemwise_add": quantized_joins.elemwise_add,
    "_contrib_quantized_concat": quantized_joins.concat,
    "_sg_mkldnn_conv": fused.conv,
    "_sg_onednn_conv": fused.conv,
    "_sg_mkldnn_fully_connected": fused.fully_connected,
    "_sg_onednn_fully_connected": fused.fully_connected,
    "QActivation": binary.activation,
    "QConvolution": binary.convolution,
    "QConvolution_v1": binary.convolution,
    "QFullyConnected": binary.fully_connected,
    "Convolution": float_operators.convolution,
    "Convolution_v1": float_operators.convolution,
    "FullyConnected": float_operators.fully_connected,
    "BatchNorm": float_operators.batch_norm,
    "BatchNorm_v1": float_operators.batch_norm,
    "CuDNNBatchNorm": float_operators.batch_norm,
    "Activation": float_operators.activation,
    "LeakyReLU": float_operators.leaky_relu,
    "relu": float_operators.single("relu"),
    "sigmoid": float_operators.single("sigmoid"),
    "tanh": float_operators.single("tanh"),
    "exp": float_operators.exponential,
    "softmax": float_operators.softmax,
    "Pooling": float_operators.pooling,
    "Pooling_v1": float_operators.pooling,
    "Flatten": float_operators.flatten,
    "flatten": float_operators.flatten,
    "Reshape": float_operators.reshape,
    "reshape": float_operators.reshape,
    "expand_dims": float_operators.expand_dims,
    "transpose": float_operators.transpose,
    "Concat": float_operators.concat,
    "concat": float_operators.concat,
    "slice_axis": float_operators.slice_axis,
    "SliceChannel": float_operators.split,
    "clip": float_operators.clip,
    "Dropout": float_operators.identity,
    "identity": float_operators.identity,
    "_copy": float_operators.identity,
    "BlockGrad": float_operators.identity,
    **{name: float_operators.binary(relax.op.add) for name in
       ("elemwise_add", "broadcast_add", "_plus", "_Plus", "broadcast_plus")},
    **{name: float_operators.binary(relax.op.subtract) for name in
       ("elemwise_sub", "broadcast_sub", "_minus", "_Minus", "broadcast_minus")},
    **{name: float_operators.binary(relax.op.multiply) for name in
       ("elemwise_mul", "broadcast_mul", "_mul", "_Mul")},
    **{name: float_operators.binary(relax.op.divide) for name in
       ("elemwise_div", "broadcast_div", "_div", "_Div")},
    "_plus_scalar": float_operators.with_scalar(relax.op.add),
    "_minus_scalar": float_operators.with_scalar(relax.op.subtract),
    "_mul_scalar": float_operators.with_scalar(relax.op.multiply),
    "_div_scalar": float_operators.with_scalar(relax.op.divide),
}  # fmt: skip
"""Operators by MXNet's name."""

POSTPROCESSING = frozenset(
    {"SoftmaxOutput", "Softmax", "softmax", "log_softmax", "SoftmaxActivation", "argmax", "topk"}
)
"""Operators that, at the very end of a graph, are left to the caller of the package."""
REASONS: Mapping[str, str] = dict.fromkeys(POSTPROCESSING, ONLY_LAST)
"""Why there is no converter, where more is to be said than that."""


def converter_of(node: Node) -> Converter:
    """The converter of an operator; UnsupportedError where there is none."""
    if node.op not in CONVERTERS:
        raise UnsupportedError(REASONS.get(node.op, NO_CONVERTER))
    return CONVERTERS[node.op]
