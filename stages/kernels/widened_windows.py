"""Windows of bytes as integers of 16 bits, made for one tile of a kernel just before it runs.

A processor without products of bytes multiplies words, into which a kernel would have to spread the
same bytes once for every block of channels, a few at a time. Here a whole register of them is
spread at once, and what the kernel reads stays in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINE = 32
"""Elements of a line of the caches."""
BEHIND = 2
"""Elements behind a window that a kernel may read, though it uses none, or as many as its step."""
MOST_BYTES = 1 << 16
"""Bytes of the widened windows of a tile, at most: more would not stay in the L1 and L2 caches."""


@dataclass(frozen=True)
class Widened:
    """How the windows of a tile lie: pieces of memory, each widened as a whole.

    A piece is what the windows of a tile have of a row; where they have a single column, it is one
    pixel's, so that pixels that are not wanted are left out.
    """

    height: int
    """Rows of a window."""
    pieces: int
    """Pieces of a row of windows, which lie as far apart as the pixels of a tile."""
    elements: int
    """Elements of a piece."""
    step: int
    """Bytes that a window lies further on than the one before it."""
    behind: int = BEHIND
    """Elements behind a window that a kernel may read."""

    @property
    def pitch(self) -> int:
        """Elements from a piece to the next one: an odd number of lines, or all would be in the
        same few sets of a cache."""
        return (-(-(self.elements + self.behind) // LINE) | 1) * LINE

    @property
    def moved(self) -> int:
        """Elements that a window lies further on than the one before it."""
        return self.pitch if self.pieces > 1 else self.step

    @property
    def row(self) -> int:
        """Elements from a row of windows to the next one."""
        return self.pieces * self.pitch

    @property
    def size(self) -> int:
        """Elements of all pieces."""
        return self.height * self.row

    @property
    def stays_near(self) -> bool:
        """Whether the L1 and L2 caches hold them, of two bytes each."""
        return 2 * self.size <= MOST_BYTES


def widened(
    rows: int, window: Sequence[int], stride: int, pixel: int, unit: int = BEHIND
) -> Widened:
    """What the windows of a tile of so many pixels are, of pixels of so many bytes.

    `stride` is how many of these windows move by. A kernel reads a multiple of `unit` elements of
    each row of a window.
    """
    height, width = window
    pieces, columns = (rows, 1) if width == 1 else (1, (rows - 1) * stride + width)
    elements = columns * pixel + width * pixel % 2
    return Widened(height, pieces, elements, stride * pixel, max(BEHIND, unit))
