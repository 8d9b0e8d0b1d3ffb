"""From a composite of tensor expressions (TE) to one PrimFunc, scheduled, over a slice of work.

Such a composite computes on tensors as the user sees them: no padding, no planes. Its kernel has
the interface of every kernel, `(reads…, writes…, scratch, task, n_tasks)`; task t of n takes the
iterations `[extent * t / n, extent * (t + 1) / n)` of the outermost loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from tvm import relax, s_tir, te, tirx

from hw.profile import Hardware
from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.elementwise import ELEMENTWISE, WHOLE, element
from stages.dialect.let_bindings import shared
from stages.dialect.relax_te import expression, scalar
from stages.graph.bindings import bindings_of, outputs_of
from stages.nodes import Call, Expr, Function, Index, PrimFunc, Scalar, Stmt, Tensor, Var
from stages.packaging.emitting.addressing import slice_of
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import DEVICE, is_vectorizable
from stages.packaging.standalone.te_loops import size_of
from stages.packaging.standalone.te_reductions import STACK_BYTES
from stages.packaging.standalone.te_schedule import scheduled

LANES = {"avx512": 32}
"""Values of the last axis worked on at once, by what the instruction set's name starts with."""
DECLARATIONS = (tirx.DeclBuffer, tirx.AllocBuffer)


def lower_te_kernel(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite of tensor expressions (TE)."""
    lanes = next((n for name, n in LANES.items() if hardware.isa.startswith(name)), 16)
    source = tensor_function(function)
    lowered, temporaries = _lowered(source, lanes, vectors=True)
    if not is_vectorizable(lowered, hardware):
        lowered, temporaries = _lowered(source, lanes, vectors=False)
    return _kernel(lowered, symbol, temporaries)


def _lowered(source: PrimFunc, lanes: int, *, vectors: bool) -> tuple[PrimFunc, tuple[int, ...]]:
    """Bare loops, with sums computed whole only where they are too large for the stack."""
    for whole in (False, True):
        loops = scheduled(source, lanes, whole=whole, vectors=vectors)
        placed = PLACING(tvm.IRModule({"main": loops}))["main"]
        placed, temporaries = _with_temporaries(placed)
        lowered = LOWERING(tvm.IRModule({"main": placed}))["main"]
        if whole or _largest(lowered.body) < STACK_BYTES:
            break
    return lowered, temporaries


def _largest(statement: Stmt) -> int:
    """Bytes of the largest buffer that a lowered body allocates."""
    if isinstance(statement, tirx.AllocBuffer):
        return size_of(statement.buffer)
    parts = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    parts += list(getattr(statement, "seq", ()))
    return max((_largest(part) for part in parts if part is not None), default=0)


def tensor_function(function: Function) -> PrimFunc:
    """The composite as a TIR function of its parameters and its outputs, in order."""
    values: dict[Var, Value] = {}
    for parameter in function.params:
        dtype = str(storage_dtype(dtype_of(parameter.ty)))
        values[parameter] = te.placeholder(shape_of(parameter.ty), dtype, name=str(parameter.name))
    taken = [values[parameter] for parameter in function.params]
    for binding in bindings_of(function):
        values[binding.var] = _value(binding.value, values)
    distinct: list[Tensor] = []
    for output in outputs_of(function):
        result = _tensors(values[output])
        assert isinstance(result, Tensor), f"{output.name} is several tensors"
        is_taken = any(result.same_as(other) for other in (*taken, *distinct))
        # A function cannot return what it was given, nor one tensor twice: copy it.
        distinct.append(te.compute(result.shape, result, name="copied") if is_taken else result)
    return te.create_prim_func([*taken, *distinct])


Tensors: TypeAlias = "Tensor | Sequence[Tensors]"
Value: TypeAlias = "Tensor | _Pointwise | Sequence[Value]"
"""A tensor, an operator that may yet become a part of a longer one, or several values."""


@dataclass(frozen=True)
class _Pointwise:
    """An elementwise operator that is not a tensor yet: it may become a part of a longer one.

    Values that are used twice are named around the whole of it, since TIR's passes visit the
    operands of some calls twice and then take a name inside them for a second one.
    """

    call: Call
    operands: tuple[Value, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the result."""
        return shape_of(self.call.ty)

    def at(self, index: Sequence[Index]) -> Scalar:
        """The value at a position."""
        whole = WHOLE.get(str(self.call.op.name), ())
        read = [
            _tensor(o) if i in whole else _element(o, index) for i, o in enumerate(self.operands)
        ]
        return scalar(self.call, read)


def _element(operand: Value, index: Sequence[Index]) -> Scalar:
    if not isinstance(operand, _Pointwise):
        return element(_tensor(operand), index)
    own = index[len(index) - len(operand.shape) :]
    pairs = zip(operand.shape, own, strict=True)
    return operand.at([0 if extent == 1 else i for extent, i in pairs])


def _tensor(value: Value) -> Tensor:
    """A value that is one tensor, computed or handed in."""
    assert isinstance(value, Tensor), "what is read whole is stored"
    return value


def _tensors(value: Value) -> Tensors:
    """A value as a tensor, or as several."""
    if isinstance(value, Sequence):
        return [_tensors(field) for field in value]
    if not isinstance(value, _Pointwise):
        return value
    name = str(value.call.op.name).rsplit(".", 1)[-1]
    return te.compute(value.shape, lambda *i: shared(value.at(i), in_indices=False), name=name)


def _value(expr: Expr, values: Mapping[Var, Value]) -> Value:
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, relax.TupleGetItem):
        fields = _value(expr.tuple_value, values)
        assert isinstance(fields, Sequence), expr
        return fields[expr.index]
    if isinstance(expr, relax.Tuple):
        return [_value(field, values) for field in expr.fields]
    assert isinstance(expr, Call), expr
    operands = [_value(argument, values) for argument in expr.args if _is_tensor(argument)]
    if str(expr.op.name) in ELEMENTWISE:
        whole = WHOLE.get(str(expr.op.name), ())
        return _Pointwise(
            expr, tuple(_tensors(o) if i in whole else o for i, o in enumerate(operands))
        )
    return expression(expr, [_tensors(operand) for operand in operands])


def _is_tensor(argument: Expr) -> bool:
    if isinstance(argument, relax.Tuple):
        return all(_is_tensor(field) for field in argument.fields)
    return isinstance(argument.ty, relax.TensorType)


_S = s_tir.transform
PLACING = tvm.ir.transform.Sequential(
    [_S.CanonicalizeLoop(), _S.LowerInitBlock(), _S.PlanAndUpdateBufferAllocationLocation()]
)
"""Every temporary is allocated as far inside as it is used."""
LOWERING = tvm.ir.transform.Sequential(
    [
        _S.ConvertBlocksToOpaque(),
        _S.CompactBufferAllocation(),
        _S.LowerMatchBuffer(),
        _S.StmtSimplify(),
        _S.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
    ]
)
"""From blocks with axes to bare loops over flat buffers."""


def _with_temporaries(function: PrimFunc) -> tuple[PrimFunc, tuple[int, ...]]:
    """What is computed whole becomes a parameter behind the others; also its size in bytes."""
    root: Any = function.body
    block = root.block
    large = list(block.alloc_buffers)
    if not large:
        return function, ()
    inner = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        [],
        block.match_buffers,
        block.annotations,
    )
    body = s_tir.SBlockRealize(root.iter_values, root.predicate, inner)
    params = [*function.params, *large]
    changed = tirx.PrimFunc(params, body, function.ret_type, attrs=function.attrs)
    return changed, tuple(size_of(buffer) for buffer in large)


def _kernel(function: PrimFunc, symbol: str, temporaries: tuple[int, ...]) -> Kernel:
    """The function with the interface of a kernel, over a slice of its outermost loop."""
    task, tasks = tirx.Var("task", "int32"), tirx.Var("n_tasks", "int32")
    scratch = tirx.decl_buffer((1,), "int32", "scratch")
    body, items = _sliced(function.body, task, tasks)
    for key, value in DEVICE.items():
        body = tirx.AttrStmt(task, key, tirx.const(value, "int32"), body)
    params = [*function.params, scratch, task, tasks]
    kernel = tirx.PrimFunc(params, body).with_attr("global_symbol", symbol)
    return Kernel(kernel, 0, 1 if temporaries else items, temporaries)


def _sliced(body: Stmt, task: Scalar, tasks: Scalar) -> tuple[Stmt, int]:
    """A body whose only loop at the top runs over one task's part, and how many parts it has."""
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    loops = [i for i, statement in enumerate(statements) if isinstance(statement, tirx.For)]
    rest = [s for i, s in enumerate(statements) if i not in loops]
    if len(loops) != 1 or not all(isinstance(s, DECLARATIONS) for s in rest):
        return body, 1
    loop: Any = statements[loops[0]]
    extent = int(loop.extent)
    if int(loop.kind) != tirx.ForKind.SERIAL or extent < 2:
        return body, 1
    kind = str(loop.loop_var.ty.dtype)
    begin, end = (place.astype(kind) for place in slice_of(extent, task, tasks))
    statements[loops[0]] = tirx.For(loop.loop_var, begin, end - begin, loop.kind, loop.body)
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0], extent
