"""Converters of pools over integers.

Source: tensorflow/lite/kernels/pooling.cc and reference/integer_ops/pooling.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.importing.tflite.activations import padding_of, stored_range, strides_of
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite


def pool_attributes(builder: TfliteBuilder, operator: Operator) -> dict[str, list[int]]:
    """Kernel, strides and padding of a pool over NHWC data."""
    shape = builder.shape(operator.input(0))
    if len(shape) != 4:
        raise UnsupportedError(f"has data of shape {list(shape)}; rank 4 is accepted")
    kernel = int(operator.option("filter_height")), int(operator.option("filter_width"))
    if min(kernel) < 1:
        raise UnsupportedError(f"has a window of {list(kernel)}")
    strides = strides_of(operator)
    padding = padding_of(operator, (shape[1], shape[2]), kernel, strides)
    return {"kernel": list(kernel), "strides": list(strides), "padding": list(padding)}


def window_counts(builder: TfliteBuilder, operator: Operator, pool: dict[str, list[int]]) -> Array:
    """How many pixels each window covers: int32 [1, OH, OW, 1], or [1] where all are equal."""
    _, height, width, _ = builder.shape(operator.input(0))
    along = []
    for axis, extent in enumerate((height, width)):
        before, after = pool["padding"][axis], pool["padding"][2 + axis]
        inside = np.pad(np.ones(extent, np.int32), (before, after))
        windows = np.lib.stride_tricks.sliding_window_view(inside, pool["kernel"][axis])
        along.append(windows[:: pool["strides"][axis]].sum(1, dtype=np.int32))
    counts = along[0][:, None] * along[1]
    if (counts == counts.flat[0]).all():
        return counts.reshape(-1)[:1].copy()
    return counts[None, :, :, None]


def average_pool_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """AVERAGE_POOL_2D: padding does not count."""
    pool = pool_attributes(builder, operator)
    low, high = stored_range(builder, operator)
    call = integer.sum_pool2d(builder.read(operator.input(0)), **pool, zero_point=0)
    total = builder.emit(call, f"{operator.layer}.sum")
    counts = window_counts(builder, operator, pool)
    count = builder.tensor(f"{operator.layer}.count", counts)
    dtype = builder.dtype(operator.outputs[0])
    call = tflite.average(total, count, low=low, high=high, dtype=dtype)
    return builder.emit(call, operator.layer)


def max_pool_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """MAX_POOL_2D: padding never wins."""
    pool = pool_attributes(builder, operator)
    result = builder.emit(
        integer.max_pool2d(builder.read(operator.input(0)), **pool), operator.layer
    )
    low, high = stored_range(builder, operator)
    if (low, high) == builder.quantization(operator.outputs[0]).limits:
        return result
    return builder.emit(relax.op.clip(result, low, high), f"{operator.layer}.clip")


CONVERTERS = {"AVERAGE_POOL_2D": average_pool_2d, "MAX_POOL_2D": max_pool_2d}
