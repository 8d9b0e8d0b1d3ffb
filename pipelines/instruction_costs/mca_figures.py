"""Figures of machine instructions from the scheduling models of llvm-mca."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from hw.arm_cores import ARM_CORES
from hw.profile import Core
from pipelines.errors import UserError
from pipelines.instruction_costs.figures import Figure

PROGRAM = "llvm-mca"
_NAMES: Mapping[Core, str] = {"icelake": "icelake-server"}
# A core whose model llvm-mca lacks, or of which nothing is known → the model that stands in.
_STAND_INS: Mapping[Core, str] = {
    "alderlake": "icelake-server",
    "sapphirerapids": "icelake-server",
    "generic-x86-64": "icelake-server",
    **{name: core.stand_in for name, core in ARM_CORES.items() if core.stand_in},
}
_LOADING = re.compile(r"p[23]|l.*")
CORRECTED = (
    "as mca, but: 512-bit operations kept off port 1, as the model itself does except where the "
    "patterns of X86SchedIceLake.td and X86SchedSkylakeServer.td lump VPADD and VPTERNLOG with "
    "narrower ones; unmasked 512-bit loads and broadcasts as one load micro-operation, as the "
    "256-bit ones; VPOPCNT on port 5 with latency 3 (uops.info at second hand, unconfirmed); "
    "VPERMT2B as three micro-operations, two of them on port 5, with latency 5 (uops.info, as "
    "LLVM's pull request 199633 has it)"
)
_UNIT = re.compile(r".*(Port|Unit)(.+)")


def source(core: Core) -> str:
    """What made the figures; UserError where the program is not installed."""
    if shutil.which(PROGRAM) is None:
        raise UserError(f"{PROGRAM} is not installed; run: apt install llvm")
    found = re.search(r"version (\S+)", _run(["--version"], ""))
    version = found.group(1) if found else "of unknown version"
    text = (
        f"{PROGRAM} {version}, -mcpu={_model(core)}: the micro-operations of a row's machine code"
    )
    return text + (f"; stands in for {core}, of which it has no model" * (core in _STAND_INS))


def _model(core: Core) -> str:
    return _STAND_INS.get(core) or _NAMES.get(core, core)


def figures(core: Core, triple: str, lines: Sequence[str]) -> dict[str, Figure]:
    """The figure of every line of machine code, each on its own."""
    options = [f"-mtriple={triple}", f"-mcpu={_model(core)}", "-instruction-tables", "--json"]
    if features := ",".join(ARM_CORES[core].features if core in ARM_CORES else ()):
        options.append(f"-mattr={features}")  # a stand-in may know the form, but not have it
    answer = json.loads(_run(options, "\n".join(lines) + "\n"))
    resources = answer["TargetInfo"]["Resources"]
    (region,) = answer["CodeRegions"]
    pressure: list[dict[str, float]] = [{} for _ in lines]
    for item in region["ResourcePressureView"]["ResourcePressureInfo"]:
        if item["InstructionIndex"] < len(lines):  # behind the last one stand the sums
            pipe = _pipe(resources[item["ResourceIndex"]])
            pressure[item["InstructionIndex"]][pipe] = item["ResourceUsage"]
    information = region["InstructionInfoView"]["InstructionList"]
    return {
        line: corrected(line, Figure(micro_operations(pressed), float(found["Latency"]), "mca"))
        for line, pressed, found in zip(lines, pressure, information, strict=True)
    }


def corrected(line: str, figure: Figure) -> Figure:
    """The figure without what is known to be wrong in the models of Intel's cores: see CORRECTED.

    They give EVEX loads the micro-operation that only masked ones have, 512-bit operations the
    port 1 that is closed to them, and VPOPCNT and VPERMT2B placeholders.
    """
    uses = dict(figure.uses)
    if "(%" in line:
        uses = {
            pipes: n for pipes, n in uses.items() if all(map(_LOADING.fullmatch, pipes.split("+")))
        }
    elif line.startswith("vpopcnt"):
        return Figure({"p5": 1.0}, 3.0, "corrected")
    elif line.startswith("vpermt2b"):
        return Figure({"p0+p5": 1.0, "p5": 2.0}, 5.0, "corrected")
    elif "%zmm" in line and "p0+p1+p5" in uses:
        uses["p0+p5"] = uses.get("p0+p5", 0.0) + uses.pop("p0+p1+p5")
    return Figure(uses, figure.latency, figure.source if uses == figure.uses else "corrected")


def micro_operations(pressure: Mapping[str, float]) -> dict[str, float]:
    """The micro-operations behind a pressure that is spread evenly over the pipes they may take.

    What all the pipes bear at least came from micro-operations that may go to any of them; the
    rest, on fewer pipes, is taken apart likewise. Loading is apart from computing. This is exact
    where the sets of pipes contain each other.
    """
    uses: dict[str, float] = {}
    for loading in (True, False):
        left = {
            pipe: n for pipe, n in pressure.items() if bool(_LOADING.fullmatch(pipe)) == loading
        }
        while left:
            least = min(left.values())
            uses["+".join(sorted(left))] = round(least * len(left), 2)
            left = {pipe: value - least for pipe, value in left.items() if value - least > 1e-6}
    return uses


def _pipe(resource: str) -> str:
    """The name of a pipe: `ICXPort5` → `p5`, `A57UnitX` → `x`.

    Units of one kind are told apart by a character of their number behind a dot.
    """
    resource = re.sub(r"[\0-\x1f]", lambda number: str(ord(number.group())), resource)
    found = _UNIT.fullmatch(resource)
    if found is None:
        return resource.lower()
    return ("p" if found.group(1) == "Port" else "") + found.group(2).lower()


def _run(options: Sequence[str], text: str) -> Any:
    done = subprocess.run(
        [PROGRAM, *options], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(f"{PROGRAM} {' '.join(options)}: {done.stderr.strip()}")
    return done.stdout
