"""The operators that ONNX files may hold, each with the converter that makes it Relax.

There are two tables, since a graph keeps one of two arithmetics. QONNX and FINN graphs are float32
throughout, and qonnx's executor says what an operator gives. All other graphs have tensors of every
type, and ONNX Runtime says it. `operator_set_of` tells which table holds for a graph.

A converter takes the builder and the node. It returns the value of the node's output (a Relax
variable, or a NumPy array where it is known at import), or a tuple of them. It raises
UnsupportedError, whose sentence continues the operator's name, for what it does not accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from stages.importing.onnx import integer_operators as qoperators
from stages.importing.onnx import microsoft_operators as contrib
from stages.importing.onnx import normalization_layers as norms
from stages.importing.onnx import pointwise_operators as pointwise
from stages.importing.onnx import pooling as pools
from stages.importing.onnx import qonnx_layers, qonnx_quantizers
from stages.importing.onnx import quantize_linear as quantizers
from stages.importing.onnx import shape_changes as shapes
from stages.importing.onnx import tensor_movement as tensors
from stages.importing.onnx import weighted_layers as weighted
from stages.importing.onnx.conv_transpose import conv_transpose
from stages.importing.onnx.domains import QONNX
from stages.importing.onnx.onnx_builder import ANY, FLOAT_ONLY, Converter
from stages.importing.onnx.onnx_reader import SourceGraph
from stages.importing.onnx.resize import nearest, resize
from stages.importing.onnx.trunc import trunc
from stages.importing.unsupported import CONTROL_FLOW, ONLY_LAST
from stages.numerics import float_elementwise as functions
from stages.numerics import onnx_elementwise, qlinear
from stages.numerics.float_softmax import log_softmax, softmax

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
    "QLinearAdd": contrib.qlinear_add,
    "QLinearMul": contrib.qlinear_binary(qlinear.multiply),
    "QLinearConcat": contrib.qlinear_concat,
    "QLinearAveragePool": contrib.qlinear_average_pool,
    "QLinearGlobalAveragePool": contrib.qlinear_global_average_pool,
    "QLinearSigmoid": contrib.qlinear_sigmoid,
    "QLinearLeakyRelu": contrib.qlinear_leaky_relu,
    "QLinearSoftmax": contrib.qlinear_softmax,
    "QGemm": contrib.qgemm,
    "MatMulIntegerToFloat": contrib.matmul_integer_to_float,
    "DynamicQuantizeMatMul": contrib.dynamic_quantize_matmul,
    "QuantizeLinear": quantizers.quantize_linear,
    "DequantizeLinear": quantizers.dequantize_linear,
}
_ORDINARY: Mapping[str, Converter] = {
    "Conv": weighted.conv(weighted.view_computed),
    "ConvTranspose": conv_transpose,
    "Gemm": weighted.gemm,
    "MatMul": weighted.matmul,
    "MaxPool": pools.max_pool,
    "AveragePool": pools.average_pool,
    "GlobalAveragePool": pointwise.global_pool(relax.op.mean),
    "GlobalMaxPool": pointwise.global_pool(relax.op.max),
    "ReduceMean": pointwise.reducing(relax.op.mean),
    "ReduceSum": pointwise.reducing(relax.op.sum),
    "ReduceMax": pointwise.reducing(relax.op.max),
    "ReduceMin": pointwise.reducing(relax.op.min),
    "Add": pointwise.elementwise(relax.op.add),
    "Sub": pointwise.elementwise(relax.op.subtract),
    "Mul": pointwise.elementwise(relax.op.multiply),
    "Div": pointwise.divide,
    "Sum": pointwise.variadic(onnx_elementwise.float_sum),
    "Max": pointwise.variadic(relax.op.maximum),
    "Min": pointwise.variadic(relax.op.minimum),
    "Equal": pointwise.elementwise(relax.op.equal),
    "Greater": pointwise.elementwise(relax.op.greater),
    "GreaterOrEqual": pointwise.elementwise(relax.op.greater_equal),
    "Less": pointwise.elementwise(relax.op.less),
    "LessOrEqual": pointwise.elementwise(relax.op.less_equal),
    "And": pointwise.elementwise(relax.op.logical_and),
    "Or": pointwise.elementwise(relax.op.logical_or),
    "Xor": pointwise.elementwise(relax.op.logical_xor),
    "Not": pointwise.unary(relax.op.logical_not),
    "Abs": pointwise.unary(relax.op.abs),
    "Neg": pointwise.unary(relax.op.negative),
    "Floor": pointwise.unary(relax.op.floor),
    "Ceil": pointwise.unary(relax.op.ceil),
    "Round": pointwise.unary(relax.op.round),
    "Sqrt": pointwise.unary(relax.op.sqrt),
    "Relu": pointwise.relu,
    "Sign": pointwise.sign,
    "Clip": pointwise.clip,
    "LeakyRelu": pointwise.leaky_relu,
    "PRelu": pointwise.elementwise(functions.prelu),
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
    "Flatten": shapes.flatten,
    "Reshape": shapes.reshape,
    "Squeeze": shapes.squeeze,
    "Unsqueeze": shapes.unsqueeze,
    "Transpose": shapes.transpose,
    "Identity": shapes.identity,
    "Dropout": tensors.dropout,
}

INTEGER_KINDS = frozenset({("", op) for op in _INTEGER} | {(MICROSOFT, op) for op in _CONTRIB})
"""Operators that make a graph one of integers."""

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    **{("", op): converter for op, converter in {**_ORDINARY, **_INTEGER}.items()},
    **{(MICROSOFT, op): converter for op, converter in _CONTRIB.items()},
}
"""Everything importable with ONNX Runtime's arithmetic."""

IN_FLOAT = (
    "Abs", "Ceil", "Concat", "DepthToSpace", "Elu", "Erf", "Exp", "Expand", "Floor", "Gelu",
    "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish", "InstanceNormalization",
    "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Max", "Min", "Neg", "PRelu", "Pad",
    "Pow", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceSum", "Round", "Sigmoid", "Slice",
    "Softmax", "SpaceToDepth", "Sqrt", "Sum", "Tanh",
)  # fmt: skip
"""Operators that networks with quantizers compute in float, as other graphs have them."""

QONNX_CONVERTERS: Mapping[tuple[str, str], Converter] = {
    **{("", op): CONVERTERS["", op] for op in IN_FLOAT},
    ("", "Conv"): weighted.conv(weighted.view_at_import),
    ("", "Gemm"): weighted.gemm_of_rows,
    ("", "MatMul"): weighted.matmul,
    ("", "Add"): pointwise.elementwise(relax.op.add),
    ("", "Sub"): pointwise.elementwise(relax.op.subtract),
    ("", "Mul"): pointwise.elementwise(relax.op.multiply),
    ("", "Div"): pointwise.elementwise(relax.op.divide),
    ("", "BatchNormalization"): qonnx_layers.qonnx_batch_norm,
    ("", "Relu"): pointwise.relu,
    ("", "Clip"): qonnx_layers.qonnx_clip,
    ("", "Sign"): pointwise.sign,
    ("", "Resize"): nearest,
    ("", "Upsample"): nearest,
    ("", "MaxPool"): qonnx_layers.qonnx_max_pool,
    ("", "AveragePool"): qonnx_layers.qonnx_average_pool,
    ("", "GlobalAveragePool"): qonnx_layers.global_average_pool,
    ("", "ReduceMean"): qonnx_layers.reduce_mean,
    ("", "Flatten"): shapes.flatten,
    ("", "Reshape"): shapes.reshape,
    ("", "Squeeze"): shapes.squeeze,
    ("", "Unsqueeze"): shapes.unsqueeze,
    ("", "Transpose"): shapes.transpose,
    ("", "Identity"): shapes.identity,
    ("", "Dropout"): shapes.identity,
    (QONNX, "Quant"): qonnx_quantizers.quant,
    (QONNX, "IntQuant"): qonnx_quantizers.quant,
    (QONNX, "BipolarQuant"): qonnx_quantizers.bipolar_quant,
    (QONNX, "MultiThreshold"): qonnx_quantizers.multi_threshold,
    (QONNX, "Trunc"): trunc,
}
"""Everything importable with QONNX's arithmetic."""

REASONS: Mapping[str, str] = {
    "If": CONTROL_FLOW,
    "Loop": CONTROL_FLOW,
    "Scan": CONTROL_FLOW,
    "TopK": ONLY_LAST,
    "ArgMax": ONLY_LAST,
    "FloatQuant": "small floating-point formats are not supported",
}
"""Why there is no converter, where more is to be said than that."""


@dataclass(frozen=True)
class OperatorSet:
    """What a graph may hold, and by whose rounding rules: operators, and types of elements."""

    converters: Mapping[tuple[str, str], Converter]
    accepts: tuple[str, ...]
    numerics: str


QONNX_SET = OperatorSet(QONNX_CONVERTERS, FLOAT_ONLY, "qonnx")
ONNX_SET = OperatorSet(CONVERTERS, ANY, "onnx")


def operator_set_of(graph: SourceGraph) -> OperatorSet:
    """QONNX's set for files that speak of it, annotate datatypes or take signs; else ONNX's."""
    kinds = {(node.domain, node.op) for node in graph.nodes}
    if kinds & INTEGER_KINDS or any(item.dtype != "float32" for item in graph.inputs):
        return ONNX_SET
    domains = [item.domain for item in graph.model.opset_import]
    is_spoken = any(domain == QONNX or "finn" in domain for domain in domains)
    return QONNX_SET if is_spoken or graph.datatypes or ("", "Sign") in kinds else ONNX_SET
