"""Scheduling: the loops of every composite, as measured or from the cost model (deterministic).

A kernel's work items are pairs (block of 32 output channels, output row). Whichever operand is
larger than the L1 cache should stay put while the other streams past it. Row blocks
(`stages.scheduling.row_blocks`) lie between the two orders; only measurements choose them.

Matrix tiles (AMX) are a unit of their own, which need not wait for an epilogue: that of a tile can
stand between the products of the next one. But while the unit is busy the whole core runs slower, a
Xeon at 2.5 instead of 2.8 to 3.0 GHz. So either all of a network's kernels do so, where those that
gain most have most of its products, or none.
"""

from __future__ import annotations

from math import prod

from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels import operator_names
from stages.kernels.geometry import tile_count
from stages.kernels.packed_conv2d import WEIGHTS_RANK
from stages.kernels.signature_text import parse_signature
from stages.kernels.winograd_transforms import calls_a_run, transform_for
from stages.kernels.workloads import schedule_of, shape_name
from stages.kinds import Model, Table
from stages.nodes import Call, Function, TensorType

__all__ = ["ORDERS", "run"]

ORDERS = ("rows_inner", "blocks_inner")
"""What the inner loop over a kernel's work items goes through."""
MOST_WEIGHTS, MOST_OF_TILES, MOST_TRANSFORMED = 2, 12, 4
"""Bytes of weights for one of data, at most, that each of two threads reads as a whole, to have
positions of its own; where tiles multiply, which have fewer tasks; and of transformed ones, of
which ResNet-18 with 2.6 takes 0.985 of the time so, on two cores of a Zen 4. On a Xeon ResNet-18's
layers with 1.3 took 0.79 to 0.87 of the time so, those with 9 took 1.2 to 1.3, but 0.9 in tiles.
What the other thread writes has to be fetched from its cache, and lines that it has read be taken
away from it before they are written anew."""
SLOTS_A_PIXEL = 0.5
"""Products of tiles for every pixel of a tile, at least, for a kernel to gain much."""
GAINING = 0.6
"""The part of a network's products, at least, that such kernels must have. As measured, ResNet-18
(0.99) and ResNet-50 (0.90) take 0.90 and 0.94 of the time so, and 0.98 and 0.95 of it again where
their other kernels do too, MobileNet v2 (0.40) takes 1.12."""


def run(*, model: Model, hardware: Hardware, choices: Table) -> Table:
    """Composite name → schedule: `order`, one of `ORDERS`, `spread`, the cost of reading all
    weights / that of all positions (at 1 two threads may as well share the one as the other), and
    for convolutions by matrix tiles whether they are `interleaved`. Where that was measured to be
    better, `rows` too, the output rows of a row block, and `threads`, the most tasks of a call."""
    composites = {
        str(variable.name_hint): function
        for variable, function in model.module.functions.items()
        if "composite" in (function.attrs or {})
    }
    schedules = {
        name: _schedule(function, hardware, choices) for name, function in composites.items()
    }
    called = [_gaining(function) for _, function in calls_of(model)]
    gaining = sum(macs for macs, gains in called if gains)
    is_worth_it = gaining >= GAINING * sum(macs for macs, _ in called)
    for schedule in schedules.values():
        schedule["interleaved"] = is_worth_it
    return schedules


def _main(function: Function) -> Call | None:
    """The convolution of a composite, depthwise or not; None where it has none."""
    calls = (binding.value for binding in bindings_of(function))
    return next((call for call in calls if is_op(call, *operator_names.PACKED_CONVOLUTIONS)), None)


def _gaining(function: Function) -> tuple[int, bool]:
    """Products of a composite, with those of padding, and whether their kernel would gain much."""
    call = _main(function)
    if call is None or is_op(call, operator_names.QNN_PACKED_DEPTHWISE):
        return 0, False
    weights = call.args[1].ty
    signature = parse_signature(attributes(call)["signature"])
    macs = prod(shape_of(call.ty)[:3]) * prod(shape_of(weights)[-WEIGHTS_RANK:])
    macs *= signature.expansion
    if signature.is_transformed:
        macs //= attributes(call)["tile"] ** 2
    words = shape_of(weights)[-2]
    slots = words // signature.step * signature.products_a_step
    return macs, signature.is_tiled and slots >= SLOTS_A_PIXEL * signature.rows


def _schedule(function: Function, hardware: Hardware, choices: Table) -> Table:
    call = _main(function)
    if call is None:
        return {"order": ORDERS[0], "spread": 0.0}
    if is_op(call, operator_names.QNN_PACKED_DEPTHWISE):
        # A few rows of the image fit the cache, and its lines hold several blocks.
        return {"order": "blocks_inner", "spread": 0.0}
    data, weights, _ = call.args
    predicted = {"order": _order(call, data.ty, weights.ty, hardware)}
    signature = parse_signature(attributes(call)["signature"])
    most = MOST_OF_TILES if signature.is_tiled else MOST_WEIGHTS
    if signature.is_transformed:
        most = MOST_TRANSFORMED
    cost_ratio = _bytes(weights.ty) * signature.expansion / (most * _bytes(data.ty))
    return {**predicted, "spread": cost_ratio, **schedule_of(*_known_by(call), choices)}


def _known_by(call: Call) -> tuple[str, str]:
    """The kernel and the shape of a convolution, as measurements call them."""
    attrs, (images, height, width, _) = attributes(call), shape_of(call.ty)
    output = (images * height, width)
    known = attrs["window"], attrs["strides"], attrs["channels"], output
    shape = shape_name(*known, attrs.get("groups", 1))
    return parse_signature(attrs["signature"]).alone.name, shape


def _order(call: Call, data: TensorType, weights: TensorType, hardware: Hardware) -> str:
    """`rows_inner` keeps a block's weights in cache; `blocks_inner` keeps rows of activations."""
    attrs = attributes(call)
    blocks = -(-attrs["channels"][1] // 32)
    weight_bytes, data_bytes = _bytes(weights), _bytes(data)
    for extent, stride in zip(attrs["window"], attrs["strides"], strict=True):
        data_bytes = data_bytes * min(extent, stride) // stride  # what lies between is not read
    rows = attrs["output"][0]
    signature = parse_signature(attrs["signature"])
    if signature.is_transformed:
        transform = transform_for(attrs["strides"], attrs["tile"])
        tiles = shape_of(call.ty)[0] * transform.tiles_in(attrs["output"])
        rows = tile_count(tiles, signature.rows * calls_a_run(tiles, signature.rows))
    if rows == 1:
        return "rows_inner"  # the same steps, and the next block's weights are known to be next
    rows_inner = weight_bytes + blocks * data_bytes
    blocks_inner = rows * weight_bytes + data_bytes
    cache = hardware.l1d_kib * 1024 // 2
    if weight_bytes <= cache and blocks > 1:
        return "blocks_inner"
    return "rows_inner" if rows_inner <= blocks_inner else "blocks_inner"


def _bytes(kind: TensorType) -> int:
    return prod(shape_of(kind)) * storage_dtype(dtype_of(kind)).itemsize
