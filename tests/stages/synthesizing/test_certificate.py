"""Certificates: what is proved for all inputs, and what a proof refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hw.isa import Operation, isa_of
from hw.isa.fingerprint import fingerprint
from hw.profile import Hardware
from stages.kernels.families import NarrowDots
from stages.kernels.problems import Problem
from stages.kernels.signature import KernelSignature
from stages.synthesizing import synthesized
from stages.synthesizing.bodies import Body, body_of, paired_products
from stages.synthesizing.certificate import ProofError, certify, digest, prove
from stages.synthesizing.sketches import signatures_for
from tests.stages.synthesizing.plans import PLANS, PROBLEMS, mac8, plan_named, popcount
from tests.targets import AARCH64, AVX2, AVX512BW, AVX512VNNI, AVX512VPOPCNTDQ, EVERY


@EVERY
def test_every_plan_is_proved(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    for plan in PLANS:
        signature = popcount(hardware, plan, rows=2)
        facts = prove(signature, isa, body_of(signature, isa))
        assert facts["level_pairs"] == 1 << (plan.activation_bits + plan.weight_bits)
        assert facts["activation_sum"] == list(plan.activation_sum)
        assert facts["most_words"] > 3 * 3 * 2048 / 32


@EVERY
def test_products_of_every_method_are_proved(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    for problem in (*PROBLEMS, Problem(8, 8, "signed")):
        for signature in signatures_for(problem, isa):
            if signature.products is not None and signature.rows == 1:
                assert prove(signature, isa, body_of(signature, isa))["scale"] == 1


@pytest.mark.parametrize("hardware", (AVX2, AVX512BW), ids=lambda item: item.name)
def test_pairs_of_larger_weights_cannot_be_proved(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    paired = paired_products(isa)
    assert paired is not None and paired.weight_limit == 64
    one = replace(mac8(hardware), products=paired)
    assert prove(one, isa, body_of(one, isa))["weight_limit"] == 64
    larger = replace(one, products=replace(paired, limit=65))
    with pytest.raises(ProofError, match="bits"):
        prove(larger, isa, body_of(larger, isa))


@EVERY
def test_a_flush_period_is_the_longest_that_can_be_proved(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    for problem in PROBLEMS:
        for signature in signatures_for(problem, isa):
            tile = signature.rows, signature.channels
            if signature.flush_period == 0 or tile != (1, isa.lanes):
                continue
            if signature.words > (4 if hardware == AVX512BW else 1):
                continue  # the same instructions, or no more to learn
            body = body_of(signature, isa)
            prove(signature, isa, body)
            longer = replace(signature, flush_period=signature.flush_period + signature.step)
            with pytest.raises(ProofError, match="bits holds"):
                prove(longer, isa, body)


def body_at(signature: KernelSignature, hardware: Hardware) -> Body:
    return body_of(signature, isa_of(hardware))


def test_a_body_of_another_plan_is_refused() -> None:
    isa = isa_of(AARCH64)
    one, other = (popcount(AARCH64, plan_named(kind, 2, 2, "bipolar")) for kind in ("xor4", "mix3"))
    for signature, body in ((one, body_at(other, AARCH64)), (other, body_at(one, AARCH64))):
        with pytest.raises(ProofError):
            prove(signature, isa, body)


def test_a_wrong_coefficient_scale_or_sum_is_refused() -> None:
    isa = isa_of(AVX512VPOPCNTDQ)
    signature = popcount(AVX512VPOPCNTDQ, plan_named("mix3", 2, 2, "bipolar"))
    plan = signature.plan
    assert plan is not None
    body = body_of(signature, isa)
    first, *rest = plan.terms
    tripled = replace(first, coefficient=3 * first.coefficient)
    for wrong in (
        replace(plan, scale=-plan.scale),
        replace(plan, activation_sum=(0, *plan.activation_sum[:-1])),
        replace(plan, terms=(tripled, *rest)),
        replace(plan, weights="unipolar"),
    ):
        with pytest.raises(ProofError):
            prove(replace(signature, plan=wrong, stored=None), isa, body)
    for number, one in enumerate(body.passes):
        if not one.ends_chain:
            continue
        passes = list(body.passes)
        passes[number] = replace(one, coefficient=one.coefficient + 1)
        with pytest.raises(ProofError):
            prove(signature, isa, replace(body, passes=tuple(passes)))


def test_a_pass_that_counts_nothing_or_twice_is_refused() -> None:
    isa = isa_of(AARCH64)
    signature = popcount(AARCH64, plan_named("xor2", 2, 1, "bipolar"))
    body = body_of(signature, isa)
    for passes in (body.passes[:1], (*body.passes, body.passes[0])):
        with pytest.raises(ProofError):
            prove(signature, isa, replace(body, passes=passes))


def test_products_of_larger_levels_than_promised_are_refused() -> None:
    isa = isa_of(AARCH64)
    for signature in signatures_for(Problem(3, 3, "bipolar"), isa):
        products = signature.products
        if not isinstance(products, NarrowDots) or signature.rows > 1:
            continue
        body = body_of(signature, isa)
        for wrong in (
            replace(products, level_bits=products.level_bits + 1),
            replace(products, limit=2 * products.limit),
        ):
            with pytest.raises(ProofError):
                prove(replace(signature, products=wrong), isa, body)


def test_a_certificate_names_what_was_proved() -> None:
    isa = isa_of(AVX512VNNI)
    signature = mac8(AVX512VNNI, 2)
    entry = synthesized(signature, AVX512VNNI)
    certificate = entry["certificate"]
    assert certificate["kernel"] == signature.name
    assert certificate["text"] == digest(entry["text"])
    assert certificate["instructions"] == fingerprint(isa)
    again = certify(signature, isa, body_of(signature, isa), entry["text"] + " ")
    assert again != certificate


def test_the_fingerprint_follows_text_and_meaning() -> None:
    isa = isa_of(AARCH64)
    row = isa[Operation.ADD_8]
    renamed = replace(isa, rows={**isa.rows, Operation.ADD_8: replace(row, emit=row.emit + " ")})
    other = replace(
        isa, rows={**isa.rows, Operation.ADD_8: replace(row, meaning=isa[Operation.XOR].meaning)}
    )
    assert len({fingerprint(x) for x in (isa, renamed, other)}) == 3
    assert fingerprint(isa_of(AARCH64)) == fingerprint(isa)
