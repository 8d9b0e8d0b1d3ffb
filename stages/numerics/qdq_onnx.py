"""What ONNX Runtime fuses of a QDQ graph into its quantized operators, computed as those do.

The rules follow its QDQ selectors (`qdq_selectors.cc`): an operator is fused if all its operands
are dequantized and its one reader quantizes. Three differences, each of at most one step: a bias
that is still float is rounded to the accumulators' grid, as its weight-bias transformer does; a
Relu or Clip before the quantizer becomes a clip of integers whatever its bounds, which is exact
because quantizing is monotone and ONNX Runtime would leave the operator float; sums that are only
moved about before the quantizer are quantized where they are, so that a ConvTranspose is a
convolution of integers, which ONNX Runtime computes in float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import attributes, is_op, shape_of
from stages.graph.bindings import remap, variables_in
from stages.numerics import in_order, qlinear
from stages.numerics.grid import Grid, every_byte
from stages.numerics.qdq_floats import block_of, levels
from stages.numerics.qdq_integers import table_of
from stages.numerics.qdq_rewriting import Quantized, Rewriting
from stages.numerics.qdq_sums import Product, product_of
from stages.numerics.session import DEFAULT, INTEGERS, UNOPTIMIZED, Island

Array = np.ndarray[Any, Any]
WRONG_POOL = "QLinearAveragePool, which divides by wrong counts where it rounds sizes up"
FLOAT_SUMS = "a convolution or product of floats: an int8 tensor at it has several readers"
CUT = "operators of floats: a Relu or Clip within the grid is before the quantizer"
TO_UNSIGNED = 128
_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze")
_SHIFTS = ("relax.reshape", "relax.permute_dims", "relax.strided_slice")


def fused(graph: Rewriting, variable: Any, out: Grid) -> Any | None:
    """Integers on the byte grid `out` of an old float variable; None if it stays an island."""
    low, high = out.limits
    name = str(variable.name)
    while (bounds := _bounds(graph, variable, out)) is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
        variable = graph.expressions[variable].args[0]
    if not graph.is_read_once(variable) or low > high:
        return None
    before = len(graph.islands)
    result = _operator(graph, variable, out)
    if result is None or (low, high) == out.limits:
        return result
    graph.islands[before:] = map(_in_float, graph.islands[before:])
    return graph.builder.emit(relax.op.clip(result, low, high), name)


def _in_float(island: Island) -> Island:
    """An island whose Relu or Clip cuts its result within the grid, so that it is not fused."""
    return island if island.runtime == FLOAT_SUMS else replace(island, runtime=CUT, gives=INTEGERS)


def _bounds(graph: Rewriting, variable: Any, out: Grid) -> tuple[int, int] | None:
    """The integers between which a Relu or Clip keeps its result, if its one reader is here."""
    call = graph.expressions.get(variable)
    if call is None or not graph.is_read_once(variable):
        return None
    if is_op(call, "relax.nn.relu"):
        return out.point, out.limits[1]
    if is_op(call, "relax.clip"):
        low, high = out.quantize(np.array([float(each.value) for each in call.args[1:]]))
        return int(low), int(high)
    return None


def _operator(graph: Rewriting, variable: Any, out: Grid) -> Any | None:
    call = graph.expressions.get(variable)
    if call is None:
        return None
    for rule in (_sums, _binary, _mean, _average, _softmax, _concat, _moved):
        result = rule(graph, variable, call, out)
        if result is not None:
            return result
    return None


def _note(graph: Rewriting, layer: str, runtime: str, gives: str = DEFAULT) -> None:
    graph.islands.append(Island(layer, runtime, gives))


def _sums(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearConv, QLinearMatMul, QGemm."""
    product, bias = product_of(graph, variable), None
    if product is None and is_op(call, "relax.add"):
        product, bias = _with_bias(graph, call)
    if product is None:
        return None
    data = [each for each in product.call.args[:2] if not graph.is_constant(each)]
    if out.dtype == "int8" and _offset(graph, out, *data) != TO_UNSIGNED:
        block = block_of(graph, product)
        _note(graph, product.layer, FLOAT_SUMS, INTEGERS if block is None else DEFAULT)
        if block is not None:
            result = levels(graph, product, bias, out, block)
            return qlinear.nchw(graph.builder, result, product.layer)
    else:
        _note(graph, product.layer, "QLinearConv" if product.is_conv else "QLinearMatMul or QGemm")
    name = f"{product.layer}.bias_values"
    stored = None if bias is None else graph.builder.tensor(name, bias)
    sums = product.sums(graph, stored)
    factor = qlinear.output_factor(product.data.grid, product.weight.grid, out)
    result = qlinear.rescaled(graph.builder, product.layer, sums, factor, out)
    return qlinear.nchw(graph.builder, result, product.layer) if product.is_conv else result


def _moved(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """What is only moved about before it is quantized: sums of ConvTranspose, rows of softmax."""
    if not any(is_op(call, name) for name in _SHIFTS):
        return None
    inner = call.args[0]
    source = graph.expressions.get(inner)
    if source is None or not graph.is_read_once(inner):
        return None
    rules = (_sums, _softmax, _moved)
    found = (rule(graph, inner, source, out) for rule in rules)
    result = next((each for each in found if each is not None), None)
    if result is None:
        return None
    return graph.builder.emit(remap(call, {inner: result}), str(variable.name))


def _with_bias(graph: Rewriting, call: Any) -> tuple[Product | None, Array | None]:
    for main, other in (call.args, [*call.args][::-1]):
        product = product_of(graph, main)
        if product is not None and graph.is_read_once(main):
            channels = shape_of(main.ty)[1 if product.is_conv else -1]
            bias = _bias(graph, other, product, channels)
            if bias is not None:
                return product, bias
    return None, None


def _bias(graph: Rewriting, variable: Any, product: Product, channels: int) -> Array | None:
    """An int32 bias [O] on the accumulators' grid, or None if the addend is no bias."""
    shape = shape_of(variable.ty)
    along = len(shape) - (3 if product.is_conv else 1)
    if any(extent not in (1, channels if i == along else 1) for i, extent in enumerate(shape)):
        return None
    while any(is_op(graph.expressions.get(variable), name) for name in _RESHAPES):
        variable = graph.expressions[variable].args[0]
    values = graph.tensor(variable)
    call = graph.expressions.get(variable)
    if call is not None and is_op(call, "relax.qnn.dequantize_linear"):
        stored = graph.tensor(call.args[0])
        points = graph.tensor(call.args[2])
        if stored is None or stored.dtype != np.int32 or points is None or points.any():
            return None
        bias = stored.ravel()
    elif values is not None:
        bias = np.rint(values.ravel().astype(np.float32) / product.factor).astype(np.float64)
        bias = np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32)
    else:
        return None
    return np.ascontiguousarray(np.broadcast_to(bias, (channels,)))


def _binary(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearAdd, QLinearMul."""
    function = qlinear.add if is_op(call, "relax.add") else qlinear.multiply
    if function is qlinear.multiply and not is_op(call, "relax.multiply"):
        return None
    left, right = (graph.quantized.get(operand) for operand in call.args)
    if left is None or right is None or not _are_bytes(out, left, right):
        return None
    name = str(variable.name)
    offset = _offset(graph, out, *call.args)
    if offset is None:
        return None
    _note(graph, name, "QLinearAdd" if function is qlinear.add else "QLinearMul")
    operands = (left.value, right.value, (left.grid, right.grid))
    return function(graph.builder, name, *operands, out, offset=offset)


def _mean(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearGlobalAveragePool, or where types differ a pool of floats."""
    if not is_op(call, "relax.mean") or call.attrs.axis is None:
        return None
    if variable.name in graph.session.reductions:
        return None
    data = graph.quantized.get(call.args[0])
    axes = [int(axis) for axis in call.attrs.axis]
    if data is None or not _are_bytes(out, data) or len(shape_of(data.value.ty)) != 4:
        return None
    if axes != [2, 3] or not bool(call.attrs.keepdims):
        return None
    name = str(variable.name)
    if _offset(graph, out, call.args[0]) is None:
        graph.values[variable] = in_order.pooled(graph.value(call.args[0]), graph.builder, name)
        return None
    _note(graph, name, "QLinearGlobalAveragePool")
    return qlinear.global_average_pool(graph.builder, name, data.value, data.grid, out)


def reduce(graph: Rewriting, variable: Any, call: Any) -> None:
    """ReduceMean and ReduceSum of dequantized values: in float, in the order of the runtime."""
    data = graph.quantized.get(call.args[0])
    if data is None or not data.grid.is_per_tensor:
        return
    axes, name = sorted(_ints(call.attrs.axis)), str(variable.name)
    keepdims = bool(call.attrs.keepdims)
    value = graph.value(call.args[0])
    result = in_order.reduced(value, axes, keepdims, graph.builder.emit, name)
    if is_op(call, "relax.mean"):
        extents = [shape_of(value.ty)[axis] for axis in axes]
        count = graph.builder.tensor(f"{name}.count", np.asarray(np.prod(extents), np.float32))
        result = graph.builder.emit(relax.op.divide(result, count), f"{name}.mean")
    graph.values[variable] = result


def _average(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearAveragePool: NHWC sums over windows, divided by their count, back to NCHW."""
    if not is_op(call, "relax.permute_dims") or _ints(call.attrs.axes) != [0, 3, 1, 2]:
        return None
    divided = graph.call_for(call.args[0], "relax.divide")
    sums = None
    if divided is not None:
        sums = graph.call_for(divided.args[0], "relax.qnn.window_sum2d")
    if divided is None or sums is None:
        return None
    data, counts = graph.quantized.get(sums.args[0]), graph.tensor(divided.args[1])
    if data is None or counts is None or not _are_bytes(out, data):
        return None
    windows = {key: attributes(sums)[key] for key in ("kernel", "strides", "padding")}
    name = str(divided.args[0].name)
    offset, is_wrong = _offset(graph, out, sums.args[0]), name in graph.session.wrong_pools
    if is_wrong:
        _note(graph, name, WRONG_POOL, UNOPTIMIZED)
    elif offset is not None:
        _note(graph, name, "QLinearAveragePool")
    operands = (graph.builder, name, data.value, counts, (data.grid, out))
    if is_wrong or offset is None:
        by_columns = graph.session.sums_columns and not is_wrong
        result = qlinear.average_of_floats(*operands, **windows, by_columns=by_columns)
    else:
        result = qlinear.average(*operands, **windows, offset=offset)
    return qlinear.nchw(graph.builder, result, name)


def _offset(graph: Rewriting, out: Grid, *operands: Any) -> int | None:
    """What ONNX Runtime on x86 adds to the integers of an operator and its zero points.

    It makes uint8 of int8 activations that one node reads, and fuses operators whose operands and
    results are of one type then: None if they are not.
    """
    if out.dtype != "int8":
        return 0
    kept = {graph.stays_signed(each) for each in operands}
    kept.add(graph.target in graph.session.signed)
    return None if len(kept) > 1 else 0 if kept.pop() else TO_UNSIGNED


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values or ()]


def _softmax(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearSoftmax."""
    if not is_op(call, "relax.qnn.softmax") or attributes(call)["beta"] != 1.0:
        return None
    data = graph.quantized.get(call.args[0])
    if data is None or not _are_bytes(out, data):
        return None
    if _offset(graph, out, call.args[0]) is None:
        return None
    _note(graph, str(variable.name), "QLinearSoftmax")
    return qlinear.softmax(graph.builder, str(variable.name), data.value, data.grid, out)


def _concat(graph: Rewriting, variable: Any, call: Any, out: Grid) -> Any | None:
    """QLinearConcat: operands that lie on other grids go through a table."""
    if not is_op(call, "relax.concat"):
        return None
    operands = [graph.quantized.get(each) for each in variables_in(call)]
    parts = [each for each in operands if each is not None and _are_bytes(out, each)]
    if len(parts) != len(operands):
        return None
    name = str(variable.name)
    _note(graph, name, "QLinearConcat")
    moved = [on_grid(graph, part, out, f"{name}.{i}") for i, part in enumerate(parts)]
    return graph.builder.emit(relax.op.concat(moved, int(call.attrs.axis)), name)


def on_grid(graph: Rewriting, part: Quantized, out: Grid, name: str) -> Any:
    """A byte tensor's values as the nearest integers of another grid."""
    if part.grid.same(out):
        return part.value
    entries = out.quantize(part.grid.dequantize(every_byte(part.grid.dtype)))
    return table_of(graph, part.value, entries.astype(out.dtype), name)


def _are_bytes(out: Grid, *operands: Quantized) -> bool:
    """Whether operands are bytes of the result's type, one scale and zero point each."""
    return all(each.grid.is_byte and each.grid.dtype == out.dtype for each in operands)
