"""Names of kernels follow the grammar, and tell signatures and bodies apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hw.isa import ISAS, isa_of
from hw.profile import Hardware
from stages.kernels.problems import Problem
from stages.kernels.signature import KernelSignature, stored_by
from stages.synthesizing.microkernel import MicroKernel
from stages.synthesizing.sketches import signatures_for
from tests.stages.synthesizing.bodies import (
    FLUSHES,
)
from tests.stages.synthesizing.plans import (
    PLANS,
    PROBLEMS,
    WIDER,
    mac8,
    popcount,
)
from tests.stages.synthesizing.test_microkernel import tiles
from tests.targets import (
    I8MM,
    PROFILES,
)

# The grammar of stages/kernels/signature.py.
PLANES = r"(x[0-9a-f]+)*"
SUMS = r"(sm?[0-9]+(_m?[0-9]+)*)*"
NAME = re.compile(
    r"(popcount_(and|xor|choose_a|choose_w|mix)[1-9][0-9]*"
    rf"_a[1-3]{PLANES}_w[1-3]{PLANES}_(?P<encoding>unipolar|bipolar|signed)(_of{PLANES}{SUMS})?"
    r"(_by([468]|1[26])|_coupled[24])?"
    r"|mac8_((s?dot|pairs)[124](_a7)?(_w64)?(_by[234])?|s?matrix8(_a7)?_by[24]|wide_dot[12](_by[24])?|narrow(8|16)_a[1-7]_w[1-9][0-9]*)|mac16_winograd_dot[12](_by[24])?)"
    r"_(?P<tile>([1-8]|1[024])x(4|8|16|32))_(?P<flush>window|row|chunk|none)"
    rf"_(?P<isa>{'|'.join(ISAS)})"
)


def everything(hardware: Hardware) -> Iterator[KernelSignature]:
    """Every signature there can be: all tiles, all flushes, beside the planes of one other."""
    isa = isa_of(hardware)
    for number, problem in enumerate([*PROBLEMS, *WIDER, Problem(8, 8, "signed")]):
        for signature in signatures_for(problem, isa):
            if signature.lut is not None:
                continue  # see tests.stages.synthesizing.test_lut_body
            yield signature
            if (signature.rows, signature.channels) != (1 + number % 2, isa.lanes):
                continue
            if signature.flush_period:
                yield from (signature.flushed(flush) for flush in FLUSHES)
            if (plan := signature.plan) is not None:
                for other in PLANS:
                    if other.activation_bits == plan.activation_bits:
                        yield signature.reading(stored_by(plan).joined(stored_by(other)))
                        yield signature.reading(stored_by(other).joined(stored_by(plan)))


def test_names_follow_the_grammar_and_tell_signatures_apart() -> None:
    found: dict[str, KernelSignature] = {}
    for hardware in (*PROFILES, I8MM):
        for signature in everything(hardware):
            name = signature.name
            match = NAME.fullmatch(name)
            assert match, name
            assert name.isidentifier() and name.isascii()
            tile = f"{signature.rows}x{signature.channels}"
            assert match["tile"] == tile and match["isa"] == signature.isa, name
            assert match["flush"] == signature.flush, name
            assert match["encoding"] == (signature.plan.weights if signature.plan else None)
            assert found.setdefault(name, signature) == signature, name
    assert len(set(found.values())) == len(found) > 10_000


def test_bodies_have_their_names_and_one_text_each() -> None:
    """Profiles of one instruction set share kernels."""
    found: dict[str, str] = {}
    for hardware in PROFILES:
        signatures = [mac8(hardware, rows, v) for rows in (1, 8) for v in tiles(hardware)]
        flushes = FLUSHES if isa_of(hardware).counts_bytes else ("none",)
        signatures += [popcount(hardware, p, f, 1) for p in PLANS for f in flushes]
        for signature in signatures:
            text, _ = MicroKernel(signature, isa_of(hardware)).text()
            assert f"@{signature.name}(" in text
            assert found.setdefault(signature.name, text) == text
