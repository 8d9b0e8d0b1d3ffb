"""Products of computed matrices as kernels compute them: bytes by bytes, or floats by floats.

    matmul(a - za, b - zb) -> batch_dense(u, b) - zb * sum(u) - za * sum(b - zb)

for bytes a [..., M, K] and b [..., K, N], where u is a as unsigned bytes, and zero points count
from what is multiplied (Jain et al. 2020, section IV-A, equation 4: here no term is known when a
package is built). Zero points of a may be computed, as dynamic quantization does; b may then be
constant weights, which make it a `dense`. Sums wrap at 32 bits, and so does what is added to them.

    matmul(a, b) -> float_batch_dense(a, b)

of floats, unless an integer is made of the result later, as a sum in another order could end on
another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import batch_matmul, integer, names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.zero_point import AT_ZERO
from stages.graph.bindings import bindings_of
from stages.graph.passes import Pass
from stages.kernels.byte_shift import SHIFT, as_unsigned
from stages.kernels.operand_storage import BYTE_LIMIT, SPAN_LIMIT
from stages.kernels.selection import weight_limit_of
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.quantizing.nhwc_layers import before_integers

BYTES = ("int8", "uint8")
LEAST = 8
"""Columns of a product, and terms of its sums, at least: kernels compute blocks of 32, by words."""
MOST_DEPTH = 1 << 14
"""Terms of a sum, at most, so that sums of bytes and what is added to them fit 32 bits."""


@dataclass(frozen=True)
class _Moved:
    """Bytes less a zero point: an old variable, and a number or an old scalar."""

    value: Any
    zero_point: Any
    moves: tuple[Any, ...]
    """Calls that move the difference about, the first one last."""


class FitMatrixProducts(Pass):
    """Gives products of computed matrices the form that micro-kernels take."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.calls = {binding.var: binding.value for binding in bindings_of(self.main)}
        self.exact = before_integers(self.main)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A product as a kernel computes it."""
        call, name = binding.value, str(binding.var.name)
        if not is_op(call, names.MATMUL) or not _fits(call):
            return None
        is_constant = call.args[1] in self.constants
        if dtype_of(call.ty) == "float32" and not is_constant and binding.var not in self.exact:
            left, right = map(self.read, call.args)
            data, weight = self._rows(left, right, name), self._columns(right, name)
            product = self.builder.emit(batch_matmul.float_batch_dense(data, weight), name)
            return self._whole(product, call, name)
        if dtype_of(call.ty) != "int32" or call.args[0] in self.constants:
            return None
        a = self._moved(call.args[0])
        if a is None:
            return None
        if is_constant:
            return self._by_weights(call, a, name)
        b = self._moved(call.args[1])
        return None if b is None else self._by_bytes(call, a, b, name)

    # -- operands ----------------------------------------------------------------------------

    def _moved(self, variable: Var) -> _Moved | None:
        """Bytes less a zero point that a variable is, moved about or not; None if it is none."""
        moves = []
        call: Any = self.calls.get(variable)
        while is_op(call, *names.REARRANGEMENTS) or _is_idle(call):
            if not _is_idle(call):
                moves.append(call)
            call = self.calls.get(call.args[0])
        zero_point: Any = 0
        if is_op(call, names.SUBTRACT):
            zero_point = call.args[1]
            if prod(shape_of(zero_point.ty)) != 1 or dtype_of(zero_point.ty) != "int32":
                return None
            if zero_point in self.constants:
                zero_point = int(self.constants[zero_point].item())
            call = self.calls.get(call.args[0])
        if not is_op(call, names.ASTYPE) or call.args[0] in self.constants:
            return None
        source = call.args[0]
        return _Moved(source, zero_point, tuple(moves)) if dtype_of(source.ty) in BYTES else None

    def _stored(self, moved: _Moved, name: str) -> Any:
        """Emit the bytes themselves, moved as their differences are."""
        value = self.read(moved.value)
        for call in reversed(moved.moves):
            value = self.builder.emit(Call(call.op, [value, *call.args[1:]], call.attrs), name)
        return value

    def _unsigned(self, moved: _Moved, name: str) -> tuple[Any, Any]:
        """Emit bytes as unsigned ones; their zero point, a number or a new scalar."""
        value, zero_point = self._stored(moved, name), moved.zero_point
        if not isinstance(zero_point, int):
            zero_point = self.builder.emit(
                relax.op.reshape(self.read(zero_point), ()), f"{name}.point"
            )
        if dtype_of(value.ty) == "uint8":
            return value, zero_point
        value = self.builder.emit(as_unsigned(value), f"{name}.rebased")
        return value, self._sum(zero_point, SHIFT, f"{name}.shifted")

    def _sum(self, value: Expr, number: int, name: str) -> Any:
        """A number, or a tensor, and another number."""
        if isinstance(value, int):
            return value + number
        other = self.builder.tensor(name, np.asarray(number, np.int32))
        return self.builder.emit(relax.op.add(value, other), f"{name}.sum") if number else value

    def _times(self, value: Expr, factor: Any, name: str) -> Any:
        """A tensor multiplied with what is to be taken off, a number or a scalar: its negative."""
        if isinstance(factor, int):
            factor = self.builder.tensor(f"{name}.factor", np.asarray(-factor, np.int32))
            return self.builder.emit(relax.op.multiply(value, factor), name)
        negative = self.builder.emit(relax.op.negative(factor), f"{name}.factor")
        return self.builder.emit(relax.op.multiply(value, negative), name)

    def _added_up(self, value: Expr, axis: int, name: str) -> Any:
        """Emit sums of integers along an axis, which stays: int32."""
        wide = self.builder.emit(relax.op.astype(value, "int32"), f"{name}.wide")
        return self.builder.emit(relax.op.sum(wide, [axis], keepdims=True), name)

    # -- products ----------------------------------------------------------------------------

    def _by_bytes(self, call: Call, a: _Moved, b: _Moved, name: str) -> Any | None:
        """The product of two computed matrices of bytes."""
        if not isinstance(b.zero_point, int):
            return None
        data, zero_point = self._unsigned(a, f"{name}.lhs")
        right = self._stored(b, f"{name}.rhs")
        base = AT_ZERO if dtype_of(right.ty) == "int8" else batch_matmul.BYTE_ZERO_POINT
        rows, weight = self._rows(data, right, name), self._columns(right, name)
        product = batch_matmul.batch_dense(
            rows, weight, data_zero_point=AT_ZERO, weight_zero_point=base
        )
        result = self.builder.emit(product, name)
        self.redefined.add(name)  # sums whose zero points are taken off behind it
        count = shape_of(weight.ty)[0]
        if b.zero_point != base.whole:
            sums = self._added_up(rows, -1, f"{name}.row_sums")
            sums = self._times(sums, b.zero_point - base.whole, f"{name}.row_offsets")
            result = self.builder.emit(relax.op.add(result, sums), f"{name}.rows_moved")
        if not isinstance(zero_point, int) or zero_point:
            depth, columns = shape_of(right.ty)[-2:]
            sums = self._added_up(right, -2, f"{name}.column_sums")
            sums = self._sum(sums, -depth * b.zero_point, f"{name}.columns")
            sums = self._times(sums, zero_point, f"{name}.column_offsets")
            view = relax.op.reshape(sums, (count, 1, 1, columns))
            sums = self.builder.emit(view, f"{name}.column_view")
            result = self.builder.emit(relax.op.add(result, sums), f"{name}.columns_moved")
        return self._whole(result, call, name)

    def _by_weights(self, call: Call, a: _Moved, name: str) -> Any | None:
        """The product of bytes whose zero point is computed with constant weights [K, N]."""
        weight = self.constants[call.args[1]]
        if isinstance(a.zero_point, int) or weight.ndim != 2 or np.abs(weight).max() > SPAN_LIMIT:
            return None
        data, zero_point = self._unsigned(a, f"{name}.lhs")
        depth = shape_of(data.ty)[-1]
        view = relax.op.reshape(data, (prod(shape_of(data.ty)) // depth, depth))
        rows = self.builder.emit(view, f"{name}.rows")
        signed = weight.astype(np.int8 if weight_limit_of(weight) <= BYTE_LIMIT else np.int16)
        stored = self.builder.tensor(f"{name}.weight", np.ascontiguousarray(signed.T))
        product = integer.dense(rows, stored, data_zero_point=AT_ZERO, weight_zero_point=AT_ZERO)
        result = self.builder.emit(product, name)
        self.redefined.add(name)
        sums = self.builder.tensor(f"{name}.sums", weight.sum(0, dtype=np.int32))
        offsets = self._times(sums, zero_point, f"{name}.offsets")
        result = self.builder.emit(relax.op.add(result, offsets), f"{name}.moved")
        return self._whole(result, call, name)

    def _rows(self, left: Var, right: Var, name: str) -> Any:
        """Emit a left operand [..., M, K] as images [N, 1, M, K] of rows, one of every matrix on
        the right."""
        count, depth = prod(shape_of(right.ty)[:-2]), shape_of(left.ty)[-1]
        rows = prod(shape_of(left.ty)) // (count * depth)
        view = relax.op.reshape(left, (count, 1, rows, depth))
        return self.builder.emit(view, f"{name}.rows")

    def _columns(self, right: Var, name: str) -> Any:
        """Emit a right operand [..., K, N] as weights [N, O, K]."""
        *outer, depth, columns = shape_of(right.ty)
        order = [*range(len(outer)), len(outer) + 1, len(outer)]
        transposed = self.builder.emit(relax.op.permute_dims(right, order), f"{name}.transposed")
        view = relax.op.reshape(transposed, (prod(outer), columns, depth))
        return self.builder.emit(view, f"{name}.columns")

    def _whole(self, result: Var, call: Call, name: str) -> Any:
        """Emit a result in its own shape."""
        return self.builder.emit(relax.op.reshape(result, shape_of(call.ty)), f"{name}.unrowed")


def _is_idle(call: Call) -> bool:
    """Whether an operator gives what it reads."""
    return is_op(call, names.ASTYPE) and dtype_of(call.args[0].ty) == dtype_of(call.ty)


def _fits(call: Call) -> bool:
    """Whether a product has matrices enough for all images of rows, and is large enough."""
    left, right = (shape_of(argument.ty) for argument in call.args)
    if len(left) < 2 or len(right) < 2:
        return False
    is_alike = prod(right[:-2]) == 1 or left[:-2] == right[:-2]
    return is_alike and right[-1] >= LEAST and LEAST <= right[-2] <= MOST_DEPTH
