"""Whether two machines would make the same bytes: their code and the versions of its tools."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping

from pipelines.store import keys
from stages import STAGES

BuildEnvironment = dict[str, str]
"""What makes an artifact → its digest or version: equal ones make equal bytes."""
WORKER = "pipelines.cluster.worker"
"""The module that workers run, with all that it imports."""
_NAMED = 3
"""How many differences a sentence names."""


def now() -> BuildEnvironment:
    """Return all that decides bytes, as it is on the disk: comments and docstrings aside.

    Python is in it by its minor version, as keys take the syntax trees that it writes.
    """
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for stage in STAGES:
        found |= keys.code_ingredients(stage.entry.partition(":")[0])
        found |= {tool: keys.tool_version(tool) for tool in stage.tools}
    found |= keys.code_ingredients(WORKER, packages=("pipelines",))
    return dict(sorted(found.items()))


@functools.cache
def at_start() -> BuildEnvironment:
    """Return `now` as it was when this process first asked: so is the code that it imported."""
    return now()


def digest(environment: Mapping[str, str]) -> str:
    """Return one digest of all."""
    return keys.digest(keys.canonical(dict(environment)))


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return what differs, in a few words; nothing if all is equal."""
    found = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, "absent") != theirs.get(name, "absent")
    ]
    said = [_said(name, ours, theirs) for name in found[:_NAMED]]
    more = len(found) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")


def _said(name: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Say a difference: versions with both sides, a file by its name."""
    if "/" in name:
        return name
    return f"{name} {theirs.get(name, 'absent')} (here {ours.get(name, 'absent')})"
