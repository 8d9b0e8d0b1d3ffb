"""Depthwise convolutions: the taps of one channel side by side in its lane, by dot instructions.

Lanes are channels, as they lie in memory. A tile is some neighbouring pixels by a few registers of
channels, whose sums stay in registers over the whole window.
"""

from __future__ import annotations

from math import prod

import numpy as np
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, dtype_of, shape_of
from stages.kernels.geometry import tile_count
from stages.kernels.packed_depthwise import takes_pairs
from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.nodes import Index, Scalar
from stages.packaging.sums.depthwise_text import COLUMNS, NAME, Tile, depthwise_text
from stages.packaging.sums.parts import Composition, InputReader
from stages.packaging.sums.tile_function import MicroKernelCall

CHANNELS = 8
"""Channels of a tile, or as many as a register has lanes."""
MAX_PIXELS = 14


class DepthwiseTaps(InputReader):
    """Every channel's own taps, of padded images [N, Hp, Wp, C], or of one image of levels
    with a halo [Hp, Wp, Cp]."""

    keeps_sums = True

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        self.main, isa = kernel.composite.main, kernel.isa
        self.channels = BLOCK if COLUMNS in isa else max(CHANNELS, isa.lanes)
        # Half of the registers for sums; the others for what is multiplied.
        most = max(1, min(MAX_PIXELS, isa.registers // 2 // (self.channels // isa.lanes)))
        self.rows = -(-kernel.width // tile_count(kernel.width, most))
        self.group = shape_of(self.main.args[1].ty)[-1]

    @property
    def preloads_bias(self) -> bool:
        """Whether the micro-kernel preloads the bias: always."""
        return True

    @property
    def outputs(self) -> int:
        """Channels of the image."""
        return shape_of(self.main.args[0].ty)[-1]

    def micro_kernel(self, bodies: Table) -> MicroKernelCall:
        """The micro-kernel of this layer's window and strides."""
        del bodies
        isa, attrs = self.kernel.isa, attributes(self.main)
        data, weights, _ = self.main.args
        *_, width, channels = shape_of(data.ty)
        (kh, kw), (dy, dx) = attrs["window"], attrs["dilation"]
        tile = Tile(
            self.rows,
            self.channels,
            attrs["strides"][1] * channels,
            tuple(x * dx * channels for x in range(kw)),
            tuple(y * dy * width * channels for y in range(kh)),
            dtype_of(data.ty) == "int8",
            attrs["offset"],
        )
        limits = np.iinfo(dtype_of(weights.ty))
        dot = isa.dot_for(limits.min, limits.max)
        assert dot is not None
        is_pairs = takes_pairs(isa) and limits.bits == 8
        return MicroKernelCall(
            NAME, depthwise_text(tile, isa, None if is_pairs else dot), 3, preloads_bias=True
        )

    def operands(self, block: Index, part: Index, run: Index, tile: Index) -> tuple[Scalar, ...]:
        """The tile's first window, and its channels' weights."""
        data, weights, _ = self.main.args
        attrs = attributes(self.main)
        (down, right), (top, left) = attrs["strides"], attrs.get("origin", [0, 0])
        *_, height, width, channels = shape_of(data.ty)
        image, line = self.kernel.image_row(run)
        x = self.kernel.work.column_of(tile)
        row, x = image * height + top + line * down, left + x * right
        first = (row * width + x) * channels + block * BLOCK
        block_size = prod(shape_of(weights.ty)[1:])
        channel = part * self.channels
        elements = (
            self.kernel.arguments[data.name][first + channel],
            self.kernel.arguments[weights.name][block * block_size + channel * self.group],
        )
        return tuple(map(T.address_of, elements))
