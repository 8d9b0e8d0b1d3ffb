"""Converters of products of two quantized tensors that are no layers: BATCH_MATMUL, PRELU.

Sources: tensorflow/lite/kernels/{batch_matmul,activations}.cc, internal/reference/{batch_matmul,
prelu}.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.importing.tflite.activations import limits
from stages.importing.tflite.broadcast_arithmetic import operands
from stages.importing.tflite.byte_luts import BYTES
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
    (s1, _), (s2, _), (s3, _) = (builder.affine(i) for i in (lhs, rhs, operator.outputs[0]))
    # The kernel multiplies the scales in float32 (GetQuantizedConvolutionMultipler).
    product = np.float32(s1 * s2)
    return requantized(builder, operator, total, [float(product) / float(s3)])


def _numerators(builder: TfliteBuilder, operator: Operator, index: int, option: str) -> Any:
    """An operand less its zero point, as int32, transposed where an option says so."""
    name = f"{operator.layer}.{option[-1]}"
    value = builder.emit(relax.op.astype(builder.read(index), "int32"), f"{name}.wide")
    point = builder.tensor(f"{name}.zero_point", np.array(builder.affine(index)[1], np.int32))
    value = builder.emit(relax.op.subtract(value, point), f"{name}.moved")
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
    (s1, z1), (s2, z2), (s3, z3) = (builder.affine(index) for index in (data, alpha, output))
    multiplier, shift = fixed_point(float(s1 / s3))
    slope_multiplier, slope_shift = fixed_point(float(np.float32(s1 * s2) / s3))
    low, high = limits(builder.dtype(output))
    call = tflite_activations.prelu_of_bytes(
        builder.read(data),
        builder.read(alpha),
        data_zero_point=z1,
        alpha_zero_point=z2,
        multiplier=multiplier,
        shift=shift,
        slope_multiplier=slope_multiplier,
        slope_shift=slope_shift,
        zero_point=z3,
        low=low,
        high=high,
        dtype=builder.dtype(output),
    )
    return builder.emit(call, operator.layer)


CONVERTERS = {"BATCH_MATMUL": batch_matmul, "PRELU": prelu}
