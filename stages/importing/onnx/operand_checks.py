"""What an operator of an ONNX file must be given: operands that are there, and moderate weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stages.importing.limits import LARGEST_WEIGHT
from stages.importing.onnx.domains import QONNX
from stages.importing.onnx.onnx_reader import Node
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]

_REQUIRED: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("com.microsoft", "DequantizeLinear"): (0, 1),
    ("com.microsoft", "DynamicQuantizeMatMul"): (0, 1, 2),
    ("com.microsoft", "MatMulIntegerToFloat"): (0, 1, 2, 3),
    ("com.microsoft", "QGemm"): (0, 1, 2, 3, 4, 5),
    ("com.microsoft", "QLinearAdd"): (0, 1, 3, 4, 6),
    ("com.microsoft", "QLinearAveragePool"): (0, 1, 3),
    ("com.microsoft", "QLinearConcat"): (0, 1, 2, 3, 4),
    ("com.microsoft", "QLinearGlobalAveragePool"): (0, 1, 2, 3, 4),
    ("com.microsoft", "QLinearLeakyRelu"): (0, 1, 3),
    ("com.microsoft", "QLinearMul"): (0, 1, 3, 4, 6),
    ("com.microsoft", "QLinearSigmoid"): (0, 1, 3),
    ("com.microsoft", "QLinearSoftmax"): (0, 1, 3, 4),
    ("com.microsoft", "QuantizeLinear"): (0, 1),
    (QONNX, "BipolarQuant"): (0, 1),
    (QONNX, "IntQuant"): (0, 1, 2, 3),
    (QONNX, "MultiThreshold"): (0, 1),
    (QONNX, "Quant"): (0, 1, 2, 3),
    (QONNX, "Trunc"): (0, 1, 2, 3, 4),
}
"""Operands that may not be left out; of ONNX's own operators `onnx.checker` knows."""

_WEIGHTED = frozenset(
    (
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "QGemm", "MatMulIntegerToFloat"),
        *("BatchNormalization", "LayerNormalization", "InstanceNormalization"),
        *("GroupNormalization", "Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold"),
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeMatMul"),
    )
)
"""Operators whose constant operands are weights, scales or thresholds."""


def check_operands(node: Node, constants: Mapping[str, Array]) -> None:
    """UnsupportedError for an operand left out, and for weights that no sum can be made of.

    Other constants may be infinite, as masks are, but not NaN.
    """
    for position in _REQUIRED.get((node.domain, node.op), ()):
        if len(node.inputs) <= position or not node.inputs[position]:
            raise UnsupportedError(f"leaves out its operand {position}, which is required")
    for name, value in _floats(node, constants):
        if np.isnan(value).any():
            raise UnsupportedError(f"reads '{name}', which holds NaN")
        largest = float(np.abs(value).max(initial=0))
        if (node.op in _WEIGHTED or node.op.startswith("QLinear")) and largest > LARGEST_WEIGHT:
            raise UnsupportedError(
                f"reads '{name}', which holds {largest:g}; weights and scales up to "
                f"{LARGEST_WEIGHT:g} are accepted"
            )


def _floats(node: Node, constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for name in node.inputs:
        value = constants.get(name)
        if value is not None and value.dtype.kind == "f":
            yield name, value
