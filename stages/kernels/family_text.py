"""Ways to multiply as plain data: one set of keys for all families, more only where they differ.

Names of compiled kernels depend on it, so another family must not change what the others look like.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stages.kernels.families import (
    BytePairs,
    Dots,
    FloatDots,
    MatrixDots,
    NarrowDots,
    PairedDots,
    Products,
    Signed,
    SignedDots,
    SignedMatrixDots,
    TileDots,
    TransformedDots,
    WideDots,
)
from stages.kernels.operand_storage import BYTE_LIMIT, WORD_BITS
from stages.kinds import Table


def to_plain(products: Products) -> Table:
    """What a kernel multiplies and how, whatever its family."""
    code = products.code if isinstance(products, Dots | TileDots) else None
    data: Table = {
        "group": products.group,
        "bits": products.bits,
        "activation_bits": products.activation_bits,
        "weight_limit": products.weight_limit,
        "tile": products.words if isinstance(products, TileDots) else 0,
        "element": products.element,
        "are_transformed": isinstance(products, TransformedDots),
        "code": None if code is None else asdict(code),
    }
    if isinstance(products, Signed):
        data["is_signed"] = True
        if products.rebased:
            data["rebased"] = True
    several = Dots | MatrixDots | Signed | WideDots | TransformedDots | FloatDots
    if isinstance(products, several) and products.words > 1:
        data["words"] = products.words
    if products.pixels > 1:
        data["pixels"] = products.pixels
    return data


def from_plain(data: Table) -> Table:
    """The fields of the family that `to_plain` made the data of."""
    group, element, limit = data["group"], data["element"], data["weight_limit"]
    bits, levels, words = data["bits"], data["activation_bits"], data.get("words", 1)
    is_matrix = data.get("pixels", 1) > 1
    if data["tile"]:
        return _fields(TileDots, group=group, words=data["tile"], of=element, code=data["code"])
    if data["are_transformed"]:
        return _fields(TransformedDots, group=group, of=element, words=words)
    if element == "int16":
        return _fields(WideDots, group=group, limit=limit, words=words)
    if element != "int8":
        return _fields(FloatDots, group=group, of=element, words=words)
    if data.get("is_signed", False):
        family = SignedMatrixDots if is_matrix else SignedDots if limit == BYTE_LIMIT else BytePairs
        rebased = data.get("rebased", False)
        return _fields(family, group=group, level_bits=levels, words=words, rebased=rebased)
    if is_matrix:
        return _fields(MatrixDots, group=group, words=words)
    if bits < WORD_BITS:
        return _fields(NarrowDots, group=group, lane_bits=bits, level_bits=levels, limit=limit)
    if limit < BYTE_LIMIT:
        return _fields(PairedDots, group=group, limit=limit)
    return _fields(Dots, group=group, words=words, code=data["code"])


def _fields(family: Any, **fields: Any) -> Table:
    return {**fields, "kind": family.kind}
