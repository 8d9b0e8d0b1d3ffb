"""Synthesizing: a body in LLVM IR for every kernel signature a model wants, each with its proof.

Bodies belong to signatures, not to layers: models and recipes for one core share them.
"""

from __future__ import annotations

from typing import Any

from hw.isa import isa_of
from hw.profile import Hardware
from stages.kinds import Model, Table
from stages.qnn.builder import bindings_of
from stages.qnn.packed import parse_signature
from stages.qnn.registry import attributes, is_op
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
    """Raise AssertionError unless every wanted signature has a body with a valid certificate."""
    for signature in wanted(model):
        assert table[signature.name]["certificate"] == certify(signature), signature.name


def wanted(model: Model) -> list[KernelSignature]:
    """The distinct signatures of a packed model, by name."""
    found: dict[str, KernelSignature] = {}
    for function in _functions(model):
        for binding in bindings_of(function):
            if is_op(binding.value, "relax.qnn.packed_conv2d"):
                signature = parse_signature(attributes(binding.value)["signature"])
                found[signature.name] = signature
    return [found[name] for name in sorted(found)]


def _functions(model: Model) -> list[Any]:
    return [f for f in model.module.functions.values() if "composite" in (f.attrs or {})]
