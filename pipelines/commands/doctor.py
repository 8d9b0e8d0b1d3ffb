"""`doit doctor`: what is installed, what is missing, and what to do; `board=`: of boards."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

from hw import host
from hw.profile import Hardware
from pipelines import work_folder
from pipelines.errors import CheckError, Fault, UserError
from pipelines.output import findings as telling
from pipelines.output import printed_tables
from pipelines.output.findings import Finding as Finding
from pipelines.recipe.overrides import Variables, span
from pipelines.runners.replay import qemu_lacks, qemu_prefix
from pipelines.store import keys

_DEPENDENCY = re.compile(r"^([A-Za-z0-9._-]+)\s*([^;\[]*)")
_ROOM_GIB = 2
_AT_A_TIME = 8
"""Boards that are asked at a time."""


def run(*, variables: Variables) -> None:
    """Print one line a finding; nothing is changed.

    CheckError, behind the findings, if something keeps a board of `board=` from being used.
    """
    if (text := variables.command.get("board")) is not None:
        _boards(text, variables)
        return
    found = list(findings())
    telling.show("doctor", found)
    printed_tables.write_json(variables.command.get("json"), telling.rows(found))


def _boards(text: str, variables: Variables) -> None:
    """The boards of `board=`, all asked at a time."""
    from pipelines.remote import board_addresses, checkup
    from pipelines.remote.transport import reached, transport

    boards = board_addresses.boards(text)
    stated = _hardware(variables)
    if stated is not None:
        reached(text, stated)  # refuses boards that are said to be of another kind
    kinds = {b.kind: stated or (_named(b.kind) if b.kind else None) for b in boards}
    with ThreadPoolExecutor(min(len(boards), _AT_A_TIME)) as pool:
        asked = list(pool.map(lambda b: checkup.examine(transport(b), kinds[b.kind]), boards))
    faults = []
    for board, found in zip(boards, asked, strict=True):
        known = f"{board.name}, {board.address}" if board.name != board.address else board.name
        telling.show(f"doctor: {known}", found)
        if bad := ", ".join(item.what for item in found if item.state == "fault"):
            faults.append(f"{board.name} ({bad})")
    rows = zip(boards, asked, strict=True)
    told = [{"board": b.name, **row} for b, found in rows for row in telling.rows(found)]
    printed_tables.write_json(variables.command.get("json"), told)
    if faults:
        raise CheckError(f"a fault keeps these from being used: {'; '.join(faults)}")


def _hardware(variables: Variables) -> Hardware | None:
    """The hardware of a recipe, or that of `hardware=`; None if neither is given."""
    from pipelines.recipe import load

    if variables.recipe is not None:
        return load.load_recipe(variables.recipe, variables.fields).hardware
    return _named(variables.fields["hardware"]) if "hardware" in variables.fields else None


def _named(name: str) -> Hardware:
    from pipelines.documents.board_files import load_board

    faults: list[Fault] = []
    found = load_board(name, span("hardware", f"hardware={name}"), faults)
    if found is None or faults:
        raise UserError.of(faults)
    return found


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
    yield from _cache()


def _processor() -> Finding:
    try:
        found = host.detect()
    except ValueError as error:
        return Finding("processor", "optional", str(error), "name a board: hardware=rpi3")
    features = " ".join(feature.removeprefix("+") for feature in found.features)
    return Finding("processor", "ok", f"{found.cpu}, {found.isa}: {features or 'no extensions'}")


def _packages() -> Iterator[Finding]:
    """Yield the dependencies of bitkiln with what is installed of them."""
    for requirement in _requirements():
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


def _requirements() -> list[str]:
    """Return what pyproject.toml states; where bitkiln is installed, what it stated then."""
    import tomllib

    project = keys.ROOT / "pyproject.toml"
    if project.is_file():
        return list(tomllib.loads(project.read_text())["project"]["dependencies"])
    return [line for line in metadata.requires("bitkiln") or () if "extra ==" not in line]


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
    free = shutil.disk_usage(work_folder.WORK).free / 2**30
    if free < _ROOM_GIB:
        return Finding("disk", "missing", f"{free:.1f} GiB free", f"have {_ROOM_GIB} GiB free")
    return Finding("disk", "ok", f"{free:.0f} GiB free")


def _cache() -> Iterator[Finding]:
    """The shared store, if one is set."""
    if not work_folder.has_cache_file():
        return
    from pipelines.caching import remote, upkeep

    try:
        found = remote.of_settings()
        why = upkeep.reachable(found) if found else ""
    except UserError as error:
        first = str(error).splitlines()[0]
        yield Finding("remote store", "missing", first, "builds stop until this is put right")
        return
    if found is None:
        return
    if why:
        advice = "builds go on without it"
        yield Finding("remote store", "optional", f"{found.settings.shown}: {why}", advice)
        return
    is_open = found.settings.is_unsigned
    trust = "trusts anyone" if is_open else f"trusts {len(found.trusted)} keys"
    writes = "read and written" if found.settings.writes else "read"
    yield Finding("remote store", "ok", f"{found.settings.shown}: {writes}, {trust}")
