"""What a layer adds to a product: its window, its size, and how its data may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from stages.kernels.channel_groups import WHOLE, Groups
from stages.kernels.operand_storage import WORD_BITS, WORD_BYTES
from stages.kernels.packing import round_up
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.widened_windows import Widened, widened
from stages.kernels.winograd_transforms import WINDOW, Transform, transforms_of

PHASES = 2
"""Pixels that windows move by, of the layers whose data may be in polyphase layout."""
POLYPHASE_GAIN = 0.9
"""The part of the time that layers are predicted to take, at most, in polyphase layout: 0.94 was
1.04 as timed. No prediction counts that results of joined rows find their places one by one."""
LEAST_VECTOR = 8
"""Channels of a layer whose pixels are transformed, at least."""
PACKED_ROWS = 2
"""Rows that are packed as one: a pixel of two, each of one word, is written by one instruction."""


@dataclass(frozen=True)
class Geometry:
    """What a layer adds to a problem: its window in channels, strides, size of the output."""

    window: tuple[int, int]
    channels: int
    output_width: int
    output_rows: int = 1
    """Rows of the output, those of all images of a batch."""
    strides: tuple[int, int] = (1, 1)
    channel_unit: int = BLOCK
    """Channels of bytes are padded to a multiple of this many: those of a block for levels, of a
    word for other bytes and for levels of a narrow graph input (`Layer.channel_unit`)."""
    images: int = 1
    """Images of a batch."""
    packed_rows: int = 1
    """Rows of the input that lie one behind the other, as channels of one; window, strides and
    `output_rows` count these."""
    phases: int = 1
    """Phases of a polyphase layout: input rows of equal number modulo so many lie together."""
    is_unpadded: bool = False
    """Whether pixels have no channels of padding: words go on from one pixel to the next."""
    in_blocks: bool = True
    """Whether results are finished by whole blocks of channels, however few there are."""
    groups: Groups = WHOLE
    """Which channels are multiplied with which."""
    has_matrices: bool = False
    """Whether each image has weights of its own."""

    @property
    def as_unpadded(self) -> Geometry | None:
        """This layer on an image of few channels whose pixels lie close together.

        None where padding adds nothing to a row of a window.
        """
        if self.channel_unit != WORD_BYTES or self.channels >= WORD_BYTES or self.is_grouped:
            return None
        geometry = replace(self, is_unpadded=True)
        return geometry if geometry.row_words(WORD_BYTES) < self.row_words(WORD_BYTES) else None

    @property
    def as_row_packed(self) -> Geometry | None:
        """This layer on an image of few channels whose rows are packed by two (space to depth).

        Its windows have fewer and longer rows, as steps of matrix tiles want them. None where a
        window may begin within two rows.
        """
        (height, width), (down, right) = self.window, self.strides
        if self.channel_unit != WORD_BYTES or self.channels > WORD_BYTES or self.is_grouped:
            return None
        if height < PACKED_ROWS or down % PACKED_ROWS:
            return None
        return replace(
            self,
            window=(-(-height // PACKED_ROWS), width),
            strides=(down // PACKED_ROWS, right),
            packed_rows=PACKED_ROWS,
        )

    @property
    def as_polyphase(self) -> Geometry | None:
        """This layer on an image in polyphase layout, of as many phases as windows move by.

        The rows of a window's next position then follow those of this one, so that no positions
        between two rows of the output are computed in vain. None where windows do not move alike
        along both axes, and for a batch, whose images would lie too far apart.
        """
        if self.strides != (PHASES, PHASES) or self.images > 1 or self.is_grouped:
            return None
        if self.channels <= WORD_BYTES:
            return None
        return replace(self, phases=PHASES)

    @property
    def is_grouped(self) -> bool:
        """Whether not all channels are multiplied with all."""
        return self.groups.count > 1

    def rows_for(self, signature: KernelSignature) -> tuple[int, int]:
        """Rows of the window and words of each, for a kernel: those that
        `stages.kernels.packed_conv2d.rows_of` makes of packed weights."""
        if reads := self.groups.reads(signature):
            height, width = self.window
            return height * width, reads[0] // signature.channels_per_word
        words = self.row_words(signature.channels_per_word)
        return self.window[0], round_up(words, signature.row_unit // signature.channels_per_word)

    def row_words(self, channels_per_word: int) -> int:
        """Words of one row of the window."""
        unit = 1 if self.is_unpadded else max(self.channel_unit, channels_per_word)
        pixel = self.packed_rows * -(-self.channels // unit) * unit
        return -(-self.window[1] * pixel // channels_per_word)

    @property
    def _pixel_words(self) -> int:
        """Words of a plane of a pixel."""
        return -(-self.channels // WORD_BITS)

    def widened(self, signature: KernelSignature) -> Widened:
        """What the windows of a tile become where they are widened."""
        unit = 1 if self.is_unpadded else self.channel_unit
        pixel = self.packed_rows * -(-self.channels // unit) * unit
        return widened(signature.rows, self.window, self.strides[1], pixel, signature.row_unit)

    def takes(self, signature: KernelSignature) -> bool:
        """Whether a kernel's tile is no longer than rows are, and its step a part of a window's.

        A tile for all pixels must have these, or half of them; one that is widened must fit.
        """
        if signature.is_transformed:
            is_plain = self.window == (WINDOW, WINDOW) and (self.packed_rows, self.phases) == (1, 1)
            words = self.row_words(signature.channels_per_word) // WINDOW
            is_plain = is_plain and not self.is_grouped and words % signature.step == 0
            return is_plain and self.channels >= LEAST_VECTOR and bool(self.transforms(signature))
        if signature.inner and (self.is_grouped or self._pixel_words % signature.inner):
            return False
        if signature.code is not None and self.channels % BLOCK:
            return False  # what fills a word up has no weight of 0
        if self.groups.reads(signature) and signature.is_tiled:
            return False
        if signature.is_widened and not self.widened(signature).stays_near:
            return False
        step, as_words = signature.step, replace(self, channel_unit=signature.channels_per_word)
        rows = {self.rows_for(signature)[1]}
        if self.has_matrices or not signature.is_widened:
            rows |= {one.row_words(signature.channels_per_word) for one in (self, as_words)}
        if any(words % step for words in rows):
            return False
        if signature.covers_layer:
            return self._has_passes(signature.rows)
        return signature.rows <= max(self.output_width, self._positions)

    def _has_passes(self, rows: int) -> bool:
        """Whether all positions are one tile, or two with little besides; padding may add some."""
        rest = tile_count(self._positions, rows) * rows - self._positions
        return rows == self._positions or (rows < self._positions <= 2 * rows and rest <= rows // 4)

    def tiles(self, rows: int, spans_rows: bool = False) -> float:
        """Tiles of so many pixels that an output row needs, on average.

        Rows are joined where that takes fewer, as if nobody else needed a wider halo. Where a tile
        `spans_rows` it goes on from the last pixel of a row to the next one's first.
        """
        by_rows = tile_count(self.output_width, rows) if rows <= self.output_width else inf
        if spans_rows and not self.has_matrices:
            by_rows = tile_count(self.output_rows * self.output_width, rows) / self.output_rows
        if rows > self._positions:
            return by_rows
        return min(by_rows, tile_count(self._positions, rows) / self.output_rows)

    def winograd_tiles(self, transform: Transform) -> int:
        """Tiles of the output of all images, as one of Winograd's transforms divides these."""
        output = self.output_rows // self.images, self.output_width
        return self.images * transform.tiles_in(output)

    def transforms(self, signature: KernelSignature) -> list[Transform]:
        """The transforms of Winograd's that give a kernel of transformed products enough tiles."""
        found = transforms_of(self.strides)
        return [one for one in found if signature.rows <= self.winograd_tiles(one)]

    @property
    def _positions(self) -> int:
        """Positions of rows that are joined, as many of input to a row as windows move by; 0 where
        rows cannot be joined (`are_joinable`)."""
        joinable = are_joinable(self.window, self.strides, self.images, self.phases)
        if self.has_matrices or not joinable:
            return 0
        pitch = (self.output_width - 1) * self.strides[1] + self.window[1]
        return (self.output_rows - 1) * -(-pitch // self.phases) + self.output_width


def are_joinable(
    window: Sequence[int], strides: Sequence[int], images: int, phases: int = 1
) -> bool:
    """Whether the windows of an output row follow those of the row before, at one distance.

    By more than single pixels they do in a single image: between two lies what is no multiple.
    Windows that do not overlap have too much in between, unless rows are in polyphase layout.
    """
    down, right = strides
    if down != right or down == 1:
        return down == right
    return images == 1 and (down < min(window) or phases == down)


def tile_count(pixels: int, rows: int) -> int:
    """Tiles of so many pixels, the last of which may overlap the one before it."""
    return -(-pixels // rows)
