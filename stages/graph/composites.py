"""Kinds of composite, and what decides them.

A TE composite computes on tensors as the user sees them and is compiled from the tensor
expressions of its operators. Composites of products have a synthesized micro-kernel inside; in a
model that comes with integer operators they still write tensors as the user sees them, and are
called `products`.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeGuard

from stages.dialect import batch_matmul
from stages.dialect.calls import (
    attributes,
    dtype_of,
    is_op,
    operand_levels,
    shape_of,
    storage_dtype,
)
from stages.dialect.levels import Levels
from stages.dialect.zero_point import AT_ZERO
from stages.graph.bindings import bindings_of, outputs_of
from stages.kernels.operand_storage import BYTE_LIMIT, SPAN_LIMIT, WORD_BYTES
from stages.kernels.packed_depthwise import MAX_TAPS
from stages.kernels.packing import round_up
from stages.kernels.selection import weight_limit_of
from stages.kernels.widened_windows import widened
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Function

PLAIN = "plain"
"""The attribute `composite` of a TE composite's function, compiled from tensor expressions."""
PRODUCTS = "products"
"""That of a function whose sums a micro-kernel of 8-bit products computes."""
DEPTHWISE = "depthwise"
"""That of a function around a depthwise convolution whose taps lie side by side."""
PICTURES = "pictures"
"""That of a function that writes pictures of few channels, a word for every pixel."""
TILES = "tiles"
"""That of a function that transforms pictures for Winograd's products."""
MATRICES = "matrices"
"""That of a function that packs weights which are computed."""
FLOAT_SOURCES = ("qonnx", "simulated")
"""Numerics whose models are float graphs, quantized by the stage that carries the name."""

MAX_PLANES = 3
"""Kernels of stored bits exist for up to three of each operand."""
LINEAR = ("relax.qnn.conv2d", "relax.qnn.dense")
"""Convolutions and matrix products of levels or bytes, whatever computes them."""
ON_BITS = tuple(f"relax.qnn.{a}_{n}" for a in ("bitserial", "lookup") for n in ("conv2d", "dense"))
"""Products that legalizing has given to kernels of stored bits."""

ON_FLOATS = ("relax.qnn.float_conv2d", "relax.qnn.float_dense", batch_matmul.FLOAT_BATCH_DENSE)
"""Products of floats for micro-kernels."""

POOLS = {"relax.qnn.max_pool2d": "max", "relax.qnn.sum_pool2d": "sum"}
"""Operators that pool integers, and what they make of a window."""
MOVED = ("relax.permute_dims", "relax.reshape")
"""Operators that only say where values are."""
RESHAPES = frozenset(f"relax.{name}" for name in ("reshape", "squeeze", "expand_dims", "flatten"))


LEAST_CHANNELS, MOST_TAPS = 8, 64
"""Of a maximum pool: bytes that are compared at once, at least, and positions of a window, at most,
which are instructions in a row."""


def calls_in(function: Function) -> list[Any]:
    """The operators of a composite, in order."""
    return [b.value for b in bindings_of(function) if isinstance(b.value, Call)]


def max_pool_of(function: Function) -> Any:
    """The maximum pool of bytes that a composite is, inside a halo or not, from inside one or not;
    else None."""
    calls = {str(call.op.name).removeprefix("relax.qnn."): call for call in calls_in(function)}
    pool = calls.get("max_pool2d")
    if pool is None or not calls.keys() <= {"from_bytes", "max_pool2d", "to_bytes"}:
        return None
    is_alone = len(calls_in(function)) == len(calls) and len(outputs_of(function)) == 1
    is_bytes = storage_dtype(dtype_of(pool.ty)).itemsize == 1
    is_small = prod(attributes(pool)["kernel"]) <= MOST_TAPS
    is_even = shape_of(pool.ty)[3] % LEAST_CHANNELS == 0
    return pool if is_alone and is_bytes and is_small and is_even else None


def pad_of(function: Function) -> Any:
    """The padding with a constant that a TE composite is, whatever type it gives; else None."""
    calls = calls_in(function)
    if str(function.attrs["composite"]) != PLAIN or not is_op(calls[0], "relax.nn.pad"):
        return None
    is_constant = str(calls[0].attrs.pad_mode) == "constant"
    is_alone = len(outputs_of(function)) == 1 and (
        len(calls) == 1 or (len(calls) == 2 and is_op(calls[1], "relax.astype"))
    )
    return calls[0] if is_constant and is_alone else None


def is_linear(expr: object) -> TypeGuard[Call]:
    """Whether an expression is a convolution or matrix product of levels or bytes."""
    return any(is_op(expr, name) for name in LINEAR)


def is_prequantized(model: Model) -> bool:
    """Whether a model's operators are integer ones from the start."""
    numerics = model.module["main"].attrs.get("numerics")
    return numerics is not None and str(numerics) not in FLOAT_SOURCES


def is_reshape(expr: Expr) -> bool:
    """Whether an expression names the memory of another tensor anew."""
    return isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in RESHAPES


def is_of_levels(function: Function) -> bool:
    """Whether a composite is one of levels, not of bytes with their own arithmetic or floats."""
    return str(function.attrs["composite"]) not in (PLAIN, PRODUCTS)


def takes_depthwise(call: Call, weight: Array | None) -> bool:
    """Whether a convolution of levels, whose weights [C, KH, KW, 1] are numerators or have them, is
    one of every channel on its own that a kernel with taps side by side computes.

    What surrounds the picture must have a level.
    """
    if weight is None or not is_op(call, "relax.qnn.conv2d"):
        return False
    attrs, groups = attributes(call), attributes(call).get("groups", 1)
    is_own = groups == weight.shape[0] > 1 and weight.shape[3] == 1
    point = attrs["data_zero_point"]
    is_level = Levels.of_type("uint8", point).has_zero and attrs.get("pad_value", 0) == 0
    is_small = weight.shape[1] * weight.shape[2] <= MAX_TAPS
    return is_own and is_level and is_small and fits_bytes(call, weight)


def has_own(call: Call) -> bool:
    """Whether every output channel of a convolution has a single channel of the input."""
    return attributes(call).get("groups", 1) > 1 and shape_of(call.args[1].ty)[-1] == 1


def takes_products(call: Call, weight: Array | None) -> bool:
    """Whether a micro-kernel of products of bytes can compute a convolution or matrix product.

    `weight` is its constant weights, whose numerators must be differences of two bytes. Where these
    are no bytes, its windows are widened, and must not be too large for that.
    """
    if weight is None or not _has_form(call):
        return False
    limit = _weight_limit(call, weight)
    if limit <= BYTE_LIMIT:
        return True
    pixel = round_up(weight.shape[-1], WORD_BYTES)
    windows = widened(1, weight.shape[1:-1] or (1, 1), 1, pixel)
    return limit <= SPAN_LIMIT and windows.stays_near


def fits_bytes(call: Call, weight: Array) -> bool:
    """Whether the numerators of constant weights are signed bytes."""
    return _weight_limit(call, weight) <= BYTE_LIMIT


def _weight_limit(call: Call, weight: Array) -> int:
    """`weight_limit_of` the numerators of a product's constant weights."""
    return weight_limit_of(attributes(call)["weight_zero_point"].numerators(weight))


def bits_obstacle(data: Levels, stored: Levels, groups: int) -> str | None:
    """Why a product of levels and stored weights cannot be computed on their bits, or None."""
    if max(data.bits, stored.bits) > MAX_PLANES:
        return f"it has more than {MAX_PLANES} bits"
    if groups != 1:
        return "it is a grouped convolution"
    point = stored.zero_point
    if point and (stored.is_signed or not stored.is_balanced):
        return (
            f"its weights have the zero point {point.number}, neither 0 nor the middle of the range"
        )
    return None


def takes_bits(call: Call, weight: Array | None) -> bool:
    """Whether a kernel of stored bits can compute a product; `takes_products` accepts it too."""
    if weight is None or not _has_form(call):
        return False
    data, stored = operand_levels(call)
    is_one = shape_of(call.ty)[0] == 1  # planes are of one picture
    groups = attributes(call).get("groups", 1)
    return is_one and not data.is_signed and not bits_obstacle(data, stored, groups)


def is_float_product(call: Expr | None) -> bool:
    """Whether an expression is a product of floats for a micro-kernel."""
    return str(getattr(getattr(call, "op", None), "name", "")) in ON_FLOATS


def is_batched(call: Expr | None) -> bool:
    """Whether an expression is a product for a micro-kernel whose weights are computed: of unsigned
    bytes, and of signed ones or what they are from 128 on."""
    if is_op(call, batch_matmul.FLOAT_BATCH_DENSE):
        return True
    if not is_op(call, batch_matmul.BATCH_DENSE):
        return False
    data, weight = (dtype_of(argument.ty) for argument in call.args)
    attrs = attributes(call)
    points = attrs["data_zero_point"], attrs["weight_zero_point"]
    stored = {"int8": AT_ZERO, "uint8": batch_matmul.BYTE_POINT}
    return data == "uint8" and weight in stored and points == (AT_ZERO, stored[weight])


def is_product(call: Expr) -> bool:
    """Whether legalizing has left a product for a micro-kernel."""
    if is_float_product(call) or is_batched(call):
        return True
    if str(getattr(getattr(call, "op", None), "name", "")) in ON_BITS:
        return True
    if not _has_form(call) or attributes(call)["weight_zero_point"]:
        return False
    data, weight = (dtype_of(argument.ty) for argument in call.args)
    return data.startswith("uint") and weight in ("int8", "int16")


def _has_form(call: Expr) -> TypeGuard[Call]:
    """No dilation, no channels on their own; activations of at most 8 bits.

    Those of int8 have a whole zero point, so that moving them by 128 keeps it one.
    """
    if not is_linear(call):
        return False
    attrs, data = attributes(call), dtype_of(call.args[0].ty)
    is_simple = not has_own(call) and list(attrs.get("dilation", [1, 1])) == [1, 1]
    if not is_simple or attrs.get("dtype", "int32") != "int32":
        return False
    if data == "int8":
        return bool(attrs["data_zero_point"].is_whole)
    return data.startswith("uint") and int(data[4:]) <= 8
