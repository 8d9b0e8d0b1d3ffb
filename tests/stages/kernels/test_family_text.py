"""Signatures as text: every family comes back, and what was written before stays as it was."""

from __future__ import annotations

import json

import pytest

from stages.kernels.families import (
    BytePairs,
    Dots,
    FloatDots,
    MatrixDots,
    NarrowDots,
    PairedDots,
    Products,
    SignedDots,
    SignedMatrixDots,
    TileDots,
    TransformedDots,
    WideDots,
)
from stages.kernels.operand_storage import WeightCode
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature, signature_text

EVERY: list[Products] = [
    *(Dots(4), Dots(4, words=2), Dots(4, code=WeightCode(2, True)), SignedDots(4, 7, 4)),
    *(
        SignedDots(4),
        *(MatrixDots(8, 2), MatrixDots(8, 4), SignedMatrixDots(8, 7, 2), SignedMatrixDots(8, 8, 4)),
        BytePairs(4),
        BytePairs(4, 7, 2),
        PairedDots(4, 64),
        WideDots(1),
        WideDots(2, 256),
        WideDots(1, words=4),
        NarrowDots(2, 16, 3, 4),
    ),
    *(TransformedDots(1), TransformedDots(1, words=2), TransformedDots(1, "float32")),
    *(
        TileDots(4, 16),
        TileDots(4, 8, code=WeightCode(1, False)),
        TileDots(2, 8, "bfloat16"),
        FloatDots(1),
    ),
    FloatDots(2, "bfloat16"),
    FloatDots(2, "float16"),
    FloatDots(1, "float16", 4),
]


def signature(products: Products) -> KernelSignature:
    return KernelSignature("avx2", None, products, 2, 32, "none", 0)


@pytest.mark.parametrize("products", EVERY, ids=lambda item: item.kind)
def test_every_family_comes_back(products: Products) -> None:
    kernel = signature(products)
    assert parse_signature(signature_text(kernel)) == kernel


def test_names_and_texts_tell_all_apart() -> None:
    kernels = [signature(products) for products in EVERY]
    assert len({kernel.name for kernel in kernels}) == len(EVERY)
    assert len({signature_text(kernel) for kernel in kernels}) == len(EVERY)


def test_the_text_is_what_names_of_compiled_kernels_were_made_of() -> None:
    """Of a family that has no use for what others have."""
    assert json.loads(signature_text(signature(Dots(4))))["products"] == {
        "activation_bits": 8,
        "are_transformed": False,
        "bits": 32,
        "code": None,
        "element": "int8",
        "group": 4,
        "tile": 0,
        "weight_limit": 128,
    }
