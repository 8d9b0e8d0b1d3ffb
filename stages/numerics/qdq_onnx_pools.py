"""Pools and reductions of a QDQ graph as ONNX Runtime fuses them, or adds them up in float."""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.nodes import Call, Var
from stages.numerics import onnx_sums, qlinear
from stages.numerics.onnx_islands import UNOPTIMIZED
from stages.numerics.onnx_layers import window_sum2d
from stages.numerics.qdq_onnx_operands import bytes_of, ints, note, offset
from stages.numerics.qdq_rewriter import QdqRewriter
from stages.numerics.quantization import Quantization

WRONG_POOL = "QLinearAveragePool, which divides by wrong counts where it rounds sizes up"


def mean(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearGlobalAveragePool, or where types differ a pool of floats."""
    if not is_op(call, names.MEAN) or call.attrs.axis is None:
        return None
    if variable.name in graph.session.reductions:
        return None
    data = bytes_of(graph, out, call.args[0])
    axes = [int(axis) for axis in call.attrs.axis]
    if data is None or len(shape_of(data.value.ty)) != 4:
        return None
    if axes != [2, 3] or not bool(call.attrs.keepdims):
        return None
    name = str(variable.name)
    if offset(graph, out, call.args[0]) is None:
        graph.values[variable] = onnx_sums.pooled(graph.value(call.args[0]), graph.builder, name)
        return None
    note(graph, name, "QLinearGlobalAveragePool")
    return qlinear.global_average_pool(graph.builder, name, data.value, data.source, out)


def reduce(graph: QdqRewriter, variable: Var, call: Call) -> None:
    """ReduceMean and ReduceSum of dequantized values: in float, in the order of the runtime."""
    data = graph.quantized.get(call.args[0])
    if data is None or not data.grid.is_per_tensor:
        return
    axes, name = sorted(ints(call.attrs.axis)), str(variable.name)
    keepdims = bool(call.attrs.keepdims)
    value = graph.value(call.args[0])
    result = onnx_sums.reduced(value, axes, keepdims, graph.builder.emit, name)
    if is_op(call, names.MEAN):
        extents = [shape_of(value.ty)[axis] for axis in axes]
        count = graph.builder.tensor(f"{name}.count", np.asarray(np.prod(extents), np.float32))
        result = graph.builder.emit(relax.op.divide(result, count), f"{name}.mean")
    graph.values[variable] = result


def average(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearAveragePool: NHWC sums over windows, divided by their count, back to NCHW."""
    if not is_op(call, names.PERMUTE_DIMS) or ints(call.attrs.axes) != [0, 3, 1, 2]:
        return None
    divided = graph.call_for(call.args[0], names.DIVIDE)
    sums = None
    if divided is not None:
        sums = graph.call_for(divided.args[0], window_sum2d.name)
    if divided is None or sums is None:
        return None
    data, counts = bytes_of(graph, out, sums.args[0]), graph.tensor(divided.args[1])
    if data is None or counts is None:
        return None
    windows = {key: attributes(sums)[key] for key in ("kernel", "strides", "padding")}
    name = str(divided.args[0].name)
    shift, is_wrong = offset(graph, out, sums.args[0]), name in graph.session.wrong_pools
    if is_wrong:
        note(graph, name, WRONG_POOL, UNOPTIMIZED)
    elif shift is not None:
        note(graph, name, "QLinearAveragePool")
    operands = (graph.builder, name, data.value, counts, data.source, out)
    if is_wrong or shift is None:
        by_columns = graph.session.sums_columns and not is_wrong
        result = qlinear.average_of_floats(*operands, **windows, by_columns=by_columns)
    else:
        result = qlinear.average(*operands, **windows, offset=shift)
    return qlinear.nchw(graph.builder, result, name)
