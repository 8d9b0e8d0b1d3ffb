"""Products of bytes, of signed ones as well: dots, matrices and pairs; activations less 128, a word
or several at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import assembly
from stages.kernels.families import Dots, MatrixDots, Signed, SignedDots
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK
from stages.synthesizing.bodies import body_of, dots_of_bytes
from stages.synthesizing.byte_pairs_body import byte_pairs
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.enumeration import candidates_for
from stages.synthesizing.explanation import explanation
from stages.synthesizing.matrix_body import matrix_dots
from stages.synthesizing.microkernel import MicroKernel, kernel_text
from stages.synthesizing.sketches import signatures_for
from tests.stages.synthesizing.bodies import Case, compile_cases, same, sums_of
from tests.stages.synthesizing.plans import mac8
from tests.targets import AARCH64, ARMV7, DOTPROD, I8MM, skip_unless_runnable

BITS = (2, 8)
"""Of activations: those of few bits are signed bytes as they are."""


def cases(hardware: Hardware) -> list[Case]:
    """Every way to take dot products of bytes, on windows that its steps divide."""
    found = []
    for bits in BITS:
        isa = isa_of(hardware)
        ways = dots_of_bytes(isa, bits) or byte_pairs(isa, bits)
        for number, products in enumerate((*ways, *matrix_dots(isa, bits))):
            rows = products.pixels * (1 + number % 3)
            kernel = mac8(hardware, rows, (1, 4, 8)[number % 3])
            words = products.words * (1 + number % 2)
            found.append(Case(replace(kernel, products=products), 2, 3, words, 1 + number % 2))
    return found


@pytest.mark.parametrize("hardware", [AARCH64, ARMV7, DOTPROD, I8MM], ids=lambda item: item.name)
def test_sums_are_those_of_levels_less_their_offset(hardware: Hardware) -> None:
    """At the extremes of both factors, and beginning with something."""
    skip_unless_runnable(hardware)
    every = cases(hardware)
    library, rng = compile_cases(every, hardware), np.random.default_rng(5)
    for case in every:
        products = case.signature.products
        assert products is not None
        top = (1 << products.activation_bits) - 1
        limit = products.weight_limit
        pairs = [(level, weight) for level in (0, top) for weight in (-limit, min(limit, 127))]
        for data, weights in (*(case.full(*pair) for pair in pairs), case.random(rng)):
            offset = 128 if top == 255 and isinstance(products, Signed) else 0
            signed = replace(case, signature=replace(case.signature, products=Dots(4)))
            lacking = offset * weights.reshape(BLOCK, -1).astype(np.int64).sum(1)
            plain = expected(signed, data, weights) - lacking
            same(sums_of(case, library, data, weights), plain.astype(np.int32), case)
            begin = rng.integers(-1000, 1000, BLOCK).astype(np.int32)
            found = sums_of(case, library, data, weights, begin)
            same(found, (plain + begin).astype(np.int32), case, "from")


def expected(case: Case, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Products of levels as they are, pixel by pixel."""
    columns = range(0, case.signature.rows * case.stride, case.stride)
    flat = [data[:, x : x + case.width].astype(np.int64).reshape(-1) for x in columns]
    return np.stack(flat) @ weights.reshape(BLOCK, -1).astype(np.int64).T


@pytest.mark.parametrize("hardware", [AARCH64, ARMV7, DOTPROD, I8MM], ids=lambda item: item.name)
def test_every_way_is_proved(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    for case in cases(hardware):
        facts = prove(case.signature, isa, body_of(case.signature, isa))
        assert facts.get("activations_less", 0) == case.signature.offset


def test_levels_that_no_signed_byte_holds_are_refused() -> None:
    """Unsigned bytes of 8 bits, which SDOT would take for negative ones."""
    isa, kernel = isa_of(DOTPROD), cases(DOTPROD)[-1].signature
    wrong = replace(kernel, products=SignedDots(4, 9))
    with pytest.raises(ProofError, match="holds 0 to 511, not -128 to 127"):
        prove(wrong, isa, body_of(wrong, isa))


def test_tiles_of_matrices_of_every_size() -> None:
    """Pairs of pixels by pairs of channels, in every tile that layers may take."""
    skip_unless_runnable(I8MM)
    isa = isa_of(I8MM)
    ways = [way for bits in BITS for way in matrix_dots(isa, bits)]
    tiles = [(rows, vectors) for rows in (2, 4, 6, 8) for vectors in (1, 2, 4, 8)]
    kernels = [
        replace(mac8(I8MM, *tile), products=ways[(number + number // 4) % len(ways)])
        for number, tile in enumerate(tiles)
    ]
    every = [Case(kernel, 3, 1, kernel.step, 1) for kernel in kernels]
    library, rng = compile_cases(every, I8MM), np.random.default_rng(3)
    for case in every:
        prove(case.signature, isa, body_of(case.signature, isa))
        data, weights = case.random(rng)
        lacking = case.signature.offset * weights.reshape(BLOCK, -1).astype(np.int64).sum(1)
        wanted = expected(case, data, weights) - lacking
        same(sums_of(case, library, data, weights), wanted.astype(np.int32), case)


def test_a_tile_has_pairs_of_pixels() -> None:
    kernel = mac8(I8MM, 3, 1)
    with pytest.raises(ValueError, match="3 pixels are not taken 2 at a time"):
        replace(kernel, products=MatrixDots(8, 2))


def test_a_wrong_order_of_sums_is_refused() -> None:
    """Sums of two pixels as an instruction leaves them, side by side."""
    isa = isa_of(I8MM)
    kernel = replace(mac8(I8MM, 2, 1), products=MatrixDots(8, 2))
    body = body_of(kernel, isa)
    (first, second), empty = body.flush.inputs.values(), replace(body.flush)
    empty.steps, empty.outputs = [], {"s0": (*first, *second)}
    with pytest.raises(ProofError, match="row 2, pixel 0: counts"):
        prove(kernel, isa, replace(body, flush=empty))


def test_a_lane_of_a_register_of_pixels_is_multiplied() -> None:
    """No copies of words: the instruction names a lane itself."""
    (kernel,) = (
        s
        for s in signatures_for(Problem(8, 8, "signed"), isa_of(DOTPROD))
        if s.name.startswith("mac8_sdot4_by4_4x16_")
    )
    made = {kernel.name: MicroKernel(kernel, isa_of(DOTPROD)).text()}
    lines = [line for line in assembly(made, 4, DOTPROD, [8] * 8)[kernel.name] if "dot" in line]
    assert {line.split("[")[1] for line in lines if "sdot" in line} >= {"0]", "1]", "2]", "3]"}
    assert not any("dup" in line for line in assembly(made, 4, DOTPROD, [8] * 8)[kernel.name])


def test_dot_products_are_the_cheapest_where_there_are_any() -> None:
    problem = Problem(8, 8, "signed")
    best = {}
    for hardware in (AARCH64, DOTPROD, I8MM):
        candidates = candidates_for(problem, hardware, 1)
        best[hardware.name] = next(
            candidate for candidate in candidates if candidate.algorithm == "mac8"
        )
    assert best["dotprod"].signature.name.startswith("mac8_sdot4_by4_")
    assert best["i8mm"].signature.name.startswith("mac8_matrix8_by4_")
    plain = best.pop("rpi3").cycles_per_mac
    assert all(candidate.cycles_per_mac < plain / 6 for candidate in best.values())


def test_what_is_multiplied_is_said() -> None:
    said = [explanation(case.signature)[-1] for case in cases(DOTPROD)]
    assert {line for line in said if "128" in line} == {
        "for a of 7 bits and w of at most 128",
        "multiplied is a - 128, a signed byte; the bias has 128 times the sum of w",
    }


def test_text_of_a_processor_without_them_stays() -> None:
    kernel = mac8(AARCH64, 2, 2)
    assert kernel_text(kernel, isa_of(AARCH64)) == kernel_text(kernel, isa_of(DOTPROD))
