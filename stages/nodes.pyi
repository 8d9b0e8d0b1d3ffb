"""What our code reads of the nodes of Relax and TIR; see nodes.py.

Attributes that hold a node of one kind say so. `Any` stands where TVM itself gives several kinds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

class Node:
    """Whatever TVM's C++ owns; compared by identity, and hashable."""

    span: Any

    def same_as(self, other: object) -> bool: ...

class Type(Node):
    """The type of an expression in a graph."""

class TensorType(Type):
    """A tensor of a graph; shapes in stages are always known."""

    shape: Any
    dtype: Any
    ndim: int

class TupleType(Type):
    """The type of several expressions as one."""

    fields: Sequence[Any]

class Op(Node):
    """A registered operator."""

    name: str

    @staticmethod
    def get(name: str) -> Op: ...
    @staticmethod
    def list_op_names() -> Sequence[str]: ...
    def get_attr(self, name: str) -> Any: ...
    def reset_attr(self, name: str) -> None: ...
    def set_num_inputs(self, count: int) -> None: ...
    def add_argument(self, name: str, kind: str, description: str) -> None: ...

class Expr(Node):
    """An expression of a graph: a tensor, a tuple of them, a function's name."""

    ty: Any

class Var(Expr):
    """A variable of a graph: an input, a tensor, what a binding binds."""

    name: str
    name_hint: str

class GlobalVar(Expr):
    """The name of a function in a module."""

    name_hint: str

class Call(Expr):
    """An operator, or a function of the module, with its operands."""

    op: Any
    args: Sequence[Any]
    attrs: Any
    ty_args: Sequence[Any]

    def __init__(
        self,
        op: Any,
        args: Sequence[Any],
        attrs: Any = ...,
        ty_args: Sequence[Any] = ...,
        *,
        ret_ty: Any = ...,
        ty: Any = ...,
    ) -> None: ...

class Tuple(Expr):
    """Several expressions as one."""

    fields: Sequence[Any]

    def __init__(self, fields: Sequence[Any]) -> None: ...

class TupleGetItem(Expr):
    """One expression of a tuple."""

    tuple_value: Any
    index: int

    def __init__(self, tuple_value: Expr, index: int) -> None: ...

class VarBinding(Node):
    """A variable and the expression that it stands for."""

    var: Var
    value: Any

class Function(Expr):
    """A function of a graph: `main`, or a composite."""

    params: Sequence[Var]
    body: Any
    ret_ty: Any
    attrs: Mapping[str, Any]

class IRModule(Node):
    """Functions by name."""

    functions: Mapping[GlobalVar, Any]

    def __getitem__(self, name: str | GlobalVar) -> Any: ...
    def __contains__(self, name: str | GlobalVar) -> bool: ...

class Scalar(Node):
    """An expression of a kernel: a number, or a vector of them."""

    dtype: Any
    ty: Any

    def astype(self, dtype: str) -> Scalar: ...
    def __add__(self, other: Index | float) -> Scalar: ...
    def __radd__(self, other: Index | float) -> Scalar: ...
    def __sub__(self, other: Index | float) -> Scalar: ...
    def __rsub__(self, other: Index | float) -> Scalar: ...
    def __mul__(self, other: Index | float) -> Scalar: ...
    def __rmul__(self, other: Index | float) -> Scalar: ...
    def __truediv__(self, other: Index | float) -> Scalar: ...
    def __floordiv__(self, other: Index) -> Scalar: ...
    def __rfloordiv__(self, other: Index) -> Scalar: ...
    def __mod__(self, other: Index) -> Scalar: ...
    def __rmod__(self, other: Index) -> Scalar: ...
    def __neg__(self) -> Scalar: ...
    def __and__(self, other: Index) -> Scalar: ...
    def __rand__(self, other: Index) -> Scalar: ...
    def __or__(self, other: Index) -> Scalar: ...
    def __ror__(self, other: Index) -> Scalar: ...
    def __xor__(self, other: Index) -> Scalar: ...
    def __rxor__(self, other: Index) -> Scalar: ...
    def __invert__(self) -> Scalar: ...
    def __lshift__(self, other: Index) -> Scalar: ...
    def __rlshift__(self, other: Index) -> Scalar: ...
    def __rshift__(self, other: Index) -> Scalar: ...
    def __lt__(self, other: Index | float) -> Scalar: ...
    def __le__(self, other: Index | float) -> Scalar: ...
    def __gt__(self, other: Index | float) -> Scalar: ...
    def __ge__(self, other: Index | float) -> Scalar: ...
    def __eq__(self, other: object) -> Scalar: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Scalar: ...  # type: ignore[override]
    def __hash__(self) -> int: ...
    def equal(self, other: Index) -> Scalar: ...

Index = Scalar | int

class Buffer(Node):
    """A buffer of a kernel: a parameter, or an allocation."""

    name: str
    data: Any
    dtype: Any
    shape: Sequence[Any]
    strides: Sequence[Any]
    elem_offset: Any

    def __getitem__(self, at: Any) -> Scalar: ...
    def __setitem__(self, at: Any, value: Any) -> None: ...
    def access_ptr(self, access_mask: int | str, *args: Any, **kwargs: Any) -> Scalar: ...
    def vload(self, begin: Any, dtype: str | None = ...) -> Scalar: ...
    def vstore(self, begin: Any, value: Any) -> Stmt: ...

class Stmt(Node):
    """A statement of a kernel."""

class PrimFunc(Node):
    """A kernel."""

    params: Sequence[Any]
    body: Stmt
    ret_type: Any
    attrs: Mapping[str, Any]
    buffer_map: Mapping[Any, Buffer]

    def script(self) -> str: ...
    def with_attr(self, name: str | Mapping[str, Any], value: Any = ...) -> PrimFunc: ...

class SBlockRV(Node):
    """A block of a function that is being scheduled."""

class LoopRV(Node):
    """A loop of a function that is being scheduled."""

class IterVar(Node):
    """An axis of a tensor that TE computes."""

    var: Scalar
    dom: Any

class Tensor(Node):
    """A tensor that TE computes."""

    name: str
    shape: Sequence[Any]
    dtype: Any
    op: Any

    def __call__(self, *at: Any) -> Scalar: ...
    def __getitem__(self, at: Any) -> Scalar: ...
    def astype(self, dtype: str) -> Tensor: ...
