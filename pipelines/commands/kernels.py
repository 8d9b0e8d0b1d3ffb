"""`doit kernels`: what the synthesis engine makes for every precision and instruction set."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hw.profile import Hardware
from pipelines import targets
from pipelines.commands.arguments import repeat
from pipelines.output import printed_tables
from pipelines.paper.cgo_kernels import SYNTHESIS
from pipelines.recipe.overrides import Variables

if TYPE_CHECKING:
    from stages.layer_options import Encoding
    from stages.synthesizing.survey import WindowSurvey

PAPER_INSTRUCTIONS: Mapping[str, str] = {"A1W1": "24 (TVM 49)"}
"""Cowan et al., CGO 2020, Figure 6: instructions of the 8x8 by 8x1 kernel, the store included."""
ENCODINGS: Mapping[str, Encoding] = {
    "unipolar": "unipolar",
    "hybrid": "bipolar",
    "bipolar": "bipolar",
}
"""What weights are: unipolar in the first, bipolar in both others, which share their kernel, as
the zero point of bipolar activations goes into the bias."""
_DISTINCT = tuple(dict.fromkeys(ENCODINGS.values()))
_CARRIED = (
    *("configuration", "encoding", "plan", "popcounts", "sums", "tile", "cycles_per_1000_macs"),
    *("plain", "lookup", "8-bit", "synthesis_s", "proof_s", "paper_s"),
)
_FULL = (
    *("configuration", "encoding", "kernel", "plan", "instructions", "after_llvm", "copies"),
    *("paper", "synthesis_s", "proof_s", "paper_s"),
)
_TIMED = (
    *("configuration", "plan", "ps_per_mac", "share_of_peak", "times_as_fast_as_plain"),
    "times_as_fast_as_8-bit",
)


def run(*, variables: Variables) -> None:
    """Print a table per instruction set; repeat=N also times this processor's kernels N times."""
    command = variables.command
    profiles = targets.profiles(command.get("isa"), command.get("core"))
    started = time.monotonic()
    result: dict[str, Any] = {"carried": [], "full": [], "timed": []}
    for hardware in profiles:
        rows = _carried_rows(hardware)
        title = f"{hardware.isa} on {hardware.core}: counters carried from word to word, predicted"
        printed_tables.show(title, rows, _CARRIED)
        result["carried"] += rows
        if hardware.isa.startswith("neon"):
            rows = _full_rows(hardware)
            title = f"{hardware.isa} on {hardware.core}: reduced in one call, counted after LLVM"
            printed_tables.show(title, rows, _FULL)
            result["full"] += rows
    print(f"{time.monotonic() - started:.0f} s for all, from nothing")
    if rounds := repeat(variables):
        result["timed"] = _timed_rows(rounds)
    printed_tables.write_json(command.get("json"), result)


def _published(n: int, m: int) -> float | None:
    """Seconds of synthesis that the source has for a precision; None where it has no kernel."""
    published = SYNTHESIS.get(f"A{n}W{m}")
    return published[3] if published else None


def _carried_rows(hardware: Hardware) -> list[dict[str, Any]]:
    from stages.kernels.problems import Problem
    from stages.synthesizing import plan_discovery, survey

    plan_discovery.forget()
    rows = []
    for n, m in survey.PRECISIONS:
        kernels = {w: survey.window_survey(Problem(n, m, w), hardware) for w in _DISTINCT}
        for encoding, weights in ENCODINGS.items():
            found = kernels[weights]
            rows.append(
                {"isa": hardware.isa, "core": hardware.core} | _carried(n, m, encoding, found)
            )
    return rows


def _carried(n: int, m: int, encoding: str, found: WindowSurvey) -> dict[str, Any]:
    signature, plan = found.best.signature, found.best.signature.plan
    assert plan is not None
    return {
        "configuration": f"A{n}W{m}",
        "encoding": encoding,
        "plan": plan.kind,
        "popcounts": len(plan.terms),
        "sums": "yes" if plan.activation_sum else "no",
        "tile": f"{signature.rows}x{signature.channels}",
        "kernel": signature.name,
        "cycles_per_1000_macs": round(1000 * found.best.cycles_per_mac, 2),
        "plain": round(1000 * found.by_digits.cycles_per_mac, 2),
        "lookup": round(1000 * found.lookup.cycles_per_mac, 2) if found.lookup else None,
        "8-bit": round(1000 * found.products.cycles_per_mac, 2),
        "synthesis_s": round(found.synthesis, 3),
        "proof_s": round(found.proof, 3),
        "paper_s": _published(n, m),
    }


def _full_rows(hardware: Hardware) -> list[dict[str, Any]]:
    from stages.kernels.problems import Problem
    from stages.synthesizing import survey

    rows = []
    for chunk in (8, 16):
        for n, m in survey.PRECISIONS:
            kernels = {
                w: survey.full_reduction_survey(Problem(n, m, w), hardware, chunk=chunk)
                for w in _DISTINCT
            }
            for encoding, weights in ENCODINGS.items():
                found = kernels[weights]
                name, after = f"A{n}W{m}", found.after_llvm
                rows.append(
                    {
                        "isa": hardware.isa,
                        "configuration": name,
                        "encoding": encoding,
                        "kernel": f"8x{chunk} by {chunk}x1",
                        "plan": found.spec.plan.kind,
                        "instructions": len(found.program.steps),
                        "after_llvm": after.arithmetic,
                        "copies": after.moves,
                        "loads": after.loads,
                        "stores": after.stores,
                        "paper": PAPER_INSTRUCTIONS.get(name) if chunk == 8 else None,
                        "synthesis_s": round(found.synthesis, 3),
                        "reduction_s": round(found.reduction, 3),
                        "proof_s": round(found.proof, 3),
                        "paper_s": _published(n, m) if chunk == 8 else None,
                    }
                )
    return rows


def _timed_rows(rounds: int) -> list[dict[str, Any]]:
    """The best kernel of every precision and the best plain one, run on this processor."""
    from pipelines.benchmarks.kernel_timings import PEAK, timings
    from stages.kernels.problems import Problem
    from stages.synthesizing import survey

    hardware = targets.native()
    if hardware is None:
        print("this machine cannot be told, so nothing is timed")
        return []
    found = {
        f"A{n}W{m}": survey.window_survey(Problem(n, m, "bipolar"), hardware)
        for n, m in survey.PRECISIONS
    }
    signatures = {
        o.signature.name: o.signature
        for c in found.values()
        for o in (c.best, c.by_digits, c.products)
    }
    times = timings(list(signatures.values()), hardware, max(rounds, 2))
    peak = times[PEAK].median
    rows = []
    for name, best in found.items():
        kernel, by_digits, products = (
            times[o.signature.name].median for o in (best.best, best.by_digits, best.products)
        )
        plan = best.best.signature.plan
        assert plan is not None
        rows.append(
            {
                "configuration": name,
                "plan": plan.kind,
                "ps_per_mac": round(kernel, 3),
                "share_of_peak": f"{100 * peak * len(plan.terms) / kernel:.0f} %",
                "times_as_fast_as_plain": round(by_digits / kernel, 2),
                "times_as_fast_as_8-bit": round(products / kernel, 2),
                "kernel": best.best.signature.name,
            }
        )
    title = (
        f"{hardware.isa} on this processor, in the L1 cache, {rounds} rounds; "
        f"peak of and, count and add: {peak:.3f} ps a bit pair"
    )
    printed_tables.show(title, rows, _TIMED)
    return rows
