"""Loops that become vectors where TIR can vectorize them, and small buffers on the stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.profile import Hardware
from stages.codegen import target_of
from stages.nodes import Index, PrimFunc, Scalar
from stages.packaging.emitting.kernel import Kernel

Loop = Callable[[Index, Index], AbstractContextManager[Scalar]]
"""What emits a loop from one number to another: `T.serial`, `T.unroll` or `T.vectorized`."""
DEVICE = {"device_type": 1, "device_id": 0}
"""A processor, by which TVM knows that small temporaries go on the stack."""
VECTORIZING = tvm.ir.transform.Sequential(
    [
        tirx.transform.StmtSimplify(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.LowerIntrin(),
    ]
)
"""What code generation does first (`stages.codegen`)."""


def is_vectorizable(function: PrimFunc, hardware: Hardware) -> bool:
    """Whether TIR can turn a function's vector loops into vectors; if not, LLVM may find some.

    It cannot where an operand of a shift is the same for all lanes, for example.
    """
    try:
        function = function.with_attr("target", target_of(hardware))
        VECTORIZING(tvm.IRModule({"main": function}))
    except (tvm.error.InternalError, TypeError):
        return False
    return True


@contextmanager
def on_stack() -> Iterator[None]:
    """Where small buffers that are allocated are on the stack."""
    with ExitStack() as stack:
        for key, value in DEVICE.items():
            stack.enter_context(T.attr(tirx.const(0, "int32"), key, value))
        yield


def with_vectors(made: Callable[[Loop], Kernel], hardware: Hardware) -> Kernel:
    """The kernel that is made with vector loops; what TIR cannot vectorize is left to LLVM."""
    kernel = made(T.vectorized)
    functions = (kernel.function, *(helper.function for helper in kernel.helpers))
    vectorized = all(is_vectorizable(function, hardware) for function in functions)
    return kernel if vectorized else made(T.serial)
