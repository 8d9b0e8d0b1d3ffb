"""Where a result of `doit bench` comes from: machine, day, the code that ran, the command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import git
from pipelines.benchmarks.engines import Engine
from pipelines.machine import core, processor
from pipelines.recipe.overrides import Variables
from pipelines.store import keys

_NOT_SHOWN = ("json",)
_PATHS = {"peers.larq": "PYTHON"}
"""Variables that hold a path of this machine alone → what stands for it."""


def origin(variables: Variables, wanted: Iterable[Engine] = ()) -> dict[str, Any]:
    """Return what every result says about itself; `wanted` are the engines that were asked."""
    return {
        "command": command(variables),
        "fields": dict(variables.fields),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "core": core(),
        "cpus": len(os.sched_getaffinity(0)),
        "bitkiln": revision(),
        "engines": {engine.name: engine.version for engine in wanted},
    }


def command(variables: Variables) -> str:
    """Return the command line that was given, without what only concerns this machine."""
    given = {k: v for k, v in variables.command.items() if k not in _NOT_SHOWN}
    words = [f"{name}={_PATHS.get(name, value)}" for name, value in given.items()]
    words += [f"{name}={value}" for name, value in variables.fields.items()]
    return shlex.join(["doit", "bench", *words])


def revision(root: Path = keys.ROOT) -> str:
    """Return the commit of a clone, and whether its files differ from it; else the version."""
    if commit := git.commit_of(root, "--short=7"):
        return f"{commit} with changes" if git.is_changed(root) else commit
    return f"version {keys.tool_version('bitkiln')}"
