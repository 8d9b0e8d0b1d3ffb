"""Kernel signatures for tests: every term plan of the fixed family, on any instruction set."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hw.isa import isa_of
from hw.profile import Hardware
from stages.bitpacking.choosing import flush_period
from stages.qnn.signature import Encoding, Flush, KernelSignature, popcount_terms

ENCODINGS: tuple[Encoding, ...] = ("unipolar", "bipolar", "signed")
PLANS = list(product(ENCODINGS, (1, 2, 3), (1, 2, 3)))
"""Encoding of the weights, activation planes, weight planes."""


def popcount(
    hardware: Hardware,
    plan: tuple[Encoding, int, int],
    flush: Flush | None = None,
    rows: int = 1,
    vectors: int = 1,
) -> KernelSignature:
    """A popcount signature; its byte counters are emptied once a window if nothing else is said."""
    weights, n, m = plan
    isa = isa_of(hardware)
    terms = popcount_terms("xor" if weights == "bipolar" else "and", n, m, weights == "signed")
    return KernelSignature(
        family="popcount",
        isa=isa.name,
        terms=terms,
        activation_planes=n,
        weight_planes=m,
        rows=rows,
        channels=vectors * isa.lanes,
        flush=flush or ("window" if isa.counts_bytes else "none"),
        flush_period=flush_period(terms),
        weights=weights,
    )


def mac8(hardware: Hardware, rows: int = 1, vectors: int = 1) -> KernelSignature:
    """A signature of 8-bit products."""
    isa = isa_of(hardware)
    base = popcount(hardware, ("signed", 1, 1), "none", rows, vectors)
    return replace(base, family="mac8", terms=(), flush_period=0, dot_group=isa.dot_group)
