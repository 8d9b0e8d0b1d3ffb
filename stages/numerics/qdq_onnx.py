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

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.graph.bindings import remap, variables_in
from stages.kinds import Array
from stages.nodes import Call, Var
from stages.numerics import qlinear
from stages.numerics.float_softmax import softmax as float_softmax
from stages.numerics.linear_quantizers import dequantize_linear
from stages.numerics.onnx_islands import DEFAULT, INTEGERS, Island
from stages.numerics.qdq_integers import lut_of
from stages.numerics.qdq_onnx_operands import TO_UNSIGNED, Bytes, bytes_of, note, offset
from stages.numerics.qdq_onnx_pools import average, mean
from stages.numerics.qdq_pointwise_conv import block_of, levels
from stages.numerics.qdq_rewriter import QdqRewriter
from stages.numerics.qdq_sums import Product, product_of
from stages.numerics.quantization import Quantization, every_byte

FLOAT_SUMS = "a convolution or product of floats: an int8 tensor at it has several readers"
CUT = "operators of floats: a Relu or Clip within the grid is before the quantizer"
_RESHAPES = (names.RESHAPE, names.EXPAND_DIMS, names.SQUEEZE)
_SHIFTS = (names.RESHAPE, names.PERMUTE_DIMS, names.STRIDED_SLICE)


def fused(graph: QdqRewriter, variable: Var, out: Quantization) -> Var | None:
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


def _bounds(graph: QdqRewriter, variable: Var, out: Quantization) -> tuple[int, int] | None:
    """The integers between which a Relu or Clip keeps its result, if its one reader is here."""
    call = graph.expressions.get(variable)
    if call is None or not graph.is_read_once(variable):
        return None
    if is_op(call, names.RELU):
        return out.zero_point.whole, out.levels.high
    if is_op(call, names.CLIP):
        low, high = out.quantize(np.array([float(each.value) for each in call.args[1:]]))
        return int(low), int(high)
    return None


def _operator(graph: QdqRewriter, variable: Var, out: Quantization) -> Var | None:
    call = graph.expressions.get(variable)
    if call is None:
        return None
    for rule in (_sums, _binary, mean, average, _softmax, _concat, _moved):
        result = rule(graph, variable, call, out)
        if result is not None:
            return result
    return None


def _sums(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearConv, QLinearMatMul, QGemm."""
    product, bias = product_of(graph, variable), None
    if product is None and is_op(call, names.ADD):
        product, bias = _with_bias(graph, call)
    if product is None:
        return None
    data = [each for each in product.call.args[:2] if not graph.is_constant(each)]
    if out.dtype == "int8" and offset(graph, out, *data) != TO_UNSIGNED:
        block = block_of(graph, product)
        note(graph, product.layer, FLOAT_SUMS, INTEGERS if block is None else DEFAULT)
        if block is not None:
            result = levels(graph, product, bias, out, block)
            return qlinear.nchw(graph.builder, result, product.layer)
    else:
        note(graph, product.layer, "QLinearConv" if product.is_conv else "QLinearMatMul or QGemm")
    name = f"{product.layer}.bias_values"
    stored = None if bias is None else graph.builder.tensor(name, bias)
    sums = product.sums(graph, stored)
    factor = qlinear.output_factor(product.source, product.weight.grid, out)
    result = qlinear.rescaled(graph.builder, product.layer, sums, factor, out)
    return qlinear.nchw(graph.builder, result, product.layer) if product.is_conv else result


def _moved(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """What is only moved about before it is quantized: sums of ConvTranspose, rows of softmax."""
    if not is_op(call, *_SHIFTS):
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


def _with_bias(graph: QdqRewriter, call: Call) -> tuple[Product | None, Array | None]:
    for main, other in (call.args, [*call.args][::-1]):
        product = product_of(graph, main)
        if product is not None and graph.is_read_once(main):
            channels = shape_of(main.ty)[1 if product.is_conv else -1]
            bias = _bias(graph, other, product, channels)
            if bias is not None:
                return product, bias
    return None, None


def _bias(graph: QdqRewriter, variable: Var, product: Product, channels: int) -> Array | None:
    """An int32 bias [O] on the accumulators' grid, or None if the addend is no bias."""
    shape = shape_of(variable.ty)
    along = len(shape) - (3 if product.is_conv else 1)
    if any(extent not in (1, channels if i == along else 1) for i, extent in enumerate(shape)):
        return None
    while is_op(graph.expressions.get(variable), *_RESHAPES):
        variable = graph.expressions[variable].args[0]
    values = graph.tensor(variable)
    call = graph.expressions.get(variable)
    if call is not None and is_op(call, dequantize_linear.name):
        stored = graph.tensor(call.args[0])
        zero_point = graph.tensor(call.args[2])
        if stored is None or stored.dtype != np.int32 or zero_point is None or zero_point.any():
            return None
        bias = stored.ravel()
    elif values is not None:
        bias = np.rint(values.ravel().astype(np.float32) / product.factor).astype(np.float64)
        bias = np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32)
    else:
        return None
    return np.ascontiguousarray(np.broadcast_to(bias, (channels,)))


def _binary(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearAdd, QLinearMul."""
    function = qlinear.add if is_op(call, names.ADD) else qlinear.multiply
    if function is qlinear.multiply and not is_op(call, names.MULTIPLY):
        return None
    left, right = (bytes_of(graph, out, operand) for operand in call.args)
    if left is None or right is None:
        return None
    name = str(variable.name)
    shift = offset(graph, out, *call.args)
    if shift is None:
        return None
    note(graph, name, "QLinearAdd" if function is qlinear.add else "QLinearMul")
    operands = (left.value, right.value, (left.source, right.source))
    return function(graph.builder, name, *operands, out, offset=shift)


def _softmax(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearSoftmax."""
    if not is_op(call, float_softmax.name) or attributes(call)["beta"] != 1.0:
        return None
    data = bytes_of(graph, out, call.args[0])
    if data is None or offset(graph, out, call.args[0]) is None:
        return None
    note(graph, str(variable.name), "QLinearSoftmax")
    return qlinear.softmax(graph.builder, str(variable.name), data.value, data.source, out)


def _concat(graph: QdqRewriter, variable: Var, call: Call, out: Quantization) -> Var | None:
    """QLinearConcat: operands that lie on other grids go through a table."""
    if not is_op(call, names.CONCAT):
        return None
    operands = [bytes_of(graph, out, each) for each in variables_in(call)]
    parts = [each for each in operands if each is not None]
    if len(parts) != len(operands):
        return None
    name = str(variable.name)
    note(graph, name, "QLinearConcat")
    moved = [requantized(graph, part, out, f"{name}.{i}") for i, part in enumerate(parts)]
    return graph.builder.emit(relax.op.concat(moved, int(call.attrs.axis)), name)


def requantized(graph: QdqRewriter, part: Bytes, out: Quantization, name: str) -> Var:
    """A byte tensor's values as the nearest integers of another quantization."""
    if part.source == out:
        return part.value
    entries = out.quantize(part.source.dequantize(every_byte(part.source.dtype)))
    return lut_of(graph, part.value, entries.astype(out.dtype), name)
