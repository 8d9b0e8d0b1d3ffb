"""Pictures as transformed tiles, between what writes their bytes and the products of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.bitpacking.window import Window
from stages.qnn.builder import FunctionBuilder
from stages.qnn.composites import TILES
from stages.qnn.registry import dtype_of, shape_of
from stages.qnn.transformed import to_tiles


def transforming(stored: Any, origin: Sequence[int], window: Window) -> Any:
    """The composite that transforms stored bytes, from the pixel where the first window begins."""
    builder = FunctionBuilder()
    data = builder.param("p0", shape_of(stored.ty), dtype_of(stored.ty))
    tiles = to_tiles(data, origin=list(origin), output=list(window.output))
    return builder.finish([builder.emit(tiles, "tiles")], {"composite": TILES})
