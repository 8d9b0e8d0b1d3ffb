"""Activations that are stored as the signed bytes that kernels multiply, so that none flips them.

Instructions such as SDOT and SMULL take signed bytes, and levels of 8 bits are unsigned. What gives
a picture can write them less 128 (Jain et al. 2020, section IV-C, has the shift) for one
instruction a register, where each tile that reads it would need one a register again. It does so
where nothing reads the levels as they are, so that no picture is written twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from stages.bitpacking.handing import Handed, Product, handed
from stages.bitpacking.narrow import is_narrow
from stages.kinds import Model
from stages.qnn.builder import bindings_of, calls_of
from stages.qnn.composites import is_batched
from stages.qnn.registry import dtype_of, is_op


def rebased(
    model: Model, products: Mapping[Any, Product], depthwise: Collection[Any]
) -> tuple[dict[Any, Product], dict[Any, Handed]]:
    """The products, those of them on rebased pictures that can be, and how results are read.

    `depthwise` are variables of `main` whose composites can write a picture as it is wanted.
    """
    functions = {binding.var: function for binding, function in calls_of(model)}
    readers: dict[Any, list[Product]] = defaultdict(list)
    for product in products.values():
        readers[product.data].append(product)
    wished = {
        data
        for data, found in readers.items()
        if (data in products or data in depthwise)
        and not _is_looked_up(functions[data])
        and all(map(_can_be, found))
    }
    tried = handed(model, _on(products, wished), wished)
    kept = {data for data in wished if data in tried and tried[data].is_written}
    final = _on(products, kept)
    return final, handed(model, final, kept)


def _on(products: Mapping[Any, Product], pictures: Collection[Any]) -> dict[Any, Product]:
    """Products, those of some pictures on rebased ones."""
    return {v: _rebased(p) if p.data in pictures else p for v, p in products.items()}


def _rebased(product: Product) -> Product:
    chosen = replace(product.chosen, signature=product.chosen.signature.rebased)
    return replace(product, chosen=chosen, edge=replace(product.edge, rebased=True))


def _can_be(product: Product) -> bool:
    """Whether a product flips what it reads, and that is a picture as it lies."""
    edge, data = product.edge, product.data
    is_whole = edge.form == "bytes" and not is_narrow(edge) and edge.stacked == 1
    is_flipped = bool(product.chosen.signature.offset) and dtype_of(data.ty) == "uint8"
    return is_whole and is_flipped and not is_batched(product.inner.value)


def _is_looked_up(function: Any) -> bool:
    """Whether a composite stores what it looks up in a table, a vector at a time."""
    return any(is_op(binding.value, "relax.qnn.table") for binding in bindings_of(function))
