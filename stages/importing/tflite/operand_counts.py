"""What the schema leaves to the kernels: how many operands an operator takes, and which options.

LiteRT refuses another number of operands, and reads options only from the table that belongs to the
operator: of any other table it sees nothing, so each option is 0.
Sources: tensorflow/lite/kernels/*.cc (NumInputs) and
tensorflow/compiler/mlir/lite/core/api/flatbuffer_conversions.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

MANY = 1 << 31

_ONE, _TWO, _THREE = (1, 1), (2, 2), (3, 3)

OPERANDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(
        (
            *("ABS", "CAST", "CEIL", "COS", "DEPTH_TO_SPACE", "DEQUANTIZE", "ELU", "EXP", "FLOOR"),
            *("GELU", "HARD_SWISH", "L2_NORMALIZATION", "LEAKY_RELU", "LOG", "LOGICAL_NOT"),
            *("LOGISTIC", "LOG_SOFTMAX", "MAX_POOL_2D", "AVERAGE_POOL_2D", "NEG", "QUANTIZE"),
            *("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SHAPE", "SIGN"),
            *("SIN", "SOFTMAX", "SPACE_TO_DEPTH", "SQRT", "SQUARE", "SQUEEZE", "TANH", "UNPACK"),
            *("LceQuantize", "LceDequantize", "LceBMaxPool2d", "Bsign"),
        ),
        _ONE,
    ),
    **dict.fromkeys(
        (
            *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW"),
            *("SQUARED_DIFFERENCE", "PRELU", "BATCH_MATMUL", "EQUAL", "NOT_EQUAL", "LESS"),
            *("LESS_EQUAL", "GREATER", "GREATER_EQUAL", "LOGICAL_AND", "LOGICAL_OR"),
            *("ARG_MAX", "ARG_MIN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"),
            *("BROADCAST_TO", "EXPAND_DIMS", "GATHER", "GATHER_ND", "MIRROR_PAD"),
            *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_SEQUENCE", "REVERSE_V2"),
            *("SPLIT", "TILE", "TRANSPOSE"),
        ),
        _TWO,
    ),
    **dict.fromkeys(
        (
            *("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "SELECT", "SELECT_V2"),
            *("SLICE", "SPLIT_V"),
        ),
        _THREE,
    ),
    "STRIDED_SLICE": (4, 4),
    "CONV_2D": (2, 3),
    "DEPTHWISE_CONV_2D": (2, 3),
    "FULLY_CONNECTED": (2, 3),
    "TRANSPOSE_CONV": (3, 4),
    "RESHAPE": (1, 2),
    "PAD": (2, 3),
    "PADV2": (2, 3),
    "CONCATENATION": (1, MANY),
    "PACK": (1, MANY),
    "LceBconv2d": (4, 5),
}
"""The least and the most operands of every operator that is imported, those left out counted."""

OPTIONS: Mapping[str, str] = {
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "DIV": "DivOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "GELU": "GeluOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "MUL": "MulOptions",
    "PACK": "PackOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "REVERSE_SEQUENCE": "ReverseSequenceOptions",
    "SHAPE": "ShapeOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "SQUEEZE": "SqueezeOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "SUM": "ReducerOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "UNPACK": "UnpackOptions",
}
"""The table of options of every imported operator that has some."""


def wrong_count(kind: str, given: int) -> str | None:
    """What is wrong with a number of operands, None if it is right or the operator is unknown."""
    least, most = OPERANDS.get(kind, (0, MANY))
    if least <= given <= most:
        return None
    accepted = f"{least}" if least == most else f"{least} to {most}"
    accepted = accepted if most < MANY else f"at least {least}"
    return f"has {given} operand{'' if given == 1 else 's'}; it takes {accepted}"
