"""`doit check`: lint, types, all tests; the longest files, untyped parameters, slowest tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from pipelines import work_folder
from pipelines.commands.untyped import LIMIT, untyped_rooms
from pipelines.errors import CheckError, UserError
from pipelines.output import printed_tables
from pipelines.recipe.overrides import Variables
from pipelines.store import keys

REPORT = "{report}"
"""Stands for the file that a step writes the seconds of each test to."""
STEPS = (
    ("lint", "ruff", ("check", ".")),
    ("format", "ruff", ("format", "--check", ".")),
    ("types", "mypy", ()),
    ("tests", "pytest", ("-m", "slow or not slow", "-n", "2", f"--junitxml={REPORT}")),
)
_LONGEST, _DEAREST = 10, 20


def run(*, variables: Variables) -> None:
    """Run every step, the later ones too when an earlier one fails; then fail if any did."""
    if work_folder.is_own() or not (keys.ROOT / "tests").is_dir():
        raise UserError(
            f"doit check tests bitkiln itself, in a clone of it, and this is {work_folder.WORK}; "
            "doit verify recipe=NAME tests a package"
        )
    absent = [tool for _, tool, _ in STEPS if keys.tool_version(tool) == "absent"]
    if absent:
        names = ", ".join(dict.fromkeys(absent))
        raise UserError(f"{names} not installed; run: pip install -e '.[test]'")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        failed = [
            name for name, tool, arguments in STEPS if not _passes(name, tool, arguments, report)
        ]
        slowest = _slowest(report)
    lengths = sorted(((_lines(path), path) for path in _sources()), reverse=True)[:_LONGEST]
    longest = [{"lines": n, "file": str(path.relative_to(keys.ROOT))} for n, path in lengths]
    printed_tables.show("longest files", longest, ["lines", "file"])
    untyped = _untyped()
    printed_tables.show(
        f"parameters of type Any (at most {LIMIT:.0%} a room)", untyped, list(untyped[0])
    )
    printed_tables.show("slowest tests", slowest, ["seconds", "test"])
    result = {"failed": failed, "longest": longest, "untyped": untyped, "dearest": slowest}
    printed_tables.write_json(variables.command.get("json"), result)
    if failed:
        raise CheckError(f"check: {', '.join(failed)} failed; see above")


def _passes(name: str, tool: str, arguments: tuple[str, ...], report: Path) -> bool:
    """Run one step; whether it went well."""
    words = [word.replace(REPORT, str(report)) for word in arguments]
    print(f"{name}: {' '.join([tool, *arguments])}", flush=True)
    done = subprocess.run([sys.executable, "-m", tool, *words], cwd=keys.ROOT, check=False)
    return done.returncode == 0


def _untyped() -> list[dict[str, object]]:
    """Rooms with parameters of type `Any`, those with most of them first."""
    rooms = sorted(untyped_rooms(keys.ROOT), key=lambda room: -room.share)
    return [
        {
            "room": each.room,
            "Any": each.untyped,
            "of": each.parameters,
            "share": f"{each.share:.1%}",
        }
        for each in rooms
        if each.untyped
    ]


def _slowest(report: Path) -> list[dict[str, object]]:
    """The tests that took longest, what they set up included; none where nothing was reported."""
    if not report.is_file():
        return []
    cases = [
        (float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}")
        for case in ElementTree.parse(report).iter("testcase")
    ]
    return [
        {"seconds": round(seconds, 1), "test": name}
        for seconds, name in sorted(cases, reverse=True)[:_DEAREST]
    ]


def _sources() -> list[Path]:
    folders = ("pipelines", "stages", "hw", "tests")
    return [path for folder in folders for path in (keys.ROOT / folder).rglob("*.py")]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
