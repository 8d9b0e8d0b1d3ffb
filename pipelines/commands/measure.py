"""`doit measure`: what instructions cost, by timing this processor or from llvm-mca's models."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import get_args

from hw import host
from hw.core_costs import CoreCosts
from hw.isa import Operation, isa_of
from hw.profile import Core, Hardware
from pipelines.errors import UserError, did_you_mean, shown
from pipelines.instruction_costs import core_table, in_order_figures, mca_figures, timed_figures
from pipelines.instruction_costs.figures import is_copy
from pipelines.instruction_costs.row_code import Row, profile_of, rows_of
from pipelines.output import out_files, printed_tables
from pipelines.recipe.overrides import Variables

_MEASURED = (
    "doit measure on an {processor}, {date}: reciprocal throughput and latency of each machine "
    "instruction; pipes from pairs of instructions, numbered as they came up"
)
# Cores whose tables are not from llvm-mca: of Zen 5 it has no model, that of Zen 4 is untried.
_TIMED: frozenset[Core] = frozenset({"zen4", "zen5"})
_LOADS = (
    "as measured; latency of a chain of 64-bit loads through a vector register, less half of a "
    "round trip between vector and address registers"
)


def run(*, variables: Variables) -> None:
    """Print a core's table, or write it where out=FILE says."""
    wanted, out = variables.command.get("core"), variables.command.get("out")
    costs = _from_models(_core(wanted)) if wanted else _from_timing()
    command = "doit measure" + (f" core={wanted}" if wanted else "")
    text = core_table.text(costs, command)
    if out is None:
        print(text, end="")
        return
    path = out_files.write("out", out, text.encode())
    print(f"written: {shown(path)}")


def _core(name: str) -> Core:
    for core in get_args(Core):
        if core == name:
            return core
    raise UserError(f"core={name}: unknown core{did_you_mean(name, get_args(Core))}")


def _from_models(core: Core) -> CoreCosts:
    """The table of a core by llvm-mca, which needs no such processor."""
    if core in _TIMED:
        raise UserError(f"core={core}: this table is timed; on such a processor run: doit measure")
    rows = rows_of(core)
    if in_order_figures.is_known(core):
        figures = in_order_figures.figures(core, rows[0].profile.triple, _lines(rows))
        return core_table.table(
            core, rows, figures, {in_order_figures.SOURCE: in_order_figures.source(core)}
        )
    source = mca_figures.source(core)
    figures = mca_figures.figures(core, rows[0].profile.triple, _lines(rows))
    return core_table.table(
        core, rows, figures, {"mca": source, "corrected": mca_figures.CORRECTED}
    )


def _from_timing() -> CoreCosts:
    """The table of the processor at hand; prints how well it predicts whole blocks."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UserError(
            "timing works on Linux on x86-64; name a core that llvm-mca knows: core=NAME"
        )
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    core, features = host.x86_processor(cpuinfo)
    machine = profile_of(core, "x86_64", "sse2", "x86-64", features)
    rows = [row for row in rows_of(core) if set(row.profile.features) <= set(features)]
    try:
        figures = timed_figures.figures(_lines(rows), machine)
    except ValueError as error:
        raise UserError(f"this processor cannot be described by pipes: {error}") from error
    source = _MEASURED.format(processor=_processor(cpuinfo), date=date.today().isoformat())
    sources = {timed_figures.SOURCE: source, timed_figures.LOADS: _LOADS}
    costs = core_table.table(core, rows, figures, sources)
    _compare(rows, costs, machine)
    return costs


def _lines(rows: Sequence[Row]) -> list[str]:
    return sorted(
        {line for row in rows for code in row.codes for line in code if not is_copy(line)}
    )


def _processor(cpuinfo: str) -> str:
    cpu = host.parse_cpuinfo(cpuinfo)
    return f"{cpu.get('model name', 'x86-64')}, family {cpu.get('cpu family', '?')}"


def _compare(rows: Sequence[Row], costs: CoreCosts, machine: Hardware) -> None:
    """Print the predicted cycles of the kernels' inner blocks beside the measured ones."""
    codes = {row.name: row.codes[0] for row in rows}
    blocks = _blocks(rows)
    measured = timed_figures.block_cycles(
        {
            name: [
                line for row, count in block.items() for _ in range(count) for line in codes[row]
            ]
            for name, block in blocks.items()
        },
        machine,
    )
    shown_rows = [
        {
            "block": name,
            "predicted": f"{costs.cycles(block):.2f}",
            "measured": f"{measured[name]:.2f}",
        }
        for name, block in blocks.items()
    ]
    printed_tables.show("cycles of whole blocks", shown_rows, ["block", "predicted", "measured"])


def _blocks(rows: Sequence[Row]) -> dict[str, Mapping[str, int]]:
    """Counting with and without its loads, for each count that the rows have; and a product."""
    blocks: dict[str, Mapping[str, int]] = {}
    for profile in {row.profile.model_dump_json(): row.profile for row in rows}.values():
        isa = isa_of(profile)
        logic, count = isa[Operation.AND].name, isa[Operation.COUNT].name
        add = isa[Operation.ADD_8.for_lanes(isa[Operation.COUNT].result.bits)].name
        memory = {f"load_{isa.bytes}": 1, f"broadcast_{isa.bytes}": 1}
        for parts in (
            {logic: 1, count: 1, add: 1},
            {**memory, logic: 1, count: 1, add: 1},
            {**memory, isa[Operation.DOT].name: 1},
        ):
            blocks[" ".join(parts)] = parts
    return blocks
