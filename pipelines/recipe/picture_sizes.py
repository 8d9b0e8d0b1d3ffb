"""Sizes of pictures as recipes state them: a number of pixels, or height and width."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _size(value: Any) -> int | tuple[int, int]:
    """Return a size in pixels; ValueError for what is none."""
    sides = value if isinstance(value, list | tuple) else [value]
    is_size = isinstance(value, int) or len(sides) == 2
    if not is_size or any(isinstance(side, bool) or not isinstance(side, int) for side in sides):
        found = str(value)[:40]
        raise ValueError(f"expected a whole number of pixels, or [height, width], found {found}")
    if min(sides) < 1:
        raise ValueError(f"{min(sides)} is too small; the least is 1")
    return (sides[0], sides[1]) if len(sides) == 2 else sides[0]


_Side = Annotated[int, Field(ge=1)]
Size = Annotated[_Side | tuple[_Side, _Side], BeforeValidator(_size)]
"""Pixels: of a square or a shorter side, or [height, width]."""


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return height and width of a size."""
    return size if isinstance(size, tuple) else (size, size)


def said(size: int | tuple[int, int]) -> str:
    """Return a size as a recipe states it."""
    return str(size if isinstance(size, int) else list(size))
