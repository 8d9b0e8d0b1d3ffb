"""Which layers layer=PATTERN means."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import UserError, did_you_mean
from stages.layer_options import is_match

ALL = "all"


def matching(pattern: str, names: Sequence[str], kind: str, variable: str = "layer") -> list[str]:
    """Return the names that a pattern means, of what is called a `kind`; UserError if none."""
    matched = [name for name in names if is_meant(pattern, name)]
    if not matched:
        raise UserError(f"{variable}={pattern}: matches no {kind}{did_you_mean(pattern, names)}")
    return matched


def is_meant(pattern: str, name: str) -> bool:
    """Whether a pattern means a layer of this name."""
    return pattern == ALL or is_match(pattern, name)
