"""Micro-kernels that preload the bias, and the same without: these call them with zeros."""

from __future__ import annotations

from collections.abc import Sequence

from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK, KernelSignature

PRELOAD = "ptr noalias readonly %begin"
"""The bias to preload, int32 [32]: the parameter behind those that every micro-kernel has."""
ZEROS = "bk_nothing"


def without_preload(signature: KernelSignature, parameters: Sequence[str]) -> tuple[str, list[str]]:
    """The function of a signature, which calls the one that preloads, and what it needs.

    LLVM sees that what is loaded is 0.
    """
    code = FunctionText()
    passed = ", ".join((*parameters, f"ptr @{ZEROS}"))
    code.do(f"call void @{signature.preload_name}({passed})")
    code.do("ret void")
    zeros = f"@{ZEROS} = internal constant [{BLOCK} x i32] zeroinitializer, align 64"
    return code.function(signature.name, parameters), [zeros]
