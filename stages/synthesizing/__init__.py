"""Synthesizing: the engine that finds, proves and writes the inner loops.

`enumerate_kernels` lists the candidate kernels for the products of a model, with the predicted cost
of each on the core; legalizing and bit-packing choose among them. `run` writes the bodies of those
chosen, each with its proof. Both depend on products and signatures alone, not on layers: models and
recipes for one core share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from hw.core_costs import core_costs
from hw.isa import isa_of
from hw.isa.fingerprint import fingerprint
from hw.profile import Hardware
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.graph.bindings import bindings_of
from stages.graph.composites import is_float_product, is_linear
from stages.graph.layer_forms import problems_of
from stages.kernels.kernel_candidates import to_table
from stages.kernels.packed_conv2d import is_convolution, rows_of
from stages.kernels.packed_winograd import inputs_of
from stages.kernels.problems import FLOAT16, FLOAT_PROBLEMS, Problem
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature, signature_text
from stages.kinds import Model, Table
from stages.nodes import Call
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import certify
from stages.synthesizing.enumeration import candidates_for
from stages.synthesizing.microkernel import kernel_text
from stages.synthesizing.tile_body import shaping_text

__all__ = ["check", "enumerate_kernels", "run", "wanted"]

Memo = Callable[[str, Mapping[str, object], Callable[[], bytes]], bytes]


def enumerate_kernels(*, model: Model, hardware: Hardware, memo: Memo) -> Table:
    """Name of a problem → candidates, for every product of levels in a quantized model."""
    isa = isa_of(hardware)
    table: Table = {}
    for problem in sorted(_problems(model), key=lambda problem: problem.name):
        ingredients = {
            "problem": problem.name,
            "instructions": fingerprint(isa, float16=problem == FLOAT16),
            "costs": core_costs(hardware.core).ingredients(),
            # Candidates are counted as LLVM compiles them.
            "target": [hardware.triple, hardware.cpu, list(hardware.features)],
            "caches": [hardware.l1d_kib, hardware.l2_kib],
        }
        build = partial(_encoded_candidates, problem, hardware)
        table[problem.name] = json.loads(memo("candidates", ingredients, build))
    return table


def run(*, model: Model, hardware: Hardware, memo: Memo) -> Table:
    """Kernel name → function text, declarations it needs, certificate."""
    isa = isa_of(hardware)
    table: Table = {}
    fresh: Table = {}

    def proved(signature: KernelSignature) -> bytes:
        entry = synthesized(signature, hardware)
        fresh[signature.name] = entry["certificate"]
        return _encoded(entry)

    for signature in wanted(model):
        rows = fingerprint(isa, float16=signature.accumulates_float16)
        ingredients = {"kernel": signature_text(signature), "instructions": rows}
        table[signature.name] = json.loads(memo("body", ingredients, partial(proved, signature)))
    check(table, model, hardware, fresh)
    return table


def synthesized(signature: KernelSignature, hardware: Hardware) -> Table:
    """The body of one signature with its certificate; ProofError if it cannot be proved.

    A body of tiles comes with `shaping`, the functions that go around all calls of a thread.
    """
    isa = isa_of(hardware)
    body = body_of(signature, isa)
    text, declarations = kernel_text(signature, isa, body)
    certificate = certify(signature, isa, body, text)
    entry: Table = {"text": text, "declarations": declarations, "certificate": certificate}
    if signature.is_tiled:
        entry["shaping"] = shaping_text(signature)
    return entry


def check(
    table: Table, model: Model, hardware: Hardware, fresh: Mapping[str, Table] | None = None
) -> None:
    """Raise AssertionError unless every call has a body whose certificate, made anew, covers it.

    Those in `fresh` were made a moment ago, for the same texts.
    """
    isa = isa_of(hardware)
    proved: Table = dict(fresh or {})
    for call, signature in _uses(model):
        name = signature.name
        entry = table[name]
        if name not in proved:
            proved[name] = certify(signature, isa, body_of(signature, isa), entry["text"])
        assert entry["certificate"] == proved[name], name
        words, between = _words(call, signature)
        assert words <= proved[name]["proved"]["most_words"], name
        assert not signature.flush_period or between <= signature.flush_period, name


def wanted(model: Model) -> list[KernelSignature]:
    """The distinct signatures of a packed model, by name; no two may share one."""
    found: dict[str, KernelSignature] = {}
    for _, signature in _uses(model):
        assert found.setdefault(signature.name, signature) == signature, signature.name
    return [found[name] for name in sorted(found)]


def _problems(model: Model) -> set[Problem]:
    """The products of a model that has not been legalized, as its layers may compute them."""
    calls = [b.value for b in bindings_of(model.module["main"]) if isinstance(b.value, Call)]
    found = {FLOAT_PROBLEMS[dtype_of(c.args[0].ty)] for c in calls if is_float_product(c)}
    for call in calls:
        if is_linear(call) or is_op(call, names.QNN_BATCH_DENSE):
            found |= problems_of(call, model.params.get(str(call.args[1].name)))
    return found


def _uses(model: Model) -> list[tuple[Call, KernelSignature]]:
    """Every packed convolution with its kernel, and once more with that kernel's fallback."""
    uses = [
        (binding.value, parse_signature(attributes(binding.value)["signature"]))
        for function in model.module.functions.values()
        if "composite" in (function.attrs or {})
        for binding in bindings_of(function)
        if is_convolution(binding.value)
    ]
    fallbacks = [(call, signature.fallback) for call, signature in uses]
    return uses + [(call, fallback) for call, fallback in fallbacks if fallback is not None]


def _words(call: Call, signature: KernelSignature) -> tuple[int, int]:
    """Words of a window, and how many of them are counted before counters are flushed."""
    if signature.is_transformed:
        words = inputs_of(call) // signature.channels_per_word
        return words, words
    rows, row = rows_of(call, signature)
    by_flush = {
        "none": rows * row,
        "window": rows * row,
        "row": row,
        "chunk": signature.flush_period,
    }
    return rows * row, by_flush[signature.flush]


def _encoded_candidates(problem: Problem, hardware: Hardware) -> bytes:
    return _encoded(to_table(candidates_for(problem, hardware)))


def _encoded(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
