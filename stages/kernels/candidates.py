"""What the synthesis engine offers for a product: kernels, and what each is predicted to cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from stages.kernels.families import Family
from stages.kernels.geometry import Geometry, tile_count
from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, WORD_BYTES
from stages.kernels.signature import BLOCK, Flush, KernelSignature
from stages.kernels.winograd_transforms import BY_ONE, TRANSFORMS, WINDOW, Transform, transforms_of
from stages.kinds import Table
from stages.options import Algorithm, Encoding, FloatPrecision

LINE = 64
"""Bytes of a line of the caches."""
OVERLAP = 0.9
"""The part of products that can be computed while weights come."""
WORTH = 1.1
"""What Winograd's products of floats are charged more, for weights up to four times as large."""
Method = Algorithm | Literal["macf32", "macbf16", "macf16"]
"""What layers of levels may choose, or multiplication of floats."""
_ALGORITHMS: dict[Family, Method] = {
    "popcount": "bitserial",
    "lookup": "lookup",
    "mac8": "mac8",
    "mac16": "winograd",
    "macf32": "macf32",
    "macbf16": "macbf16",
    "macf16": "macf16",
}


_BYTES: tuple[Method, ...] = ("mac8",)


@dataclass(frozen=True)
class Problem:
    """A product of levels, whatever the layer: bits of both operands and what weights mean."""

    activation_bits: int
    weight_bits: int
    weights: Encoding
    element: FloatPrecision | None = None
    """What both operands are, if they are floats, of which the rest says nothing."""

    @property
    def is_float(self) -> bool:
        """Whether both operands are floats."""
        return self.element is not None

    @property
    def spans(self) -> bool:
        """Whether its weights are integers that no byte holds."""
        return self.weight_bits > BYTE_BITS and not self.is_float

    @property
    def name(self) -> str:
        """Its key in a table of offers, for example `a2w1_bipolar`."""
        if self.element:
            return {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[self.element]
        return f"a{self.activation_bits}w{self.weight_bits}_{self.weights}"


FLOATS = Problem(32, 32, "signed", "float32")
"""The product of two floats (IEEE 754 binary32)."""
BFLOATS = Problem(16, 16, "signed", "bfloat16")
"""The product of two bfloat16, the upper halves of floats."""
HALVES = Problem(16, 16, "signed", "float16")
"""The product of two floats of 16 bits (IEEE 754 binary16)."""
FLOAT_PROBLEMS = {"float32": FLOATS, "bfloat16": BFLOATS, "float16": HALVES}
"""By what is multiplied."""


@dataclass(frozen=True)
class Offer:
    """A kernel with its predicted cost on one core, in cycles; loads of operands included."""

    signature: KernelSignature
    word: float
    """One word of the window, for the whole tile."""
    empty: float
    """Emptying all counters of the tile into the sums once in every pass."""
    row: float = 0.0
    """Beginning a row of the window in every pass, of loops that load what they read a turn before:
    the first turn has nothing to load it beside."""
    late: float = 0.0
    """What results of a tile take that are not computed beside the next one's products."""
    line: float = 0.0
    """What 64 bytes of activations take that come from the second cache."""
    memory: float = 0.0
    """What 64 bytes take that come from memory, or go there."""
    cache: int = 0
    """Bytes of the first cache."""
    second: int = 0
    """Bytes of the second cache."""
    stream: float = 0.0
    """What 64 bytes of weights take that come from beyond the second cache."""
    before: tuple[float, ...] = ()
    """What transforming 32 channels of a tile of pixels takes, before all products of a layer, by
    each of `TRANSFORMS`."""
    behind: tuple[float, ...] = ()
    """What transforming 32 channels of a tile of sums takes, by each."""

    @property
    def algorithm(self) -> Method:
        """The algorithm it belongs to."""
        return "winograd" if self.signature.is_transformed else _ALGORITHMS[self.signature.family]

    @property
    def cycles_per_mac(self) -> float:
        """In the limit of long windows; of a convolution's own, without transforms."""
        period = self.signature.flush_period
        tile: float = (
            self.signature.rows * self.signature.channels * self.signature.channels_per_word
        )
        tile *= BY_ONE.saved if self.signature.is_transformed else 1
        return (self.word + (self.empty / period if period else 0)) / tile

    def layer(self, geometry: Geometry, outputs: int) -> float:
        """A whole layer of so many channels of the output."""
        blocks: float = -(-outputs // BLOCK)
        if self.signature.is_direct and not geometry.in_blocks:
            blocks = -(-outputs // self.signature.channels) * self.signature.channels / BLOCK
        if self.signature.is_transformed:
            fitting = self._transforms(geometry, outputs)
            return min((self._transformed(geometry, outputs, one) for one in fitting), default=inf)
        words = prod(geometry.rows_for(self.signature))
        return self.cycles(geometry) * geometry.height * blocks + self._read(words) * blocks

    def transform(self, geometry: Geometry, outputs: int) -> Transform:
        """The cheapest of Winograd's for a layer that the kernel's tile fits."""
        fitting = self._transforms(geometry, outputs) or geometry.transforms(self.signature)
        return min(fitting, key=lambda one: self._transformed(geometry, outputs, one))

    def _transforms(self, geometry: Geometry, outputs: int) -> list[Transform]:
        """Those with tiles enough; but the one of fewest products alone, if its weights stay in the
        second cache: nobody waits for them, whatever `stream` says of larger ones."""
        fitting = geometry.transforms(self.signature)
        first = transforms_of(geometry.strides)[0]
        depth = geometry.channels // self.signature.channels_per_word * WORD_BYTES
        is_near = first.products * depth * outputs <= self.second
        return [one for one in fitting if one is first or not is_near]

    def _transformed(self, geometry: Geometry, outputs: int, transform: Transform) -> float:
        """A layer of transformed products: its pixels once, then block by block."""
        each = self.before[TRANSFORMS.index(transform)]
        before = geometry.squares(transform) * geometry.channels / BLOCK * each
        blocks = -(-outputs // BLOCK)
        total = self._block(geometry, transform) * blocks + before
        total += self._read(self._words(geometry, transform)) * blocks
        pixels = 2 * geometry.squares(transform) * transform.products * geometry.channels
        if pixels > self.cache:  # written once, and read once a block
            total += (1 + blocks) * pixels / LINE * self.line
        return total * WORTH if self.signature.is_float else total

    def cycles(self, geometry: Geometry) -> float:
        """One output row and block of channels, on average."""
        signature = self.signature
        rows, row_words = geometry.rows_for(signature)
        flush = flush_for(signature, rows, row_words)
        times = {"none": 1, "window": 1, "row": rows}.get(flush)
        if times is None:
            times = rows * -(-row_words // signature.flush_period)
        tiles = geometry.tiles(signature.rows, signature.turns) * (BLOCK // signature.channels)
        lines = self._far_bytes(geometry) / LINE
        words = rows * row_words
        products = tiles * (words * self.word + rows * self.row)
        streaming = self._streaming(words) / geometry.height
        waiting = max(0, streaming - OVERLAP * products)
        return products + tiles * (times * self.empty + self.late + lines * self.line) + waiting

    def _block(self, geometry: Geometry, transform: Transform) -> float:
        """A block of channels, whose weights are read once from beyond the second cache."""
        signature, squares = self.signature, geometry.squares(transform)
        words = self._words(geometry, transform)
        tiles = tile_count(squares, signature.rows) * (BLOCK // signature.channels)
        products = tiles * (words * self.word + transform.products * self.empty)
        waiting = max(0, self._streaming(words) - OVERLAP * products)
        behind = squares * self.behind[TRANSFORMS.index(transform)]
        return products + behind + waiting

    def _words(self, geometry: Geometry, transform: Transform) -> int:
        """Words of weights of an output channel that are transformed."""
        row = geometry.row_words(self.signature.channels_per_word)
        return transform.products * row // WINDOW

    def _read(self, words: int) -> float:
        """Cycles until the weights of a block have come from memory, once an inference."""
        parts = BLOCK // self.signature.channels
        return words * parts * self.signature.weight_bytes / LINE * self.memory

    def _streaming(self, words: int) -> float:
        """Cycles until the weights of a block, so many words of a window, are there."""
        parts = BLOCK // self.signature.channels
        return words * parts * self.signature.weight_bytes / LINE * self.stream

    def _far_bytes(self, geometry: Geometry) -> float:
        """Bytes of activations a tile reads from the second cache.

        All of its windows, each once, where the rows that windows share do not stay in the first.
        """
        signature, (height, width) = self.signature, geometry.window
        words = prod(geometry.rows_for(signature)) / (height * width)
        pixel = words * signature.activation_bytes
        row, tile = (
            (count - 1) * geometry.strides[1] + width
            for count in (geometry.output_width, signature.rows)
        )
        return height * tile * pixel if height * row * pixel > self.cache else 0

    def fitted(self, geometry: Geometry) -> KernelSignature:
        """The signature with its counters emptied as seldom as their range allows."""
        return self.signature.flushed(flush_for(self.signature, *geometry.rows_for(self.signature)))


def flush_for(signature: KernelSignature, rows: int, row_words: int) -> Flush:
    """Where the counters of a window of `rows` times `row_words` words must be emptied."""
    if signature.flush_period == 0:
        return "none"
    if rows * row_words <= signature.flush_period:
        return "window"
    return "row" if row_words <= signature.flush_period else "chunk"


def weight_limit_of(weight: np.ndarray[Any, Any]) -> int:
    """The largest magnitude of weights, where that of 128, which no signed byte holds, is 129."""
    levels = weight.astype(np.int32)
    largest = int(np.abs(levels).max(initial=0))
    return max(largest, BYTE_LIMIT + 1) if levels.max(initial=0) == BYTE_LIMIT else largest


def on_bytes(
    weight: np.ndarray[Any, Any], strides: Sequence[int], wanted: Algorithm | None = None
) -> set[Method]:
    """The algorithms for products of levels as bytes, by their weights [O, KH, KW, C] and what
    windows move by, or the one that is `wanted` if it is among them."""
    transforms = transforms_of(strides) if weight.shape[1:3] == (WINDOW, WINDOW) else []
    is_byte = weight_limit_of(weight) <= BYTE_LIMIT
    sums_fit = is_byte and all(one.fits(weight) for one in transforms)
    found: set[Method] = {"mac8", "winograd"} if transforms and sums_fit else {"mac8"}
    return found if wanted is None else found & {wanted}


def products_for(
    table: Table,
    activation_bits: int,
    weight: np.ndarray[Any, Any],
    algorithms: Collection[Method] = _BYTES,
) -> list[Offer]:
    """Offers of products of levels as bytes, of any problem but those of floats, that levels of so
    many bits and these weights fit."""
    weight_limit = weight_limit_of(weight)
    found = {
        offer.signature.name: offer
        for data in table.values()
        for offer in holding(from_table(data), weight)
        if (products := offer.signature.products) is not None
        and not offer.signature.is_float
        and offer.algorithm in algorithms
        and activation_bits <= products.activation_bits
        and weight_limit <= products.weight_limit
    }
    return [found[name] for name in sorted(found)]


def holding(offers: Sequence[Offer], weight: np.ndarray[Any, Any]) -> list[Offer]:
    """Those offers whose kernels can store these weights."""
    codes = {code for offer in offers if (code := offer.signature.code) is not None}
    lacking = {code for code in codes if not code.holds(weight)}
    return [offer for offer in offers if offer.signature.code not in lacking]


def best(offers: Sequence[Offer], geometry: Geometry, outputs: int = BLOCK) -> Offer:
    """The cheapest offer for a layer; ties go to the smaller name, so that builds repeat."""
    return ranked(offers, geometry, outputs)[0]


def ranked(offers: Sequence[Offer], geometry: Geometry, outputs: int) -> list[Offer]:
    """The offers that fit a layer, the cheapest first."""
    costs = [
        (offer.layer(geometry, outputs), offer.signature.name, offer)
        for offer in offers
        if geometry.takes(offer.signature)
    ]
    return [offer for cost, _, offer in sorted(costs, key=lambda c: c[:2]) if cost < inf]


_OFFERS = TypeAdapter(list[Offer])


def to_table(offers: list[Offer]) -> list[Table]:
    """Offers as plain data."""
    data: list[Table] = _OFFERS.dump_python(offers, mode="json")
    return data


def from_table(data: list[Table]) -> list[Offer]:
    """Undo `to_table`."""
    return _OFFERS.validate_python(data)
