"""Converters of products of two quantized tensors that are no layers: BATCH_MATMUL, PRELU.

Sources: tensorflow/lite/kernels/{batch_matmul,activations}.cc, internal/reference/{batch_matmul,
prelu}.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES
from stages.importing.tflite.broadcast_arithmetic import operands
from stages.importing.tflite.rescaling import fixed_point, requantized
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite_activations


def batch_matmul(builder: TfliteBuilder, operator: Operator) -> Any:
    """BATCH_MATMUL of int8, either operand transposed where the options say so."""
    lhs, rhs = operands(builder, operator)
    if builder.dtype(lhs) != "int8":
        raise UnsupportedError(f"has data of {builder.dtype(lhs)}; float32 and int8 are accepted")
    values = [
        _numerators(builder, operator, index, name)
        for index, name in ((lhs, "adj_x"), (rhs, "adj_y"))
    ]
    total = builder.emit(relax.op.matmul(*values), operator.layer)
    left, right, out = (builder.quantization(i) for i in (lhs, rhs, operator.outputs[0]))
    # The kernel multiplies the scales in float32 (GetQuantizedConvolutionMultipler).
    product = np.float32(left.scale * right.scale)
    return requantized(builder, operator, total, [float(product) / float(out.scale)])


def _numerators(builder: TfliteBuilder, operator: Operator, index: int, option: str) -> Any:
    """An operand less its zero point, as int32, transposed where an option says so."""
    name = f"{operator.layer}.{option[-1]}"
    value = builder.emit(relax.op.astype(builder.read(index), "int32"), f"{name}.wide")
    zero_point = np.array(builder.quantization(index).zero_point.whole, np.int32)
    offset = builder.tensor(f"{name}.zero_point", zero_point)
    value = builder.emit(relax.op.subtract(value, offset), f"{name}.moved")
    if not operator.option(option, False):
        return value
    order = list(range(len(value.ty.shape)))
    order[-2:] = order[-1], order[-2]
    return builder.emit(relax.op.permute_dims(value, order), f"{name}.transposed")


def prelu(builder: TfliteBuilder, operator: Operator) -> Any:
    """PRELU of bytes."""
    data, alpha = operands(builder, operator)
    output = operator.outputs[0]
    if builder.dtype(data) not in BYTES:
        raise UnsupportedError(f"has data of {builder.dtype(data)}; float32 and bytes are accepted")
    source, slope, out = (builder.quantization(index) for index in (data, alpha, output))
    multiplier, shift = fixed_point(float(source.scale / out.scale))
    product = np.float32(source.scale * slope.scale)
    slope_multiplier, slope_shift = fixed_point(float(product / out.scale))
    low, high = out.limits
    call = tflite_activations.prelu_of_bytes(
        builder.read(data),
        builder.read(alpha),
        data_zero_point=source.zero_point,
        alpha_zero_point=slope.zero_point,
        multiplier=multiplier,
        shift=shift,
        slope_multiplier=slope_multiplier,
        slope_shift=slope_shift,
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=out.dtype,
    )
    return builder.emit(call, operator.layer)


CONVERTERS = {"BATCH_MATMUL": batch_matmul, "PRELU": prelu}
