"""Our instructions a layer, pinned: a count that grows is a fault unless somebody says why.

`doit bench recipe=NAME pin="why"` counts a package of an ARM board in unicorn and writes
`pinned/NAME.json`; a test counts again and compares.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import work_folder
from pipelines.benchmarks.contestants import first_sample
from pipelines.builds import publication
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.emulating import layer_attribution, layer_kinds, linked_program
from pipelines.emulating.block_costs import Cost
from pipelines.errors import UserError, shown
from pipelines.modelling.code_blocks import Block
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.package import Package, open_package
from pipelines.store import atomic

FOLDER = Path(__file__).with_name("pinned")
ALLOWED = 1.02
"""Growth of a layer's count that is no fault."""
_WORD = 4
"""Bytes of an instruction: of AArch64 all, and ARMv7 is compiled without Thumb."""


@dataclass
class Pinned:
    """What is kept of a recipe: the instructions of each layer, and why they rose."""

    recipe: str
    """As it is named on the command line."""
    layers: dict[str, int] = field(default_factory=dict)
    rises: list[dict[str, Any]] = field(default_factory=list)
    """Each with its date, its reason, and the layers with both counts."""


def check(resolved: Resolved, variables: Variables) -> None:
    """Refuse a rise without a reason, and recipes that are not pinned as they stand."""
    if work_folder.is_own():
        raise UserError(
            f"pin=: pins bitkiln's own recipes; use it in its clone, {work_folder.CODE}"
        )
    if not variables.command["pin"].strip():
        raise UserError('pin=: say why counts may rise, for example: pin="exact sums of 16 bits"')
    if variables.fields:
        raise UserError(
            f"pin=: a recipe is pinned as it stands; leave out {', '.join(variables.fields)}"
        )
    if resolved.hardware.architecture != "aarch64":
        raise UserError("pin=: recipes of aarch64 boards are pinned")


def pin(plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Count, keep the counts with the reason, and print what changed."""
    recipe, reason = variables.recipe or resolved.name, variables.command["pin"]
    path, found = FOLDER / f"{resolved.name}.json", counted(plan, resolved)
    before = read(path) if path.is_file() else Pinned(recipe)
    changed = {
        name: [before.layers.get(name), count]
        for name, count in found.items()
        if before.layers.get(name) != count
    }
    rises = before.rises
    if changed and before.layers:
        today = datetime.now(UTC).date().isoformat()
        rises = [*rises, {"date": today, "reason": reason, "layers": changed}]
    kept = dataclasses.asdict(Pinned(recipe, found, rises))
    atomic.replace(path, (json.dumps(kept, indent=1) + "\n").encode())
    for name, (old, new) in changed.items():
        print(f"{name}: {'new' if old is None else f'{old:,}'} -> {new:,} instructions (emulated)")
    print(f"{len(found)} layers pinned, {len(changed)} changed: {shown(path)}")


def read(path: Path) -> Pinned:
    """Return what is kept."""
    return Pinned(**json.loads(path.read_text(encoding="utf-8")))


def faults(kept: Pinned, found: Mapping[str, int]) -> list[str]:
    """Return a sentence for each layer that executes more than it may, with what to do."""
    advice = f'if it must be so: doit bench recipe={kept.recipe} pin="why"'
    said = []
    for name, count in found.items():
        pinned = kept.layers.get(name)
        if pinned is None:
            said.append(f"{name} is not pinned; {advice}")
        elif count > ALLOWED * pinned:
            growth = f", {count / pinned - 1:.1%} more than" if pinned else " instead of"
            said.append(
                f"{name} executes {count:,} instructions (emulated){growth} the {pinned:,} that "
                f"are pinned; {advice}"
            )
    return said


def counted(plan: Plan, resolved: Resolved) -> dict[str, int]:
    """Return the instructions of each layer of a published package, the runtime's last.

    UserError where unicorn is not installed.
    """
    package = open_package(publication.package_folder_of(plan))
    layers = layer_kinds.of_model(PlanExecution(plan).load(plan.step("bitpacking")))
    calls = package.manifest["layers"]
    library = package.file(f"lib{package.name}.a")
    users = layer_attribution.users_of(library, [call["kernel"] for call in calls])
    functions = {
        name: Cost(sum(block.executed for block in blocks))
        for name, blocks in _functions(package, resolved).items()
    }
    costs = layer_attribution.by_layer(functions, calls, layers, users)
    return {name: round(cost.instructions) for name, cost in costs.items()}


def _functions(package: Package, resolved: Resolved) -> dict[str, list[Block]]:
    """Count in unicorn, which needs nothing of the system, by the symbols of a library with them.

    The package's own has none but those that are called from outside, so it is linked again.
    """
    from stages.packaging.compiling.linker import default_cache

    with tempfile.TemporaryDirectory(prefix="bitkiln-pinning-") as name:
        target = Path(name) / f"lib{package.name}.so"
        command = [
            *(sys.executable, "-m", "ziglang", "cc", "-target", resolved.hardware.zig_target),
            *(
                "-shared",
                "-Wl,--whole-archive",
                str(package.file(f"lib{package.name}.a").resolve()),
            ),
            *("-Wl,--no-whole-archive", "-lpthread", "-o", str(target)),
        ]
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(default_cache())}
        environment["ZIG_LOCAL_CACHE_DIR"] = str(Path(name) / "zig")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"lib{package.name}.a was not linked: {done.stderr.strip()[-500:]}")
        inputs = first_sample(package)
        with EmulatedRunner(dataclasses.replace(package, folder=Path(name))) as runner:
            _, counts = runner.count_blocks(inputs)
        blocks = [
            Block(address, size // _WORD, count, b"") for (address, size), count in counts.items()
        ]
        return linked_program.by_function(blocks, linked_program.functions(target))
