"""FCVTNS in TIR: floats to the nearest integers by one instruction of A64.

LLVM makes it of no vector operation, only of an intrinsic that must have a register's lanes. So it
is an operator of TIR, which loops become vectors around, and which becomes as many of these
intrinsics as its vector has registers.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import register_op_attr
from tvm.tirx.op import register_intrin_lowering

from stages.nodes import Call, Scalar

NAME = "tirx.bitkiln_nearest"
REGISTER = 4
"""Lanes of 32 bits."""
_PURE = 1
"""The number that TVM gives calls without an effect."""

register_op_attr(NAME, "TVectorizable", True)
register_op_attr(NAME, "TCallEffectKind", _PURE)
register_op_attr(NAME, "TScriptPrinterName", NAME)


def nearest_by_fcvtns(x: Scalar) -> Scalar:
    """The int32 nearest to a float32, of two the even one; what is beyond is the last there is."""
    return tirx.call_intrin("int32", NAME, x)


@register_intrin_lowering(NAME, "llvm")
def _lowered(call: Call) -> Scalar:
    return _converted(call.args[0], int(call.args[0].ty.dtype.lanes))


def _converted(x: Scalar, lanes: int) -> Scalar:
    """The integers of a vector of so many lanes."""
    if lanes <= REGISTER and lanes & (lanes - 1) == 0:
        name = "llvm.aarch64.neon.fcvtns"
        return tirx.call_llvm_pure_intrin(_typed("int32", lanes), name, x)
    if lanes % 2:
        rounded = tirx.call_llvm_pure_intrin(_typed("float32", lanes), "llvm.nearbyint", x)
        return rounded.astype(_typed("int32", lanes))
    half = _typed("float32", lanes // 2)
    parts = (tirx.vectorlow(half, x), tirx.vectorhigh(half, x))
    return tirx.vectorcombine(
        _typed("int32", lanes), *(_converted(part, lanes // 2) for part in parts)
    )


def _typed(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"{element}x{lanes}"
