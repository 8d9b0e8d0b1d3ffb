"""Relax operators as tensor expressions: the compiled reading of `stages.dialect.relax_numpy`.

Where topi rounds otherwise than the NumPy meaning, or lets LLVM fuse a product with a sum, the
expression is our own: sums of floats are taken in float64 and rounded once, products are fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx, topi

from stages.dialect import names
from stages.dialect.calls import BYTES, attributes, dtype_of, shape_of, storage_dtype
from stages.dialect.dtypes import limits, parse
from stages.dialect.elementwise import ARITHMETIC, element
from stages.dialect.movement_te import REARRANGED, Expression, ints_of
from stages.dialect.numbers_fused import UNSATURATED_TIR, WHOLE_TIR
from stages.dialect.numbers_tir import TIR, fence
from stages.dialect.operators import OPERATORS
from stages.dialect.processor import clips_integers
from stages.dialect.reductions_te import REDUCTIONS
from stages.nodes import Buffer, Call, Scalar, Tensor

Operand = Scalar | Tensor | Buffer
"""A number at a position, or a tensor that an operator reads whole."""


def expression(call: Call, tensors: Sequence[Any]) -> Any:
    """The tensor expression of an operator call on TE tensors; NotImplementedError without one.

    A tuple argument is a list of tensors, and an operator that gives a tuple gives a list.
    """
    name = str(call.op.name)
    operator = OPERATORS.get(name)
    if operator is not None:
        if operator.legalize is None:
            raise NotImplementedError(f"{name} has no tensor expression")
        attrs = attributes(call)
        if "dtype" in attrs:
            attrs["dtype"] = str(storage_dtype(attrs["dtype"]))
        return operator.legalize(*tensors, **attrs)
    if name in SCALARS:
        return _each(call, tensors)
    if name not in EXPRESSIONS:
        raise NotImplementedError(f"{name} has no tensor expression")
    return EXPRESSIONS[name](call, *tensors)


def scalar(call: Call, operands: Sequence[Operand]) -> Scalar:
    """An elementwise operator at one position; operands that it reads whole are tensors."""
    name = str(call.op.name)
    dtype = str(storage_dtype(dtype_of(call.ty)))
    if saturates(call) and clips_integers():
        low, high = limits(dtype)
        return tirx.max(tirx.min(unsaturated(call, operands), high), low).astype(dtype)
    if name in ARITHMETIC:
        return ARITHMETIC[name](TIR, *operands, **attributes(call)).astype(dtype)
    return SCALARS[name](call, *operands)


def clipped(call: Call, operands: Sequence[Operand]) -> Scalar | None:
    """What `scalar` narrows to bytes, as int32 or float32; None for other operators."""
    name = str(call.op.name)
    attrs = attributes(call) if name in ARITHMETIC else {}
    if not {"low", "high"} <= set(attrs):
        return None
    value = ARITHMETIC[name](WHOLE_TIR, *operands, **attrs)
    is_wider = TIR.dtype(value) in ("int32", "float32") and dtype_of(call.ty) in ("int8", "uint8")
    return value if is_wider else None


def saturates(call: Call) -> bool:
    """Whether an operator's value is an integer of 31 bits saturated to its type, a byte."""
    attrs = attributes(call) if str(call.op.name) in ARITHMETIC else {}
    dtype = dtype_of(call.ty)
    return bool(
        attrs.get("fits") and dtype in BYTES and (attrs["low"], attrs["high"]) == limits(dtype)
    )


def unsaturated(call: Call, operands: Sequence[Operand]) -> Scalar:
    """The int32 that saturating makes what `scalar` gives, for an operator that `saturates`."""
    return ARITHMETIC[str(call.op.name)](UNSATURATED_TIR, *operands, **attributes(call))


def _each(call: Call, tensors: Sequence[Tensor]) -> Tensor:
    """An elementwise operator of Relax over operands that broadcast."""
    return te.compute(
        shape_of(call.ty),
        lambda *index: scalar(call, [element(tensor, index) for tensor in tensors]),
        name=str(call.op.name).rsplit(".", 1)[-1],
    )


def _multiply(left: Scalar, right: Scalar) -> Scalar:
    product = left * right
    return fence(product) if parse(TIR.dtype(product)).is_float else product


def _wide(x: Scalar) -> Scalar:
    return x.astype("float64")


def _conv2d(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """Float NCHW, OIHW; float64 sums."""
    attrs = call.attrs
    padded = _padded(x, ints_of(attrs.padding), 0.0)
    (sh, sw), (dh, dw) = ints_of(attrs.strides), ints_of(attrs.dilation)
    o, depth, kh, kw = shape_of(weight)
    share = o // int(attrs.groups)
    k, ry, rx = (te.reduce_axis((0, extent)) for extent in (depth, kh, kw))

    def at(n: Scalar, c: Scalar, y: Scalar, z: Scalar) -> Scalar:
        value = padded[n, (c // share) * depth + k, y * sh + ry * dh, z * sw + rx * dw]
        return te.sum(_wide(value) * _wide(weight[c, k, ry, rx]), axis=[k, ry, rx])

    sums = te.compute(shape_of(call.ty), at, name="conv2d")
    return te.compute(shape_of(call.ty), lambda *i: sums[i].astype("float32"), name="rounded")


def _padded(x: Tensor, padding: Sequence[int], value: float) -> Tensor:
    top, left, bottom, right = padding
    if not any(padding):
        return x
    return topi.nn.pad(x, [0, 0, top, left], [0, 0, bottom, right], tirx.const(value, x.dtype))


def _windows(
    call: Call, x: Tensor, reduce: Expression, value: float, wide: Expression
) -> tuple[Tensor, Sequence[int]]:
    attrs = call.attrs
    (kh, kw), (sh, sw) = ints_of(attrs.pool_size), ints_of(attrs.strides)
    padded = _padded(x, ints_of(attrs.padding), value)
    ry, rx = te.reduce_axis((0, kh)), te.reduce_axis((0, kw))
    found = te.compute(
        shape_of(call.ty),
        lambda n, c, y, z: reduce(wide(padded[n, c, y * sh + ry, z * sw + rx]), axis=[ry, rx]),
        name="pool",
    )
    return found, (kh, kw)


def _max_pool2d(call: Call, x: Tensor) -> Tensor:
    lowest = float(tirx.min_value(x.dtype).value)
    return _windows(call, x, te.max, lowest, lambda value: value)[0]


def _avg_pool2d(call: Call, x: Tensor) -> Tensor:
    attrs = call.attrs
    sums, (kh, kw) = _windows(call, x, te.sum, 0.0, _wide)
    top, left, _, _ = ints_of(attrs.padding)
    (sh, sw), (h, w) = ints_of(attrs.strides), shape_of(x)[2:]

    def covered(position: Scalar, stride: int, before: int, kernel: int, size: int) -> Scalar:
        first = position * stride - before
        return tirx.min(first + kernel, size) - tirx.max(first, 0)

    def at(n: Scalar, c: Scalar, y: Scalar, z: Scalar) -> Scalar:
        inside = covered(y, sh, top, kh, h) * covered(z, sw, left, kw, w)
        count = tirx.const(kh * kw, "int32") if bool(attrs.count_include_pad) else inside
        return sums[n, c, y, z].astype("float32") / count.astype("float32")

    return te.compute(shape_of(call.ty), at, name="average")


def _matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    shape, dtype = shape_of(call.ty), dtype_of(call.ty)
    is_float = parse(dtype).is_float
    k = te.reduce_axis((0, shape_of(a)[-1]))
    # A vector has no row or column that the result keeps.
    columns = len(shape) - (len(shape_of(b)) > 1)
    rows = columns - (len(shape_of(a)) > 1)

    def at(*index: Scalar) -> Scalar:
        left = element(a, (*index[:columns], k))
        right = element(b, (*index[:rows], k, *index[columns:]))
        kind = "float64" if is_float else dtype
        return te.sum(left.astype(kind) * right.astype(kind), axis=k)

    sums = te.compute(shape, at, name="matmul")
    return te.compute(shape, lambda *i: sums[i].astype(dtype), name="rounded") if is_float else sums


def _clip(call: Call, x: Scalar) -> Scalar:
    dtype = TIR.dtype(x)
    bounds = [float(bound.value) for bound in call.args[1:]]
    low, high = (tirx.const(b if parse(dtype).is_float else int(b), dtype) for b in bounds)
    return tirx.min(tirx.max(x, low), high)


def _zero(x: Scalar) -> Scalar:
    return tirx.const(0, TIR.dtype(x))


def _differ(a: Scalar, b: Scalar) -> Scalar:
    """Whether two values are not equal; LLVM's code generator takes bits it compares for floats."""
    if TIR.dtype(a) != "bool":
        return tirx.Not(a.equal(b))
    return tirx.Or(tirx.And(a, tirx.Not(b)), tirx.And(tirx.Not(a), b))


def _sign(x: Scalar) -> Scalar:
    one = tirx.const(1, TIR.dtype(x))
    return tirx.Select(x > _zero(x), one, tirx.Select(x < _zero(x), -one, _zero(x)))


def _one(x: Scalar) -> Scalar:
    return tirx.const(1, TIR.dtype(x))


SCALARS: Mapping[str, Callable[..., Any]] = {
    names.ADD: lambda _call, a, b: a + b,
    names.SUBTRACT: lambda _call, a, b: a - b,
    names.MULTIPLY: lambda _call, a, b: _multiply(a, b),
    names.DIVIDE: lambda _call, a, b: TIR.quotient(a, b),
    names.MAXIMUM: lambda _call, a, b: tirx.max(a, b),
    names.MINIMUM: lambda _call, a, b: tirx.min(a, b),
    names.RELU: lambda _call, a: tirx.max(a, _zero(a)),
    names.SIGN: lambda _call, a: _sign(a),
    names.SQRT: lambda _call, a: tirx.sqrt(a),
    names.RSQRT: lambda _call, a: _one(a) / tirx.sqrt(a),
    names.ABS: lambda _call, a: tirx.abs(a),
    names.NEGATIVE: lambda _call, a: -a,
    names.FLOOR: lambda _call, a: tirx.floor(a),
    names.CEIL: lambda _call, a: tirx.ceil(a),
    names.ROUND: lambda _call, a: tirx.nearbyint(a),
    names.SQUARE: lambda _call, a: _multiply(a, a),
    names.WHERE: lambda _call, a, b, c: tirx.Select(a, b, c),
    names.LESS: lambda _call, a, b: a < b,
    names.LESS_EQUAL: lambda _call, a, b: a <= b,
    names.GREATER: lambda _call, a, b: a > b,
    names.GREATER_EQUAL: lambda _call, a, b: a >= b,
    names.EQUAL: lambda _call, a, b: tirx.Not(_differ(a, b)),
    names.NOT_EQUAL: lambda _call, a, b: _differ(a, b),
    names.LOGICAL_AND: lambda _call, a, b: tirx.And(a, b),
    names.LOGICAL_OR: lambda _call, a, b: tirx.Or(a, b),
    names.LOGICAL_XOR: lambda _call, a, b: _differ(a, b),
    names.LOGICAL_NOT: lambda _call, a: tirx.Not(a),
    names.ASTYPE: lambda call, a: a.astype(str(storage_dtype(dtype_of(call.ty)))),
    names.CLIP: _clip,
}
"""Full name of an elementwise operator → its arithmetic at one position, after the call."""

EXPRESSIONS: Mapping[str, Expression] = {
    names.MATMUL: _matmul,
    names.CONV2D: _conv2d,
    names.MAX_POOL2D: _max_pool2d,
    names.AVG_POOL2D: _avg_pool2d,
    **REDUCTIONS,
    **REARRANGED,
}
"""Full operator name → tensor expression; attributes are read from the call."""
