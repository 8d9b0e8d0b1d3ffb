"""Quantizers of the source graph: over constants they fold, over activations they end a chain."""

from __future__ import annotations

import numpy as np

from stages.dialect.calls import attributes, shape_of
from stages.nodes import Call
from stages.quantizing.context import Context
from stages.quantizing.lower_elementwise import features_are_channels
from stages.quantizing.quantized_constants import bipolar_constant, quant_constant
from stages.quantizing.source_quantizers import (
    BipolarQuantizer,
    ThresholdQuantizer,
    UniformQuantizer,
)
from stages.quantizing.values import Value


def quant(context: Context, call: Call) -> Value:
    """QONNX Quant."""
    attrs = attributes(call)
    scale = context.known(call.args[1], "the scale")
    zero_point = context.known(call.args[2], "the zero point")
    source = context.constant(call.args[0])
    if source is not None:
        found = quant_constant(source, scale, zero_point, attrs, context.layer)
        return found or context.folded(call)
    quantizer = UniformQuantizer.of(scale, zero_point, attrs, context.layer)
    return context.quantize(context.chain(call.args[0]), quantizer)


def bipolar_quant(context: Context, call: Call) -> Value:
    """QONNX BipolarQuant."""
    scale = context.known(call.args[1], "the scale")
    source = context.constant(call.args[0])
    if source is not None:
        found = bipolar_constant(source, scale, context.layer)
        return found or context.folded(call)
    if np.unique(scale).size != 1 or not np.all(scale > 0):
        raise context.error("BipolarQuant of an activation needs one positive scale")
    quantizer = BipolarQuantizer(np.float32(scale.reshape(-1)[0]))
    return context.quantize(context.chain(call.args[0]), quantizer)


def multi_threshold(context: Context, call: Call) -> Value:
    """FINN MultiThreshold."""
    thresholds = context.known(call.args[1], "the threshold table")
    attrs, chain = attributes(call), context.chain(call.args[0])
    quantizer = ThresholdQuantizer.of(thresholds, attrs, context.layer)
    if thresholds.shape[0] > 1:
        shape = shape_of(call.ty)
        axis = attrs["channel_axis"] % len(shape)
        if axis != min(1, len(shape) - 1) or thresholds.shape[0] != shape[axis]:
            raise context.error(
                f"thresholds of shape {list(thresholds.shape)} along axis {axis} of "
                f"{list(shape)}; one row for all, or one per channel of axis 1, is supported"
            )
        features_are_channels(context, chain)
    return context.quantize(chain, quantizer)
