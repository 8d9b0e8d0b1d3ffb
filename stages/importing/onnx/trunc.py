"""The converter of QONNX's Trunc: quantized values lose their last bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.qonnx_quantizers import bit_width, scale_of
from stages.importing.onnx.source_arithmetic import truncation_scale
from stages.importing.unsupported import UnsupportedError
from stages.numerics import qonnx_operators

Array = np.ndarray[Any, Any]

_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "ROUND": relax.op.round,
    "HALF_EVEN": relax.op.round,
    "CEIL": relax.op.ceil,
    "FLOOR": relax.op.floor,
}


def trunc(builder: OnnxBuilder, node: Node) -> Any:
    """QONNX Trunc, step by step as its executor has it: version 2 states the scale it gives.

    Version 1, of five inputs, drops as many bits as its two widths differ by, and clips nothing.
    """
    x, scale_name, zero_name, given_name, *rest = node.inputs
    layer, rounding = node.layer, str(node.attributes.get("rounding_mode", "FLOOR")).upper()
    if rounding not in _ROUNDED:
        listed = ", ".join(sorted(_ROUNDED))
        raise UnsupportedError(f"truncates by '{rounding}'; {listed} are accepted")
    if builder.constant(zero_name).any():
        raise UnsupportedError(f"has the zero point '{zero_name}'; 0 is accepted")
    scale = scale_of(builder, scale_name, x).astype(np.float32)

    def emit(function: Any, value: Any, name: str, operand: Array | None = None) -> Any:
        operands = [] if operand is None else [builder.parameter(f"{layer}.{name}", operand)]
        return builder.emit(function(value, *operands), f"{layer}.{name}ed")

    steps = emit(relax.op.divide, builder.read(x), "scal", scale)
    whole = emit(relax.op.round, steps, "round")
    if len(rest) == 1:
        lost = bit_width(builder, given_name) - bit_width(builder, rest[0])
        parts = emit(relax.op.divide, whole, "divid", np.array(2.0**lost, np.float32))
        kept = emit(_ROUNDED[rounding], parts, "truncat")
        return emit(relax.op.multiply, kept, "multipli", scale)
    target = scale_of(builder, rest[0], x).astype(np.float32)
    step = truncation_scale(scale, target)
    # Products by powers of two round nothing, so a quantizer of whole steps stands in the middle.
    call = qonnx_operators.quant(
        whole,
        builder.parameter(f"{layer}.step", step),
        builder.parameter(f"{layer}.zero", np.zeros((), np.float32)),
        bits=bit_width(builder, rest[1]),
        signed=bool(node.attributes.get("signed", 1)),
        narrow=bool(node.attributes.get("narrow", 0)),
        rounding=rounding,
    )
    kept = builder.emit(call, f"{layer}.truncated")
    return emit(relax.op.multiply, kept, "multipli", (target / step).astype(np.float32))
