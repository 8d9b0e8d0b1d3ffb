"""`doit explain kernel=NAME`: one kernel as a readable listing with its derivation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hw.isa import isa_of
from hw.profile import Hardware
from pipelines import targets
from pipelines.errors import UserError, did_you_mean
from pipelines.recipe.overrides import Variables

if TYPE_CHECKING:
    from hw.isa import Isa
    from stages.kernels.kernel_candidates import KernelCandidate
    from stages.kernels.problems import Problem
    from stages.kernels.signature import KernelSignature

_FULL = re.compile(r"full(8|16)_a([1-3])w([1-3])_(unipolar|bipolar)")
_PROBLEM = re.compile(r"a([1-3])w([1-3])_(unipolar|bipolar|signed)")
_FAMILIES = ("popcount_", "lookup_", "mac8_", "mac16_", "macf32_", "macbf16_", "macf16_")
_FORMS = (
    "a kernel's name, as `doit kernels` writes it with json=FILE; or a product such as "
    "a2w2_bipolar, whose best kernel is shown; or full8_a2w2_bipolar, reduced in one call (NEON)"
)


def run(*, variables: Variables) -> None:
    """Print a kernel: what it counts and why, what was proved, its program, its cost."""
    command = variables.command
    name = command.get("kernel")
    if not name:
        raise UserError(f"kernel= is missing; give {_FORMS}")
    sets = [profile.isa for profile in targets.profiles(None, None)]
    named = next((s for s in sets if name.endswith(f"_{s}")), None)
    machine = targets.native()
    isa = command.get("isa") or named or _usual(name, machine)
    core = command.get("core") or (machine.core if machine and machine.isa == isa else None)
    hardware = targets.profiles(isa, core)[0]
    lines = _full_kernel(name, hardware) if _FULL.fullmatch(name) else _carried(name, hardware)
    print("\n".join(lines))


def _usual(name: str, machine: Hardware | None) -> str:
    """The instruction set for a name that says none: this machine's, or NEON."""
    return machine.isa if machine and not _FULL.fullmatch(name) else "neon_armv7"


def _problem(match: re.Match[str]) -> Problem:
    from stages.kernels.problems import Problem

    n, m, encoding = match.groups()[-3:]
    return Problem(int(n), int(m), encoding)  # type: ignore[arg-type]


def _carried(name: str, hardware: Hardware) -> list[str]:
    from stages.synthesizing.bodies import body_of
    from stages.synthesizing.certificate import prove
    from stages.synthesizing.enumeration import candidates_for
    from stages.synthesizing.explanation import explanation, passes, proof_text

    if match := _PROBLEM.fullmatch(name):
        problem = _problem(match)
        candidates = candidates_for(problem, hardware)
        # Transformed products are for windows of 3x3 pixels alone.
        signature = next(o.signature for o in candidates if not o.signature.is_transformed)
    else:
        signature, problem = _named(name, hardware)
        candidates = candidates_for(problem, hardware)
    isa = isa_of(hardware)
    facts = prove(signature, isa, body_of(signature, isa))
    a, w = ("a{plane}", "w{plane}") if signature.step == 1 else ("a{word}", "w{word}")
    lanes = isa.lanes * (2 if signature.accumulates_float16 and signature.multiplies_by_lane else 1)
    return [
        f"{signature.name} on {hardware.core}",
        "",
        *explanation(signature),
        "",
        f"a tile of {signature.rows} pixels {a}.{{pixel}} by {signature.channels} channels "
        f"{w}.{{register}}, {lanes // signature.pixels} a register; for each of both",
        *passes(signature, body_of(_smallest(signature, problem, isa), isa)),
        "",
        "proved for all inputs",
        *(f"  {line}" for line in proof_text(facts)),
        _predicted(signature, candidates),
    ]


def _smallest(signature: KernelSignature, problem: Problem, isa: Isa) -> KernelSignature:
    """The tile of one pixel and fewest channels, whose program a larger tile's repeats."""
    from stages.synthesizing.sketches import signatures_for, tiles_of

    known = (*signatures_for(problem, isa), *tiles_of(problem, isa))
    alike = [s for s in known if s.method == signature.method]
    return min(alike, key=lambda s: (s.rows, s.channels))


def _named(name: str, hardware: Hardware) -> tuple[KernelSignature, Problem]:
    """The candidate of a name, of whichever problem; UserError if there is none."""
    from stages.kernels.problems import BYTES, FLOAT_PROBLEMS, WIDE_WEIGHTS, Problem
    from stages.synthesizing.sketches import signatures_for, tiles_of
    from stages.synthesizing.survey import PRECISIONS

    isa = isa_of(hardware)
    if not name.startswith(_FAMILIES):
        raise UserError(f"kernel={name}: not a kernel; accepted is {_FORMS}")
    problems = [
        Problem(n, m, encoding)
        for n, m in PRECISIONS
        for encoding in ("unipolar", "bipolar", "signed")
        if (m, encoding) != (1, "signed")
    ]
    found: dict[str, tuple[KernelSignature, Problem]] = {}
    for problem in (*problems, BYTES, WIDE_WEIGHTS, *FLOAT_PROBLEMS.values()):
        for signature in (*signatures_for(problem, isa), *tiles_of(problem, isa)):
            for flush in (signature.flush, "row", "chunk"):
                flushed = signature.flushed(flush)
                found.setdefault(flushed.name, (flushed, problem))
    if name not in found:
        raise UserError(
            f"kernel={name}: {hardware.isa} on {hardware.core} has no such kernel"
            f"{did_you_mean(name, list(found))}"
        )
    return found[name]


def _predicted(signature: KernelSignature, candidates: list[KernelCandidate]) -> str:
    for candidate in candidates:
        if candidate.signature.flushed(signature.flush) == signature:
            cycles = 1000 * candidate.cycles_per_mac
            return f"predicted: {cycles:.2f} cycles per 1000 multiply-accumulates"
    return "no candidate: others of its kind are cheaper, or do not spill registers"


def _full_kernel(name: str, hardware: Hardware) -> list[str]:
    from stages.synthesizing.explanation import derivation, program_text
    from stages.synthesizing.survey import full_reduction_survey

    match = _FULL.fullmatch(name)
    assert match is not None
    if not hardware.isa.startswith("neon"):
        raise UserError(f"kernel={name}: only NEON kernels reduce in one call, not {hardware.isa}")
    chunk = int(match.group(1))
    found = full_reduction_survey(_problem(match), hardware, chunk=chunk)
    after = found.after_llvm
    return [
        f"{name} on {hardware.core}: 8x{chunk} bytes of weights by {chunk} bytes of activations",
        "",
        *derivation(found.spec.plan),
        "",
        f"w{{plane}}.{{register}}.{{use}}: {16 // chunk} rows of {chunk} bytes; a{{plane}}: the "
        "same for every row; sums: 16 bits a row",
        *program_text(found.program),
        "",
        "proved for all inputs: every sum gains its own row's products, up to u and v",
        f"after LLVM: {after.arithmetic} arithmetic instructions, {after.loads} loads, "
        f"{after.stores} stores, {after.moves} copies, {after.constants} constants",
    ]
