"""The two ways to import an ONNX graph, and which operators each knows.

QONNX and FINN graphs, and float graphs made of the operators those use, are float32 throughout and
their arithmetic is QONNX's (`onnx_importer`). A graph with integer operators, or with
float operators beyond those, has tensors of every type and ONNX Runtime's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from stages.importing.onnx import integer_operators as qoperators
from stages.importing.onnx import microsoft_operators as contrib
from stages.importing.onnx import normalization_layers as norms
from stages.importing.onnx import pointwise_operators as pointwise
from stages.importing.onnx import pooling as pools
from stages.importing.onnx import qonnx_layers as layers
from stages.importing.onnx import qonnx_quantizers as arithmetic
from stages.importing.onnx import quantize_linear as quantizers
from stages.importing.onnx import tensor_movement as tensors
from stages.importing.onnx.conv_transpose import conv_transpose
from stages.importing.onnx.onnx_builder import RelaxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.resize import resize
from stages.numerics import float_elementwise as functions
from stages.numerics import onnx_elementwise, qlinear
from stages.numerics.float_softmax import log_softmax, softmax

Converter = Callable[[RelaxBuilder, Node], Any]
MICROSOFT = "com.microsoft"

_INTEGER: Mapping[str, Converter] = {
    "QuantizeLinear": quantizers.quantize_linear,
    "DequantizeLinear": quantizers.dequantize_linear,
    "DynamicQuantizeLinear": quantizers.dynamic_quantize_linear,
    "QLinearConv": qoperators.qlinear_conv,
    "QLinearMatMul": qoperators.qlinear_matmul,
    "ConvInteger": qoperators.conv_integer,
    "MatMulInteger": qoperators.matmul_integer,
}
_CONTRIB: Mapping[str, Converter] = {
    "QLinearAdd": contrib.added,
    "QLinearMul": contrib.binary(qlinear.multiply),
    "QLinearConcat": contrib.concat,
    "QLinearAveragePool": contrib.average_pool,
    "QLinearGlobalAveragePool": contrib.global_average_pool,
    "QLinearSigmoid": contrib.sigmoid,
    "QLinearLeakyRelu": contrib.leaky_relu,
    "QLinearSoftmax": contrib.softmax,
    "QGemm": contrib.gemm,
    "MatMulIntegerToFloat": contrib.matmul_integer_to_float,
    "DynamicQuantizeMatMul": contrib.dynamic_quantize_matmul,
    "QuantizeLinear": quantizers.quantize_linear,
    "DequantizeLinear": quantizers.dequantize_linear,
}
_ORDINARY: Mapping[str, Converter] = {
    "Conv": pools.conv,
    "ConvTranspose": conv_transpose,
    "Gemm": pools.gemm,
    "MatMul": layers.matmul,
    "MaxPool": pools.max_pool,
    "AveragePool": pools.average_pool,
    "GlobalAveragePool": pointwise.global_pool(relax.op.mean),
    "GlobalMaxPool": pointwise.global_pool(relax.op.max),
    "ReduceMean": pointwise.reducing(relax.op.mean),
    "ReduceSum": pointwise.reducing(relax.op.sum),
    "ReduceMax": pointwise.reducing(relax.op.max),
    "ReduceMin": pointwise.reducing(relax.op.min),
    "Add": arithmetic.elementwise(relax.op.add),
    "Sub": arithmetic.elementwise(relax.op.subtract),
    "Mul": arithmetic.elementwise(relax.op.multiply),
    "Div": pointwise.divide,
    "Sum": pointwise.variadic(onnx_elementwise.float_sum),
    "Max": pointwise.variadic(relax.op.maximum),
    "Min": pointwise.variadic(relax.op.minimum),
    "Equal": arithmetic.elementwise(relax.op.equal),
    "Greater": arithmetic.elementwise(relax.op.greater),
    "GreaterOrEqual": arithmetic.elementwise(relax.op.greater_equal),
    "Less": arithmetic.elementwise(relax.op.less),
    "LessOrEqual": arithmetic.elementwise(relax.op.less_equal),
    "And": arithmetic.elementwise(relax.op.logical_and),
    "Or": arithmetic.elementwise(relax.op.logical_or),
    "Xor": arithmetic.elementwise(relax.op.logical_xor),
    "Not": pointwise.unary(relax.op.logical_not),
    "Abs": pointwise.unary(relax.op.abs),
    "Neg": pointwise.unary(relax.op.negative),
    "Floor": pointwise.unary(relax.op.floor),
    "Ceil": pointwise.unary(relax.op.ceil),
    "Round": pointwise.unary(relax.op.round),
    "Sqrt": pointwise.unary(relax.op.sqrt),
    "Relu": arithmetic.relu,
    "Sign": arithmetic.sign,
    "Clip": pointwise.clip,
    "LeakyRelu": pointwise.leaky_relu,
    "PRelu": arithmetic.elementwise(functions.prelu),
    "Elu": pointwise.elu,
    "Exp": pointwise.unary(functions.exp),
    "Log": pointwise.unary(functions.log),
    "Sigmoid": pointwise.unary(functions.sigmoid),
    "Tanh": pointwise.unary(functions.tanh),
    "Erf": pointwise.unary(functions.erf),
    "Sin": pointwise.unary(functions.sin),
    "Cos": pointwise.unary(functions.cos),
    "Gelu": pointwise.gelu,
    "Softmax": pointwise.softmax(lambda x: softmax(x, beta=1.0)),
    "LogSoftmax": pointwise.softmax(log_softmax),
    "HardSigmoid": pointwise.hard_sigmoid,
    "HardSwish": pointwise.hard_sigmoid,
    "Pow": pointwise.power,
    "Reciprocal": pointwise.reciprocal,
    "BatchNormalization": pointwise.batch_norm,
    "LayerNormalization": norms.layer_norm,
    "InstanceNormalization": norms.instance_norm,
    "GroupNormalization": norms.group_norm,
    "LRN": pointwise.lrn,
    "Concat": tensors.concat,
    "Split": tensors.split,
    "Slice": tensors.slice_,
    "Gather": tensors.gather,
    "Pad": tensors.pad,
    "Expand": tensors.expand,
    "Cast": tensors.cast,
    "Where": tensors.where,
    "DepthToSpace": tensors.depth_to_space,
    "SpaceToDepth": tensors.space_to_depth,
    "ArgMax": tensors.arg_extreme(relax.op.argmax),
    "ArgMin": tensors.arg_extreme(relax.op.argmin),
    "Resize": resize,
    "Upsample": resize,
    "Flatten": layers.flatten,
    "Reshape": layers.reshape,
    "Squeeze": layers.squeeze,
    "Unsqueeze": layers.unsqueeze,
    "Transpose": layers.transpose,
    "Identity": layers.identity,
    "Dropout": tensors.dropout,
}

INTEGER_KINDS = frozenset({("", op) for op in _INTEGER} | {(MICROSOFT, op) for op in _CONTRIB})
"""Operators that make a graph one of integers."""

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    **{("", op): converter for op, converter in {**_ORDINARY, **_INTEGER}.items()},
    **{(MICROSOFT, op): converter for op, converter in _CONTRIB.items()},
}
"""Everything importable with ONNX Runtime's arithmetic."""
