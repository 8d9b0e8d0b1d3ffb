"""How large a model file and its tensors may be: checked before memory is taken."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

MAX_FILE_BYTES = 1 << 30
MAX_NODES = 20_000
MAX_ELEMENTS = 1 << 28
"""Largest tensor accepted, counted in elements; 2^28 float32 values are 1 GiB."""
LARGEST_WEIGHT = 1e30
"""Sums of products with larger weights or scales are infinite, or nearly so."""
SHAPE_RULE = (
    f"every extent must be at least 1 and the whole at most {MAX_ELEMENTS:,} elements"
)  # fmt: skip
"""What `is_accepted_shape` asks for, as messages say it."""


def is_accepted_shape(shape: Sequence[int]) -> bool:
    """Whether a tensor of this shape holds something, and not too much."""
    return all(extent > 0 for extent in shape) and prod(shape) <= MAX_ELEMENTS
