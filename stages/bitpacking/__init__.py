"""Bit-packing: a kernel signature per layer and a layout per edge, packing as a decision.

Afterwards every composite reads and writes tensors as they lie in memory: bit planes or bytes with
halos, weights in the order their kernel reads them, biases with every correction folded in.
"""

from __future__ import annotations

from hw.profile import Hardware
from stages.bitpacking.choosing import subjects_on_bytes
from stages.bitpacking.products import pack_products
from stages.bitpacking.products import subjects as products
from stages.bitpacking.rewrite import Packer
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.builder import bindings_of, calls_of
from stages.qnn.composites import is_apart, is_plain
from stages.qnn.measured import Subject
from stages.qnn.registry import dtype_of

__all__ = ["check", "run", "subjects"]

STORED = ("float32", "float64", "bfloat16", "float16", "uint8", "uint32", "int16")


def run(
    *, model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """Choose signatures among the offers and layouts, and pack weights accordingly."""
    if is_plain(model):
        return pack_products(model, options, offers, choices, hardware)
    result = Packer(model, options, offers, choices, hardware).run()
    if any(is_apart(function) for _, function in calls_of(result)):
        result = pack_products(result, options, offers, choices, hardware)
    check(result)
    return result


def subjects(*, model: Model, options: LegalizeOptions, offers: Table) -> dict[str, Subject]:
    """Layer → what there is to choose for it, of those whose products are of bytes or floats."""
    found = products(model=model, options=options, offers=offers)
    if is_plain(model):
        return found
    return found | subjects_on_bytes(model.module, model.params, options, offers)


def check(model: Model) -> None:
    """Raise AssertionError if a tensor between composites is not stored as planes or bytes."""
    for binding in bindings_of(model.module["main"]):
        kind = binding.var.ty
        fields = list(kind.fields) if hasattr(kind, "fields") else [kind]
        assert all(dtype_of(field) in STORED for field in fields), binding.var.name
