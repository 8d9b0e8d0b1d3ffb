"""What a build ends with: what the network computes, what it takes, where it lies, what next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.builds import work_count
from pipelines.builds.plan import Plan
from pipelines.errors import shown
from pipelines.machine import is_here
from pipelines.output import printed_tables

if TYPE_CHECKING:
    from pipelines.recipe.resolved import Resolved


def text(plan: Plan, resolved: Resolved, folder: Path) -> str:
    """Return a few lines about a package that was built into `folder` and is not wrong."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    lines = {
        "computes": _work(work_count.work(plan), resolved.hardware.core),
        "package": f"{shown(folder)}, {printed_tables.size(_bytes(manifest))}",
        "memory": "; ".join(_memory(manifest, resolved.hardware.threads)),
        "next": _next(resolved),
    }
    return "\n".join(f"{name:<15} {said}" for name, said in lines.items())


def _work(found: Mapping[str, Any], core: str) -> str:
    said = f"{_count(found['macs'])} multiply-accumulates"
    if not found["layers"]:
        return said
    layers = f"{found['layers']} layer{'s' * (found['layers'] > 1)}"
    cycles = f"{_count(found['cycles'])} cycles predicted for {core}, one thread"
    return f"{said}; {layers} with a choice of kernels: {cycles}"


def _bytes(manifest: Mapping[str, Any]) -> int:
    return sum(int(file["bytes"]) for file in manifest["files"].values())


def _memory(manifest: Mapping[str, Any], threads: int) -> Iterator[str]:
    """Weights; then buffers and scratch, with one thread and with all of the board."""
    memory = manifest["memory"]
    yield f"weights {printed_tables.size(memory['constant_bytes'])}"
    one = memory["arena_bytes_one_thread"]
    yield f"buffers and scratch {printed_tables.size(one)} with 1 thread"
    # Threads that share several inputs have buffers of their own, which a manifest does not state.
    if threads > 1 and all(tensor["shape"][:1] in ([], [1]) for tensor in manifest["inputs"]):
        whole = one + (threads - 1) * memory["scratch_bytes_per_thread"]
        yield f"{printed_tables.size(whole)} with {threads}"


def _next(resolved: Resolved) -> str:
    """The command that one gives next: to run the package, or to check it on its board."""
    if is_here(resolved.hardware.architecture):
        return f"doit run {resolved.arguments()} input=FILE"
    return f"doit verify {resolved.arguments()} board=user@host"


def _count(number: int) -> str:
    """A number of 3 digits or so: 9,454 and 1.83 billion."""
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:,}"
