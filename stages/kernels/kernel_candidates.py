"""Candidate kernels of a product of levels, each with its predicted cost on one core."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Literal

from pydantic import TypeAdapter

from stages.kernels.geometry import Geometry, tile_count
from stages.kernels.multiply_accumulate import Family
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.signature import BLOCK, Flush, KernelSignature
from stages.kernels.winograd_transforms import BY_ONE, TRANSFORMS, WINDOW, Transform, transforms_of
from stages.kinds import Table
from stages.layer_options import Algorithm

LINE = 64
"""Bytes of a line of the caches."""
OVERLAP = 0.9
"""The part of products that can be computed while weights come."""
WORTH = 1.1
"""What Winograd's products of floats are charged more, for weights up to four times as large."""
KernelAlgorithm = Algorithm | Literal["macf32", "macbf16", "macf16"]
"""What a kernel's algorithm may be: one that recipes choose for layers of integers, or products of
floats."""
_ALGORITHMS: dict[Family, KernelAlgorithm] = {
    "popcount": "bitserial",
    "lookup": "lookup",
    "mac8": "mac8",
    "mac16": "winograd",
    "macf32": "macf32",
    "macbf16": "macbf16",
    "macf16": "macf16",
}


@dataclass(frozen=True)
class KernelCandidate:
    """A kernel with its predicted cost on one core, in cycles; loads of operands included."""

    signature: KernelSignature
    word_cycles: float
    """Cycles of one word of the window, for the whole tile."""
    flush_cycles: float
    """Flushing all counters of the tile into the sums once in every pass."""
    row_cycles: float = 0.0
    """Beginning a row of the window in every pass, of loops that load what they read an iteration
    before: the first iteration has nothing to load it beside."""
    exposed_epilogue: float = 0.0
    """What results of a tile take that are not computed beside the next one's products."""
    l2_line_cycles: float = 0.0
    """What 64 bytes of activations take that come from the L2 cache."""
    memory_line_cycles: float = 0.0
    """What 64 bytes take that come from memory, or go there."""
    l1_bytes: int = 0
    """Bytes of the L1 cache."""
    l2_bytes: int = 0
    """Bytes of the L2 cache."""
    weight_stream_cycles: float = 0.0
    """What 64 bytes of weights take that come from beyond the L2 cache."""
    data_transform_cycles: tuple[float, ...] = ()
    """What transforming 32 channels of a tile of pixels takes, before all products of a layer, by
    each of `TRANSFORMS`."""
    sum_transform_cycles: tuple[float, ...] = ()
    """What transforming 32 channels of a tile of sums takes, by each."""

    @property
    def algorithm(self) -> KernelAlgorithm:
        """The algorithm it belongs to."""
        return "winograd" if self.signature.is_transformed else _ALGORITHMS[self.signature.family]

    @property
    def cycles_per_mac(self) -> float:
        """Cycles per product of the layer, in the limit of long windows, without transforms."""
        period = self.signature.flush_period
        tile: float = (
            self.signature.rows * self.signature.channels * self.signature.channels_per_word
        )
        tile *= BY_ONE.saved if self.signature.is_transformed else 1
        return (self.word_cycles + (self.flush_cycles / period if period else 0)) / tile

    def layer(self, geometry: Geometry, outputs: int) -> float:
        """Cycles of a whole layer of so many output channels."""
        blocks: float = -(-outputs // BLOCK)
        if self.signature.is_direct and not geometry.in_blocks:
            blocks = -(-outputs // self.signature.channels) * self.signature.channels / BLOCK
        if self.signature.is_transformed:
            fitting = self._transforms(geometry, outputs)
            return min((self._transformed(geometry, outputs, one) for one in fitting), default=inf)
        words = prod(geometry.rows_for(self.signature))
        return self.cycles(geometry) * geometry.output_rows * blocks + self._read(words) * blocks

    def transform(self, geometry: Geometry, outputs: int) -> Transform:
        """The cheapest of Winograd's for a layer that the kernel's tile fits."""
        fitting = self._transforms(geometry, outputs) or geometry.transforms(self.signature)
        return min(fitting, key=lambda one: self._transformed(geometry, outputs, one))

    def _transforms(self, geometry: Geometry, outputs: int) -> list[Transform]:
        """Those with tiles enough; but the one of fewest products alone, if its weights stay in the
        L2 cache: nobody waits for them, whatever `weight_stream_cycles` says of larger ones."""
        fitting = geometry.transforms(self.signature)
        first = transforms_of(geometry.strides)[0]
        depth = geometry.channels // self.signature.channels_per_word * WORD_BYTES
        is_near = first.products * depth * outputs <= self.l2_bytes
        return [one for one in fitting if one is first or not is_near]

    def _transformed(self, geometry: Geometry, outputs: int, transform: Transform) -> float:
        """A layer of transformed products: its pixels once, then block by block."""
        each = self.data_transform_cycles[TRANSFORMS.index(transform)]
        before = geometry.winograd_tiles(transform) * geometry.channels / BLOCK * each
        blocks = -(-outputs // BLOCK)
        total = self._block(geometry, transform) * blocks + before
        total += self._read(self._words(geometry, transform)) * blocks
        pixels = 2 * geometry.winograd_tiles(transform) * transform.products * geometry.channels
        if pixels > self.l1_bytes:  # written once, and read once a block
            total += (1 + blocks) * pixels / LINE * self.l2_line_cycles
        return total * WORTH if self.signature.is_float else total

    def cycles(self, geometry: Geometry) -> float:
        """Cycles of one output row and one block of channels, on average."""
        signature = self.signature
        rows, row_words = geometry.rows_for(signature)
        flush = flush_for(signature, rows, row_words)
        times = {"none": 1, "window": 1, "row": rows}.get(flush)
        if times is None:
            times = rows * -(-row_words // signature.flush_period)
        tiles = geometry.tiles(signature.rows, signature.spans_rows) * (BLOCK // signature.channels)
        lines = self._far_bytes(geometry) / LINE
        words = rows * row_words
        products = tiles * (words * self.word_cycles + rows * self.row_cycles)
        streaming = self._streaming(words) / geometry.output_rows
        waiting = max(0, streaming - OVERLAP * products)
        return (
            products
            + tiles
            * (times * self.flush_cycles + self.exposed_epilogue + lines * self.l2_line_cycles)
            + waiting
        )

    def _block(self, geometry: Geometry, transform: Transform) -> float:
        """A block of channels, whose weights are read once from beyond the L2 cache."""
        signature, winograd_tiles = self.signature, geometry.winograd_tiles(transform)
        words = self._words(geometry, transform)
        tiles = tile_count(winograd_tiles, signature.rows) * (BLOCK // signature.channels)
        products = tiles * (words * self.word_cycles + transform.products * self.flush_cycles)
        waiting = max(0, self._streaming(words) - OVERLAP * products)
        behind = winograd_tiles * self.sum_transform_cycles[TRANSFORMS.index(transform)]
        return products + behind + waiting

    def _words(self, geometry: Geometry, transform: Transform) -> int:
        """Words of weights of an output channel that are transformed."""
        row = geometry.row_words(self.signature.channels_per_word)
        return transform.products * row // WINDOW

    def _read(self, words: int) -> float:
        """Cycles until the weights of a block have come from memory, once an inference."""
        parts = BLOCK // self.signature.channels
        return words * parts * self.signature.weight_bytes / LINE * self.memory_line_cycles

    def _streaming(self, words: int) -> float:
        """Cycles until the weights of a block, so many words of a window, are there."""
        parts = BLOCK // self.signature.channels
        return words * parts * self.signature.weight_bytes / LINE * self.weight_stream_cycles

    def _far_bytes(self, geometry: Geometry) -> float:
        """Bytes of activations a tile reads from the L2 cache.

        All of its windows, each once, where the rows that windows share do not stay in the first.
        """
        signature, (height, width) = self.signature, geometry.window
        words = prod(geometry.rows_for(signature)) / (height * width)
        pixel = words * signature.activation_bytes
        row, tile = (
            (count - 1) * geometry.strides[1] + width
            for count in (geometry.output_width, signature.rows)
        )
        return height * tile * pixel if height * row * pixel > self.l1_bytes else 0

    def fitted(self, geometry: Geometry) -> KernelSignature:
        """The signature with its counters flushed as seldom as their range allows."""
        return self.signature.flushed(flush_for(self.signature, *geometry.rows_for(self.signature)))


def flush_for(signature: KernelSignature, rows: int, row_words: int) -> Flush:
    """Where the counters of a window of `rows` times `row_words` words must be flushed."""
    if signature.flush_period == 0:
        return "none"
    if rows * row_words <= signature.flush_period:
        return "window"
    return "row" if row_words <= signature.flush_period else "chunk"


_CANDIDATES = TypeAdapter(list[KernelCandidate])


def to_table(candidates: list[KernelCandidate]) -> list[Table]:
    """Candidates as plain data, which the artifact of enumerating holds."""
    data: list[Table] = _CANDIDATES.dump_python(candidates, mode="json")
    return data


def from_table(data: list[Table]) -> list[KernelCandidate]:
    """The candidates of plain data that `to_table` gave."""
    return _CANDIDATES.validate_python(data)
