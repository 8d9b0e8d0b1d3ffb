"""Families of kernels that multiply: the ways to accumulate products, a class for each.

`multiply_accumulate.py` has what all of them have in common.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stages.kernels.byte_families import (
    BytePairs,
    Dots,
    MatrixDots,
    NarrowDots,
    PairedDots,
    Signed,
    SignedDots,
    SignedMatrixDots,
)
from stages.kernels.multiply_accumulate import Family
from stages.kernels.wide_families import (
    FloatDots,
    TileDots,
    TileElement,
    TransformedDots,
    WideDots,
)

__all__ = [
    "BytePairs",
    "Dots",
    "Family",
    "FloatDots",
    "MatrixDots",
    "NarrowDots",
    "PairedDots",
    "Products",
    "Signed",
    "SignedDots",
    "SignedMatrixDots",
    "TileDots",
    "TileElement",
    "TransformedDots",
    "WideDots",
]

Products = Annotated[
    Dots
    | SignedDots
    | BytePairs
    | MatrixDots
    | SignedMatrixDots
    | PairedDots
    | WideDots
    | NarrowDots
    | TransformedDots
    | TileDots
    | FloatDots,
    Field(discriminator="kind"),
]
"""A way to multiply and add up."""
