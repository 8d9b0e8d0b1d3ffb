"""Synthesizing: a body in LLVM IR for every kernel signature a model wants, each with its proof.

Bodies belong to signatures, not to layers: models and recipes for one core share them.
"""

from __future__ import annotations

from typing import Any

from hw.isa import ISAS, isa_of
from hw.profile import Hardware
from stages.kinds import Model, Table
from stages.qnn.builder import bindings_of
from stages.qnn.packed import parse_signature
from stages.qnn.registry import attributes, is_op, shape_of
from stages.qnn.signature import KernelSignature
from stages.synthesizing.certificate import certify
from stages.synthesizing.microkernel import MicroKernel

__all__ = ["check", "run", "wanted"]


def run(*, model: Model, hardware: Hardware) -> Table:
    """Kernel name → function text, declarations it needs, certificate."""
    isa = isa_of(hardware)
    table: Table = {}
    for signature in wanted(model):
        text, declarations = MicroKernel(signature, isa).text()
        table[signature.name] = {
            "text": text,
            "declarations": declarations,
            "certificate": certify(signature),
        }
    check(table, model)
    return table


def check(table: Table, model: Model) -> None:
    """Raise AssertionError unless every call has a body with a certificate that covers it."""
    for call, signature in _uses(model):
        assert table[signature.name]["certificate"] == certify(signature), signature.name
        if ISAS[signature.isa].counts_bytes and signature.family == "popcount":
            assert _words_between_flushes(call, signature) <= signature.flush_period, signature.name


def wanted(model: Model) -> list[KernelSignature]:
    """The distinct signatures of a packed model, by name."""
    found = {signature.name: signature for _, signature in _uses(model)}
    return [found[name] for name in sorted(found)]


def _uses(model: Model) -> list[tuple[Any, KernelSignature]]:
    return [
        (binding.value, parse_signature(attributes(binding.value)["signature"]))
        for function in model.module.functions.values()
        if "composite" in (function.attrs or {})
        for binding in bindings_of(function)
        if is_op(binding.value, "relax.qnn.packed_conv2d")
    ]


def _words_between_flushes(call: Any, signature: KernelSignature) -> int:
    """Words of a plane that one call counts in bytes before it empties them."""
    rows, columns = attributes(call)["window"]
    row = columns * shape_of(call.args[0].ty)[-1]
    by_flush = {"window": rows * row, "row": row, "chunk": signature.flush_period}
    return int(by_flush[signature.flush])
