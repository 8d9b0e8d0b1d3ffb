"""`doit check`: lint, types and all tests, the slow ones too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipelines import keys, tables
from pipelines.errors import UserError
from pipelines.overrides import Variables

STEPS = (
    ("lint", "ruff", ("check", ".")),
    ("format", "ruff", ("format", "--check", ".")),
    ("types", "mypy", ()),
    # In the order of the files: the longest would come last otherwise, and run alone.
    (
        "tests",
        "pytest",
        ("-m", "slow or not slow", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
    ),
)
_LONGEST = 10


def run(*, variables: Variables) -> None:
    """Run every step, the later ones too when an earlier one fails; then fail if any did."""
    absent = [tool for _, tool, _ in STEPS if keys.tool_version(tool) == "absent"]
    if absent:
        names = ", ".join(dict.fromkeys(absent))
        raise UserError(f"{names} not installed; run: pip install -e '.[test]'")
    failed = []
    for name, tool, arguments in STEPS:
        print(f"{name}: {tool} {' '.join(arguments)}".rstrip(), flush=True)
        done = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=keys.ROOT, check=False)
        if done.returncode != 0:
            failed.append(name)
    lengths = sorted(((_lines(path), path) for path in _sources()), reverse=True)[:_LONGEST]
    rows = [{"lines": n, "file": str(path.relative_to(keys.ROOT))} for n, path in lengths]
    tables.show("longest files", rows, ["lines", "file"])
    tables.write_json(variables.command.get("json"), {"failed": failed, "longest": rows})
    if failed:
        raise UserError(f"check: {', '.join(failed)} failed; see above")


def _sources() -> list[Path]:
    folders = ("pipelines", "stages", "hw", "tests")
    return [path for folder in folders for path in (keys.ROOT / folder).rglob("*.py")]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
