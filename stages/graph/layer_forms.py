"""What a linear layer of a quantized model may be computed as: on stored bits, on bytes, in loops.

Legalizing gives each layer one of these forms, synthesizing enumerates the kernels that layers may
choose from, and tuning measures them. All three ask here.

A layer's encodings and shape decide nearly all of it. Layers between simulated quantizers are
marked `of_levels`: composites around them store their sums nowhere, write levels as readers want
them, and have a kernel for depthwise convolutions. All others have TE kernels where no micro-kernel
fits.
"""

from __future__ import annotations

from typing import Literal

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, operand_levels, shape_of
from stages.dialect.levels import Levels
from stages.dialect.names import LEVEL_LINEAR
from stages.dialect.padding import Padding
from stages.graph.composites import has_kernel_form, is_depthwise, is_linear
from stages.kernels.operand_storage import BYTE_LIMIT, SPAN_LIMIT, WORD_BYTES
from stages.kernels.packed_depthwise import MAX_TAPS
from stages.kernels.packing import round_up
from stages.kernels.problems import BYTES, WIDE_WEIGHTS, Problem
from stages.kernels.selection import weight_limit_of
from stages.kernels.widened_windows import widened
from stages.kinds import Array
from stages.nodes import Call, Expr

Form = Literal["taps", "bytes", "zero_filled", "loops"]
"""How a layer is computed that is not on stored bits. `taps`: a depthwise one, by taps side by
side. `bytes`: unsigned bytes by signed ones, or by two of these. `zero_filled`: a depthwise one on
bytes, as if every channel read all, with zeros as weights. `loops`: in plain loops."""

MAX_PLANES = 3
"""Kernels of stored bits exist for up to three of each operand."""
IS_DEPTHWISE = "it is a depthwise convolution"


def is_level_layer(expr: Expr) -> bool:
    """Whether an expression is a linear layer between simulated quantizers."""
    return is_op(expr, *LEVEL_LINEAR) and bool(attributes(expr).get("of_levels", False))


def form_of(call: Call, weight: Array | None) -> Form | None:
    """How a linear layer with these constant weights is computed if not on its stored bits.

    None where nothing but the operator as it is does: in plain loops on its very operands.
    """
    if is_level_layer(call):
        if takes_depthwise(call, weight):
            return "taps"
        return "zero_filled" if is_depthwise(call) else "bytes"
    if takes_products(call, weight):
        return "bytes"
    is_whole = all(levels.zero_point.is_whole for levels in operand_levels(call))
    return "loops" if weight is not None and is_whole else None


def problems_of(call: Call, weight: Array | None) -> set[Problem]:
    """The products whose kernels a linear layer, or one with computed weights, may choose from.

    Layers that may be computed on stored bits, and all of levels, have candidates of their own
    widths, on bytes too: sums of fewer bits have room for more products.
    """
    if is_op(call, names.QNN_BATCH_DENSE):
        return {BYTES}
    if not is_linear(call):
        return set()
    form = form_of(call, weight)
    if is_level_layer(call):
        return set() if form == "taps" else {Problem.of(*operand_levels(call))}
    if weight is None or form != "bytes":
        return set()
    if obstacle_to_bits(call, weight) is None:
        return {Problem.of(*operand_levels(call))}
    return {BYTES if fits_bytes(call, weight) else WIDE_WEIGHTS}


# -- stored bits ---------------------------------------------------------------------------------


def obstacle_to_bits(call: Call, weight: Array | None) -> str | None:
    """Why a linear layer cannot be computed on its stored bits, or None."""
    if not is_linear(call) or weight is None:
        return "its weights are computed"
    if is_depthwise(call):
        return IS_DEPTHWISE
    data, stored = operand_levels(call)
    if found := bits_obstacle(data, stored, attributes(call).get("groups", 1)):
        return found
    if data.is_signed:
        return "its activations are signed"
    if not has_kernel_form(call):
        return "its windows have gaps, or its sums 64 bits"
    if shape_of(call.ty)[0] != 1:  # planes are of one image
        return "it computes several images at once"
    return None


def bits_obstacle(data: Levels, stored: Levels, groups: int) -> str | None:
    """Why a product of levels and stored weights cannot be computed on their bits, or None."""
    if max(data.bits, stored.bits) > MAX_PLANES:
        return f"it has more than {MAX_PLANES} bits"
    if groups != 1:
        return "it is a grouped convolution"
    zero_point = stored.zero_point
    if zero_point and (stored.is_signed or not stored.is_balanced):
        return (
            f"its weights have the zero point {zero_point.number}, "
            "neither 0 nor the middle of the range"
        )
    return None


# -- bytes ---------------------------------------------------------------------------------------


def takes_depthwise(call: Call, weight: Array | None) -> bool:
    """Whether a convolution of levels, whose weights [C, KH, KW, 1] are numerators or have them, is
    a depthwise one that a kernel with taps side by side computes.

    What surrounds the image must have a level.
    """
    if weight is None or not is_op(call, names.QNN_CONV2D):
        return False
    attrs, groups = attributes(call), attributes(call).get("groups", 1)
    is_one_to_one = groups == weight.shape[0] > 1 and weight.shape[3] == 1
    levels = Levels.of_type("uint8", attrs["data_zero_point"])
    is_level = levels.has_zero and not Padding.of(attrs).numerator
    is_small = weight.shape[1] * weight.shape[2] <= MAX_TAPS
    return is_one_to_one and is_level and is_small and fits_bytes(call, weight)


def takes_products(call: Call, weight: Array | None) -> bool:
    """Whether a micro-kernel of products of bytes can compute a convolution or matrix product.

    `weight` is its constant weights, whose numerators must be differences of two bytes. Where these
    are no bytes, its windows are widened, and must not be too large for that.
    """
    if weight is None or not has_kernel_form(call):
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
