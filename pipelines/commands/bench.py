"""`doit bench`: the package's time beside that of other engines on the same network, in turns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.benchmarks import (
    board_bench,
    contestants,
    growth,
    kernel_work,
    larq_engine,
    peaks,
    primitives,
    rounds,
    variant_packages,
)
from pipelines.benchmarks.engines import ENGINES, Engine, limit_instructions
from pipelines.benchmarks.loaded_program import loaded
from pipelines.benchmarks.result_origin import origin
from pipelines.benchmarks.variants import Variant, variants
from pipelines.builds import publication, work_count
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.commands import arguments
from pipelines.emulating import emulated_bench
from pipelines.errors import CheckError, UserError, did_you_mean
from pipelines.evaluation import comparison, verification
from pipelines.machine import is_here, processor
from pipelines.output import printed_tables
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.remote.transport import reached
from pipelines.runners.native import NativeRunner
from pipelines.runners.package import open_package
from stages.importing.zoo import build
from stages.kinds import Golden

Array = np.ndarray[Any, Any]

REPEAT = 20
INSTALL = "run: pip install -e '.[peers]'"


def check(*, resolved: Resolved, variables: Variables) -> None:
    """Refuse engines that are not there, and what can neither be timed here nor emulated."""
    if "board" in variables.command:
        return
    if not is_here(resolved.hardware.architecture):
        emulated_bench.check(resolved, variables)
        return
    _asked(variables)
    if variables.command.get("pin") is not None:
        raise UserError(
            f"pin=: instructions of emulated boards are pinned, and {resolved.hardware.name} is "
            "of this machine's architecture"
        )


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print medians, spread and ratios; json=FILE also keeps the time of every turn.

    What is for another architecture is emulated: then they are instructions and modelled cycles.
    `python -m pipelines.benchmarks.results_page FILE` puts such a file on the page of benchmarks.
    """
    if (named := variables.command.get("board")) is not None:
        reachable = reached(named, resolved.hardware)
        measured = [board_bench.bench(plan, resolved, variables, to) for to in reachable]
        result = {"recipe": resolved.name, **origin(variables), "boards": measured}
        printed_tables.write_json(variables.command.get("json"), result)
        return
    if not is_here(resolved.hardware.architecture):
        emulated_bench.run(plan, resolved, variables)
        return
    if (pattern := variables.command.get("layer")) is not None:
        _layers(plan, resolved, pattern, variables)
        return
    if (layer := variables.command.get("primitives")) is not None:
        _primitives(plan, resolved, layer, variables)
        return
    if (axes := variables.command.get("grow")) is not None:
        _growth(plan, resolved, axes, variables)
        return
    wanted, repeat = _asked(variables), arguments.repeat(variables) or REPEAT
    if said := _without_engines(variables.command.get("peers"), wanted):
        print(said)
    stated = arguments.threads(variables)
    counts = [stated] if stated else sorted({1, len(os.sched_getaffinity(0))})
    result = {
        "recipe": resolved.name,
        **origin(variables, wanted),
        "repeat": repeat,
        "load_at_start": os.getloadavg()[0],
        "onednn_max_cpu_isa": limit_instructions(resolved.hardware),
        "threads": [],
    }
    with contextlib.ExitStack() as stack:
        runners = {contestants.PACKAGE: _runner(stack, plan)}
        files = variants(plan, resolved)
        for variant in _wanted_of_own(variables.command.get("own", "int8"), files):
            made = variant_packages.build_variant(
                variant.precision, variant.source, variant.form, resolved
            )
            runners[variant_packages.title(variant.precision)] = _runner(stack, made)
        for count in counts:
            found = contestants.contestants(runners, files, wanted, resolved.hardware, count)
            times = rounds.alternate(found.timed, repeat, f"{count} threads")
            rows = rounds.compared(times, contestants.PACKAGE)
            for row in rows:
                row["difference"] = found.differences.get(row["what"])
            result["threads"].append(
                {"threads": count, "rows": rows, "seconds": times, "refused": found.refused}
            )
            _tell(result, result["threads"][-1])
    printed_tables.write_json(variables.command.get("json"), result)


def _layers(plan: Plan, resolved: Resolved, pattern: str, variables: Variables) -> None:
    """Print what each kernel takes alone, and its share of the peak of its instructions."""
    package = open_package(publication.package_folder_of(plan))
    rows = kernel_work.times(
        PlanExecution(plan), resolved.hardware, contestants.first_sample(package)
    )
    found = peaks.peaks(resolved.hardware)
    for row in rows:
        # A kernel of several popcounts a pair of operands works on so many pairs of bits, one of
        # transformed operands on fewer.
        each = row["macs"] * (row["popcounts"] or 1) / row["saved"]
        top = found.get(row["how"])
        row["peak_share"] = each / row["seconds"] / top if top and row["macs"] else None
    matched = matching(pattern, [row["layer"] for row in rows], "kernel")
    shown = [row for row in rows if row["layer"] in matched]
    result = {
        "recipe": resolved.name,
        **origin(variables),
        "peaks": found,
        "layers": shown,
    }
    said = ", ".join(f"{name} {macs / 1e9:.0f} GMAC/s" for name, macs in found.items())
    title = f"{resolved.name}: {result['processor']}, 1 thread, each kernel alone; peaks: {said}"
    table = [
        {
            "layer": row["layer"],
            "how": row["how"],
            "MMAC": f"{row['macs'] / 1e6:.2f}" if row["macs"] else "",
            "us": printed_tables.microseconds(row["seconds"]),
            "GMAC/s": f"{row['macs'] / row['seconds'] / 1e9:.1f}" if row["macs"] else "",
            "of the peak": f"{row['peak_share']:.0%}" if row["peak_share"] is not None else "",
        }
        for row in shown
    ]
    total = sum(row["seconds"] for row in shown)
    printed_tables.show(title, table, list(table[0]))
    print(f"together {1e3 * total:.3f} ms")
    printed_tables.write_json(variables.command.get("json"), result)


def _primitives(plan: Plan, resolved: Resolved, name: str, variables: Variables) -> None:
    """Print what a layer takes as loops, with one scheduling primitive more at a time."""
    execution, hardware = PlanExecution(plan), resolved.hardware
    layer = primitives.layer_of(execution.load(plan.step("bitpacking")), name)
    package = open_package(publication.package_folder_of(plan))
    program = loaded(execution, hardware, contestants.first_sample(package))
    threads = arguments.threads(variables) or len(os.sched_getaffinity(0))
    times = primitives.times(layer, hardware, program, name, threads)
    bits = f"A{layer.bits[0]}W{layer.bits[1]}"
    first = next(iter(times.values()))
    rows = [
        {
            "what": what,
            "us": printed_tables.microseconds(seconds),
            "GMAC/s": f"{layer.macs / seconds / 1e9:.1f}",
            "times as fast": f"{first / seconds:.1f}",
        }
        for what, seconds in times.items()
    ]
    title = f"{resolved.name}: {name}, {bits}, {processor()}"
    printed_tables.show(title, rows, list(rows[0]))
    result = {"recipe": resolved.name, "layer": name, **origin(variables), "seconds": times}
    printed_tables.write_json(variables.command.get("json"), result)


def _growth(plan: Plan, resolved: Resolved, axes: str, variables: Variables) -> None:
    """Print what a network takes at several sizes, in turns, beside what it multiplies."""
    repeat, threads = arguments.repeat(variables) or REPEAT, arguments.threads(variables) or 1
    plans = {growth.AS_IT_IS: plan}
    for what, zoo in growth.grown(resolved, axes).items():
        kind = f"{zoo.image_size}_pixels_width_{zoo.width}"
        plans[what] = variant_packages.build_variant(kind, build(options=zoo), "onnx", resolved)
    with contextlib.ExitStack() as stack:
        timed = {
            what: contestants.timed(_runner(stack, made), threads) for what, made in plans.items()
        }
        times = rounds.alternate(timed, repeat, f"{threads} threads")
    medians = {what: float(np.median(seconds)) for what, seconds in times.items()}
    rows = growth.rows(
        {what: work_count.macs(PlanExecution(made)) for what, made in plans.items()}, medians
    )
    result = {
        "recipe": resolved.name,
        **origin(variables),
        "threads": threads,
        "rows": rows,
        "seconds": times,
    }
    table = growth.table(rows)
    title = f"{resolved.name}: {result['processor']}, threads={threads}, {repeat} rounds"
    printed_tables.show(title, table, list(table[0]))
    printed_tables.write_json(variables.command.get("json"), result)


def _asked(variables: Variables) -> list[Engine]:
    return _wanted(variables.command.get("peers"), variables.command.get("peers.larq"))


def _without_engines(stated: str | None, wanted: Sequence[Engine]) -> str:
    """Return what to say where all engines are asked for and none is installed, or nothing."""
    if wanted or stated not in (None, "all"):
        return ""
    return f"no other engine is installed, so none is timed; {INSTALL}"


def _wanted(stated: str | None, python: str | None = None) -> list[Engine]:
    """Return the engines to run: those asked for, or all that are installed; Larq in a Python."""
    apart = larq_engine.engines(python) if python else []
    if stated in (None, "all"):
        return [*(engine for engine in ENGINES.values() if engine.is_installed), *apart]
    names = [name for name in str(stated).split(",") if name and name != "none"]
    if "larq" in names and not apart:
        raise UserError(
            f"peers=larq: say in which Python it is: peers.larq=PYTHON, {larq_engine.INSTALL}"
        )
    names = [name for name in names if name != "larq"]
    for name in names:
        if name not in ENGINES:
            known = ["all", "none", "larq", *ENGINES]
            raise UserError(f"peers={name}: no such engine{did_you_mean(name, known)}")
        if not ENGINES[name].is_installed:
            raise UserError(f"peers={name}: {ENGINES[name].name} is not installed; {INSTALL}")
    return [*(ENGINES[name] for name in names), *apart]


def _wanted_of_own(stated: str, files: list[Variant]) -> list[Variant]:
    """Return the other precisions that a package of ours is built for: own=int8,float32 or none."""
    names = variant_packages.wanted(stated)
    return [each for each in files if each.precision in names and not each.is_same]


def _runner(stack: contextlib.ExitStack, plan: Plan) -> NativeRunner:
    """Return what runs a published package, after its golden vectors came out right."""
    package = open_package(publication.package_folder_of(plan))
    runner = stack.enter_context(NativeRunner(package))
    golden = Golden(*package.golden())
    for item in comparison.compare(golden, runner.run, verification.tolerance_of_package(plan)):
        if item.verdict == "departs":
            raise CheckError(f"bench: {package.name}: {comparison.describe(item)}")
    return runner


def _tell(result: Mapping[str, Any], part: Mapping[str, Any]) -> None:
    threads = f"{part['threads']} thread{'s' if part['threads'] > 1 else ''}"
    title = (
        f"{result['recipe']}: {result['processor']}, {threads}, {result['repeat']} rounds, "
        f"load {result['load_at_start']:.1f} at the start"
    )
    rows = [
        {
            "what": row["what"],
            "median ms": f"{row['median_ms']:.3f}",
            "middle half, ms": printed_tables.between(row["quartiles_ms"], 3),
            "package takes": f"{row['ratio']:.2f} of it" if "ratio" in row else "",
            "middle half": printed_tables.between(row["ratio_quartiles"], 2)
            if "ratio" in row
            else "",
            "output differs by": "" if row["difference"] is None else f"{row['difference']:.6g}",
        }
        for row in part["rows"]
    ]
    printed_tables.show(title, rows, list(rows[0]))
    for item in part["refused"]:
        print(f"not timed: {item['what']}: {item['why']}")
