"""Micro-kernels whose sums begin with something, and those that begin with 0 around them."""

from __future__ import annotations

from collections.abc import Sequence

from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK, KernelSignature

PRELOAD = "ptr noalias readonly %begin"
"""What sums begin with, int32 [32]: the parameter behind those that every micro-kernel has."""
NOTHING = "bk_nothing"


def without_preload(signature: KernelSignature, parameters: Sequence[str]) -> tuple[str, list[str]]:
    """The function of a signature, which calls the one that begins, and what it needs.

    LLVM sees that what is loaded is 0.
    """
    code = FunctionText()
    handed = ", ".join((*parameters, f"ptr @{NOTHING}"))
    code.do(f"call void @{signature.preload_name}({handed})")
    code.do("ret void")
    nothing = f"@{NOTHING} = internal constant [{BLOCK} x i32] zeroinitializer, align 64"
    return code.function(signature.name, parameters), [nothing]
