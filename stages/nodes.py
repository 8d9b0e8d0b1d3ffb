"""The nodes of Relax and TIR that stages name in their signatures.

TVM carries no types, so the stub beside this file (`nodes.pyi`) tells type checkers what our code
reads of each node. Expressions of a graph and of a kernel are one class in TVM; here they have two
names, as a graph's expressions are tensors and a kernel's are scalars or vectors.
"""

from __future__ import annotations

from tvm.ir import Call, Expr, GlobalVar, IRModule, Op, Type, Var
from tvm.relax import Function, TensorType, Tuple, TupleGetItem, TupleType, VarBinding
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.te import Tensor
from tvm.tirx import IterVar, PrimFunc, Stmt

__all__ = [
    "Buffer",
    "Call",
    "Expr",
    "Function",
    "GlobalVar",
    "IRModule",
    "Index",
    "IterVar",
    "LoopRV",
    "Op",
    "PrimFunc",
    "SBlockRV",
    "Scalar",
    "Stmt",
    "Tensor",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "Var",
    "VarBinding",
]

Scalar = Expr
"""An expression of a kernel: a number, or a vector of numbers. Earlier versions of TVM have a class
of its own for it, `PrimExpr`."""
Index = Expr | int
"""A number in a kernel that may be known while the kernel is written."""
Buffer = Var
"""A buffer of a kernel: a parameter, or an allocation."""
