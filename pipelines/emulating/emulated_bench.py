"""`doit bench` for boards of other architectures: emulated and modelled instead of timed."""

from __future__ import annotations

from typing import Any

from hw.profile import Hardware
from pipelines.benchmarks import variant_packages
from pipelines.builds.plan import Plan
from pipelines.commands import arguments
from pipelines.emulating import (
    emulated_comparison,
    emulated_primitives,
    pinned_counts,
    result_tables,
    userland,
)
from pipelines.emulating.guest_engines import GUESTS, Guest
from pipelines.emulating.processors import processor, qemu_version
from pipelines.errors import UserError, did_you_mean
from pipelines.output import printed_tables
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.runners.replay import qemu_lacks

ARCHITECTURES = ("aarch64", "armv7")
_OF_TIMES = ("repeat", "peers.larq", "grow")


def check(resolved: Resolved, variables: Variables) -> None:
    """Refuse what cannot be emulated, before anything is built."""
    hardware, given = resolved.hardware, variables.command
    if hardware.architecture not in ARCHITECTURES:
        raise UserError(
            f"{resolved.name} is for {hardware.name}, of {hardware.architecture}: bench times this "
            f"machine's own processor, and emulates {' and '.join(ARCHITECTURES)}; try: "
            f"doit bench {resolved.arguments(hardware='host')}"
        )
    timed = [name for name in _OF_TIMES if name in given]
    if "threads" in given and "primitives" not in given:
        timed.append("threads")
    if timed:
        raise UserError(
            f"{timed[0]}={given[timed[0]]}: {hardware.name} is emulated here, one inference on one "
            "thread, and nothing is timed; leave it out, or add hardware=host"
        )
    if "pin" in given:
        pinned_counts.check(resolved, variables)
        return
    processor(hardware)
    if lack := lacking(hardware):
        raise UserError(lack)
    _wanted(hardware, given.get("peers"))
    variant_packages.wanted(given.get("own", "none"))


def lacking(hardware: Hardware) -> str:
    """Return what must be installed for a board to be emulated, or nothing."""
    if packages := qemu_lacks(hardware.architecture):
        return (
            f"emulating {hardware.name} needs {' and '.join(packages)}; on Debian or Ubuntu: "
            f"apt install {' '.join(packages)}"
        )
    return ""


def run(plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print what package and engines execute and, by the model of the core, how long it takes."""
    if "pin" in variables.command:
        pinned_counts.pin(plan, resolved, variables)
        return
    if (pattern := variables.command.get("primitives")) is not None:
        _primitives(plan, resolved, pattern, variables)
        return
    hardware, stated = resolved.hardware, variables.command.get("peers")
    wanted = _wanted(hardware, stated)
    compared = emulated_comparison.compare(
        plan, resolved, wanted, variant_packages.wanted(variables.command.get("own", "none"))
    )
    if not wanted and stated in (None, "all"):
        compared.notes.append(f"no other engine is emulated: {_lack(hardware)}")
    result = {**_about(resolved, variables, wanted), **result_tables.data(compared)}
    pattern, layers = variables.command.get("layer"), None
    if pattern is not None:
        layers = matching(pattern, [row["layer"] for row in result["layers"]], "layer")
    result_tables.tell(result, f"{resolved.name}: {result['processor']}", layers)
    printed_tables.write_json(variables.command.get("json"), result)


def _primitives(plan: Plan, resolved: Resolved, pattern: str, variables: Variables) -> None:
    """Print what layers of few bits take as loops, with one primitive more at a time."""
    threads = arguments.threads(variables) or resolved.hardware.threads
    rows = emulated_primitives.rows(plan, resolved, pattern, threads)
    result = {**_about(resolved, variables, []), "primitives": rows}
    shown = emulated_primitives.table(rows)
    title = f"{resolved.name}: {result['processor']}, k cycles (modelled), times as fast as floats"
    printed_tables.show(title, shown, list(shown[0]))
    printed_tables.write_json(variables.command.get("json"), result)


def _wanted(hardware: Hardware, stated: str | None) -> list[Guest]:
    """Return the engines to emulate: those asked for, or all that are there."""
    lack = _lack(hardware)
    if stated in (None, "all"):
        return [] if lack else list(GUESTS.values())
    names = [name for name in str(stated).split(",") if name and name != "none"]
    for name in names:
        if name not in GUESTS:
            known = ["all", "none", *GUESTS]
            near = did_you_mean(name, known, otherwise="emulated ones")
            raise UserError(f"peers={name}: no such engine{near}")
        if lack:
            raise UserError(f"peers={name}: {lack}")
    return [GUESTS[name] for name in names]


def _lack(hardware: Hardware) -> str | None:
    if hardware.architecture != "aarch64":
        return f"their wheels are for aarch64, and {hardware.name} is of {hardware.architecture}"
    return userland.lack()


def _about(resolved: Resolved, variables: Variables, wanted: list[Guest]) -> dict[str, Any]:
    """Return what a result says of itself; its processor is the board's."""
    from pipelines.benchmarks.result_origin import origin

    hardware = resolved.hardware
    about = origin(variables)
    about |= {
        "recipe": resolved.name,
        "processor": f"{hardware.description}, emulated",
        "core": hardware.core,
        "cpus": 1,
        "threads": 1,
        "engines": {guest.name: userland.WHEELS[guest.wheel] for guest in wanted},
        "emulated": {"qemu": qemu_version(hardware.architecture), "cpu": processor(hardware).qemu},
    }
    return about
