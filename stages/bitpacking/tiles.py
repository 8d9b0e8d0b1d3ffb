"""A layer's products, of what its kernel reads: data as it lies, or as transformed tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.bitpacking.edges import Layout
from stages.bitpacking.window import Chosen, Window
from stages.qnn import packed
from stages.qnn.builder import FunctionBuilder
from stages.qnn.composites import TILES
from stages.qnn.registry import dtype_of, shape_of
from stages.qnn.signature import KernelSignature
from stages.qnn.transformed import packed_winograd, to_tiles


def transforming(stored: Any, origin: Sequence[int], window: Window) -> Any:
    """The composite that transforms stored bytes, from the pixel where the first window begins."""
    builder = FunctionBuilder()
    data = builder.param("p0", shape_of(stored.ty), dtype_of(stored.ty))
    tiles = to_tiles(
        data,
        origin=list(origin),
        output=list(window.output),
        strides=list(window.strides),
        tile=window.tile,
    )
    return builder.finish([builder.emit(tiles, "tiles")], {"composite": TILES})


def convolve(
    signature: KernelSignature,
    operands: Sequence[Any],
    origin: Sequence[int],
    chosen: Chosen,
    layout: Layout,
    inputs: int,
    outputs: int,
    **attrs: Any,
) -> Any:
    """The call of a kernel of a signature on data, weights [outputs, ..., inputs] and bias.

    The first window begins at `origin` of data that lie so, and with the first tile of tiles.
    """
    count = chosen.groups.count
    steps = chosen.window.attributes(layout.stacked, layout.phases)
    named = {"signature": packed.signature_text(signature), **steps, **attrs}
    named["channels"] = [count * inputs, outputs]
    if signature.is_transformed:
        return packed_winograd(*operands, tile=chosen.window.tile, **named)
    return packed.packed_conv2d(*operands, origin=list(origin), groups=count, **named)
