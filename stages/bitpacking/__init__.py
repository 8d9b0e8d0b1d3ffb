"""Bit-packing: a kernel signature per layer and a layout per edge, packing as a decision.

Afterwards every composite reads and writes tensors as they lie in memory: bit planes or bytes with
halos, weights in the order their kernel reads them, biases with every correction folded in.
"""

from __future__ import annotations

from hw.profile import Hardware
from stages.bitpacking import choosing
from stages.bitpacking.graph import Graph
from stages.bitpacking.packing import pack
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.builder import bindings_of
from stages.qnn.measured import Subject
from stages.qnn.registry import dtype_of

__all__ = ["check", "run", "subjects"]

STORED = ("float32", "float64", "bfloat16", "float16", "uint8", "uint32", "int16")


def run(
    *, model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """Choose signatures among the offers and layouts, and pack weights accordingly."""
    return pack(model, options, offers, choices, hardware)


def subjects(*, model: Model, options: LegalizeOptions, offers: Table) -> dict[str, Subject]:
    """Layer → what there is to choose for it, where its data are bytes or floats."""
    return choosing.subjects(Graph(model), options, offers)


def check(model: Model) -> None:
    """Raise AssertionError if a tensor between composites is not stored as planes or bytes."""
    for binding in bindings_of(model.module["main"]):
        kind = binding.var.ty
        fields = list(kind.fields) if hasattr(kind, "fields") else [kind]
        assert all(dtype_of(field) in STORED for field in fields), binding.var.name
