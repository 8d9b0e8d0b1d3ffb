"""A core's table, row by row, and its text: `hw/cores/<core>.yaml`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hw.arm_cores import ARM_CORES
from hw.core_costs import CoreCosts
from hw.isa import ISAS, tile_registers
from hw.profile import CORES, Core
from pipelines.instruction_costs.figures import Figure, throughput, total
from pipelines.instruction_costs.row_code import Row

_DESCRIPTIONS: Mapping[Core, str] = {
    **{name: core.description for name, core in ARM_CORES.items()},
    "haswell": "Intel Haswell to Skylake client, AVX2",
    "alderlake": "Large cores of Intel Alder Lake to Meteor Lake, AVX2 with AVX-VNNI",
    "cascadelake": "Intel Cascade Lake, AVX-512 with VNNI",
    "icelake": "Intel Ice Lake server, AVX-512 with VNNI, BITALG and VPOPCNTDQ",
    "sapphirerapids": "Intel Sapphire Rapids, AVX-512 with VNNI, BITALG, VPOPCNTDQ and AMX",
    "zen4": "AMD Zen 4, AVX-512 with VNNI, BITALG and VPOPCNTDQ on pipes of 256 bits",
    "zen5": "AMD Zen 5 with 512-bit pipes, AVX-512 with VNNI, BITALG and VPOPCNTDQ",
    "generic-x86-64": "A 64-bit x86 core about which nothing is known; costs as for Ice Lake",
}
_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual: allocation width of "
_ISSUE: Mapping[Core, tuple[float, str]] = {
    **{name: core.issue for name, core in ARM_CORES.items()},
    "haswell": (4, _INTEL + "Haswell"),
    "alderlake": (6, _INTEL + "Golden Cove"),
    "cascadelake": (4, _INTEL + "Skylake Server"),
    "icelake": (5, _INTEL + "Ice Lake"),
    "sapphirerapids": (6, _INTEL + "Golden Cove"),
    "zen4": (6, "Software Optimization Guide for the AMD Zen 4 Microarchitecture: dispatch width"),
    "zen5": (8, "Software Optimization Guide for the AMD Zen 5 Microarchitecture: dispatch width"),
    "generic-x86-64": (4, "the narrowest of the x86 cores here"),
}
ESTIMATES: Mapping[Core, tuple[Mapping[str, float], Mapping[str, str]]] = {
    "cortex-a53": (
        {"line": 9.2, "memory": 33},
        {
            "line": "hw/timing/cortex-a53.yaml: the latency of the L2 cache, for as many loads "
            "at a time as overlap",
            "memory": "hw/timing/cortex-a53.yaml: what moving a line takes, as if it were "
            "fetched ahead",
        },
    ),
    "cascadelake": (
        {"line": 1},
        {
            "line": "estimated from times on a Xeon at 2.5 GHz: what kernels that look up tables "
            "take more than predicted in ResNet-18's 3x3 layers, beside kernels that multiply "
            "bytes: 1.4 cycles a line with 64 channels, 0.6 with 128, 0.3 with 256",
        },
    ),
    "zen4": (
        {"exposed_epilogue": 1.5, "overlap_window": 8},
        {
            "exposed_epilogue": "estimated from times on an AMD EPYC at 3.7 GHz: convolutions of "
            "1x1 by VPDPBUSD, 24 to 192 channels, tiles of 3 to 14 pixels by 32 channels, whose "
            "sums are scaled, rounded and narrowed: beyond its products a pixel took 2.2 to 2.9 "
            "cycles in tiles of 3, 2.7 to 4.2 of 4, 3.8 to 4.1 of 7, 5.0 to 5.5 of 14",
        },
    ),
}
"""Core → its figures that are no instruction's, and where each comes from."""
ARM32 = "arm32"
_ARM32_SOURCE = (
    "as the A64 instruction that does the same, on the same pipes: llvm-mca has no model of a "
    "Cortex-A53 in AArch32"
)
TILED: tuple[Core, ...] = ("sapphirerapids", "generic-x86-64")
"""Cores that have AMX, or may have it."""
_TILES: Mapping[str, dict[str, Any]] = {
    tile_registers.DOT: {"uses": {"tmul": 16}, "latency": 52, "source": "tiles"},
    tile_registers.BFLOAT16_DOT: {"uses": {"tmul": 16}, "latency": 52, "source": "tiles"},
    tile_registers.LOAD: {"uses": {"tload": 8}, "latency": 45, "source": "tiles"},
    tile_registers.STORE: {"uses": {"tstore": 16}, "latency": 16, "source": "tiles"},
}
_TILES_SOURCE = (
    _INTEL.partition(":")[0] + ", chapter on AMX: cycles of whole registers, each instruction on "
    "a pipe of its own; at second hand, confirmed on a Xeon (16.0, 8.6 and 15.5 cycles) "
    "but for latencies"
)


def _in_a64(name: str) -> str:
    """What a row of 32-bit code is called in 64 bits: without the `v` of the older mnemonics."""
    mnemonic, dot, kind = name.partition(".")
    renamed = "uxtl" if mnemonic == "vmovl" else mnemonic.removeprefix("v")
    return f"{renamed}{dot}{kind}"


def table(
    core: Core, rows: Sequence[Row], figures: Mapping[str, Figure], sources: Mapping[str, str]
) -> CoreCosts:
    """A core's table from the figures of the machine code of its rows."""
    found = {row.name: _entry(row, figures) for row in rows}
    if core in CORES["armv7"]:
        names = [row.name for row in ISAS["neon_armv7"].instructions() if row.name not in found]
        for name in names:
            found[name] = found[_in_a64(name)] | {"source": ARM32}
        sources = {**sources, ARM32: _ARM32_SOURCE}
    if core in TILED:
        found |= _TILES
        sources = {**sources, "tiles": _TILES_SOURCE}
    used = {key for entry in found.values() for key in entry["source"].split("+")}
    pipes = {pipe for entry in found.values() for use in entry["uses"] for pipe in use.split("+")}
    estimates, origins = ESTIMATES.get(core, ({}, {}))
    fields = {
        "description": _DESCRIPTIONS[core],
        "sources": {key: text for key, text in sources.items() if key in used}
        | {"issue": _ISSUE[core][1]}
        | dict(origins),
        "pipes": sorted(pipes),
        "issue": _ISSUE[core][0],
        **estimates,
        "instructions": found,
    }
    return CoreCosts.model_validate(fields)


def text(costs: CoreCosts, command: str) -> str:
    """The file of a table: one line an instruction, and the command that made it."""
    fields = costs.model_dump(mode="json")
    lines = [
        f"# Made by: {command}",
        f"description: {fields['description']}",
        "sources:",
        *(f"  {key}: {json.dumps(source)}" for key, source in fields["sources"].items()),
        f"pipes: [{', '.join(fields['pipes'])}]",
        f"issue: {fields['issue']:g}",
        *(f"{name}: {figure:g}" for name, figure in costs.optional_figures().items()),
        "instructions:",
    ]
    for name, entry in fields["instructions"].items():
        uses = ", ".join(f"{pipes}: {count:g}" for pipes, count in entry["uses"].items())
        lines.append(
            f"  {name}: {{uses: {{{uses}}}, latency: {entry['latency']:g}, "
            f"source: {entry['source']}}}"
        )
    return "\n".join(lines) + "\n"


def _entry(row: Row, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """A row's costs: of the code for its dearest immediate."""
    candidates = [total(code, figures) for code in row.codes]
    dearest = max(candidates, key=lambda figure: (throughput(figure.uses), figure.latency))
    return {
        "uses": {pipes: round(count, 2) for pipes, count in dearest.uses.items()},
        "latency": round(dearest.latency, 2),
        "source": dearest.source,
    }
