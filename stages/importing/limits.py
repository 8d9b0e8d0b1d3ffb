"""How large a model file may be: checked before memory is taken."""

from __future__ import annotations

MAX_FILE_BYTES = 1 << 30
MAX_NODES = 20_000
MAX_ELEMENTS = 1 << 28
"""Largest tensor accepted, counted in elements; 2^28 float32 values are 1 GiB."""
LARGEST_WEIGHT = 1e30
"""Sums of products with larger weights or scales are infinite, or nearly so."""
