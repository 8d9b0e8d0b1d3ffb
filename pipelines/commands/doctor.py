"""`doit doctor`: what is installed, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Literal

from hw import host
from pipelines import keys, tables
from pipelines.overrides import Variables
from pipelines.runners.replay import qemu_lacks, qemu_prefix

_DEPENDENCY = re.compile(r"^([A-Za-z0-9._-]+)\s*([^;\[]*)")
_ROOM_GIB = 2


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    state: Literal["ok", "optional", "missing"]
    found: str
    advice: str = ""


def run(*, variables: Variables) -> None:
    """Print one line a finding; nothing is changed."""
    found = list(findings())
    # Advice stands in the last column too, which tables never shorten.
    told = [
        {**asdict(item), "found": "; ".join(filter(None, [item.found, item.advice]))}
        for item in found
    ]
    tables.show("doctor", told, ["what", "state", "found"])
    tables.write_json(variables.command.get("json"), [asdict(item) for item in found])


def findings() -> Iterator[Finding]:
    """Yield what a build needs and what would be good to have."""
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Finding("platform", "ok", f"{platform.system()} {platform.machine()}")
    yield _processor()
    yield from _packages()
    yield _compiler()
    yield _emulator()
    yield from (_qemu(architecture) for architecture in ("aarch64", "armv7"))
    yield _disk()


def _processor() -> Finding:
    try:
        found = host.detect()
    except ValueError as error:
        return Finding("processor", "optional", str(error), "name a board: hardware=rpi3")
    features = " ".join(feature.removeprefix("+") for feature in found.features)
    return Finding("processor", "ok", f"{found.cpu}, {found.isa}: {features or 'no extensions'}")


def _packages() -> Iterator[Finding]:
    """Yield the dependencies of pyproject.toml with what is installed of them."""
    import tomllib

    project = tomllib.loads((keys.ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        match = _DEPENDENCY.match(requirement)
        assert match is not None
        name, wanted = match.group(1), match.group(2).strip()
        version = keys.tool_version(name)
        if version == "absent":
            yield Finding(name, "missing", f"wanted {wanted}", "pip install -e .")
        elif wanted.startswith("==") and version != wanted[2:]:
            advice = f"pip install '{name}{wanted}'"
            yield Finding(name, "missing", f"{version}, wanted {wanted}", advice)
        else:
            yield Finding(name, "ok", version)


def _compiler() -> Finding:
    if importlib.util.find_spec("ziglang") is None:
        return Finding("C compiler", "missing", "ziglang", "pip install -e .")
    files = metadata.files("ziglang") or []
    if not any(file.name in ("zig", "zig.exe") for file in files):
        version = keys.tool_version("ziglang")
        advice = "pip install --force-reinstall ziglang==0.17.0"
        return Finding("C compiler", "missing", f"ziglang {version} without its compiler", advice)
    return Finding("C compiler", "ok", f"zig cc {keys.tool_version('ziglang')}")


def _emulator() -> Finding:
    absent = [n for n in ("unicorn", "pyelftools") if keys.tool_version(n) == "absent"]
    if absent:
        what = f"without {' and '.join(absent)} ARM packages are built and not verified"
        return Finding("ARM emulator", "optional", what, "pip install -e '.[emulator]'")
    return Finding("ARM emulator", "ok", f"unicorn {keys.tool_version('unicorn')}")


def _qemu(architecture: str) -> Finding:
    if lacking := qemu_lacks(architecture):
        what = f"without {' and '.join(lacking)} programs with threads are not run"
        return Finding(f"qemu {architecture}", "optional", what, f"apt install {' '.join(lacking)}")
    return Finding(f"qemu {architecture}", "ok", " ".join(qemu_prefix(architecture) or ()))


def _disk() -> Finding:
    free = shutil.disk_usage(keys.ROOT).free / 2**30
    if free < _ROOM_GIB:
        return Finding("disk", "missing", f"{free:.1f} GiB free", f"have {_ROOM_GIB} GiB free")
    return Finding("disk", "ok", f"{free:.0f} GiB free")
