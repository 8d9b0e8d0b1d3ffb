"""Kinds of composite, and what decides them.

A plain composite computes on tensors as the user sees them and is compiled from the tensor
expressions of its operators. Composites of products have a synthesized micro-kernel inside; in a
model that comes with integer operators they still write tensors as the user sees them, and are
called `products`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.ir import Call

from stages.qnn.registry import attributes, dtype_of, shape_of

PLAIN = "plain"
"""The attribute `composite` of a plain composite's function."""
PRODUCTS = "products"
"""That of a function whose sums a micro-kernel of 8-bit products computes."""
FLOAT_SOURCES = ("qonnx", "simulated")
"""Numerics whose models are float graphs, quantized by the stage that carries the name."""

RESHAPES = frozenset(f"relax.{name}" for name in ("reshape", "squeeze", "expand_dims", "flatten"))


def is_plain(model: Any) -> bool:
    """Whether a model's operators are integer ones from the start."""
    numerics = model.module["main"].attrs.get("numerics")
    return numerics is not None and str(numerics) not in FLOAT_SOURCES


def is_reshape(expr: Any) -> bool:
    """Whether an expression names the memory of another tensor anew."""
    return isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in RESHAPES


def takes_products(call: Any, weight: np.ndarray[Any, Any] | None) -> bool:
    """Whether a micro-kernel of u8 x s8 products can compute a convolution or matrix product.

    `weight` is its constant weights, which must fit int8 without their zero point.
    """
    if weight is None or not _has_form(call):
        return False
    levels = weight.astype(np.int32) - attributes(call)["weight_zero_point_x2"] // 2
    return levels.min() >= -128 and levels.max() <= 127


def is_product(call: Any) -> bool:
    """Whether legalizing has left a product for a micro-kernel."""
    if not _has_form(call) or attributes(call)["weight_zero_point_x2"]:
        return False
    return [dtype_of(argument.ty) for argument in call.args] == ["uint8", "int8"]


def _has_form(call: Any) -> bool:
    """One picture, no groups, no dilation; 8-bit activations, padded with their zero point."""
    name = str(getattr(getattr(call, "op", None), "name", ""))
    if name not in ("relax.qnn.conv2d", "relax.qnn.dense"):
        return False
    attrs = attributes(call)
    if attrs["data_zero_point_x2"] % 2 or attrs["weight_zero_point_x2"] % 2:
        return False
    is_simple = attrs.get("groups", 1) == 1 and list(attrs.get("dilation", [1, 1])) == [1, 1]
    if not is_simple or attrs.get("pad_value", 0) or attrs.get("dtype", "int32") != "int32":
        return False
    return dtype_of(call.args[0].ty) in ("int8", "uint8") and shape_of(call.ty)[0] == 1
