"""Builds recipes inside a checkout, by that checkout's own code: one process for all of them.

Started by path with the checkout as its folder. A list of [job, recipe file] comes in on standard
input as JSON; a line of JSON goes out for each that is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def _by_the_front_door(recipe: Path) -> str:
    """Build as a user would, for commits without the function below; return what went wrong."""
    command = [sys.executable, "-m", "doit", "build", f"recipe={recipe}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).strip() if done.returncode else ""


def _by_function(recipe: Path) -> str:
    """Build and publish without the verification behind it; return what went wrong."""
    from pipelines.builds import extra_builds
    from pipelines.errors import UserError
    from stages.errors import StageError

    # The commit to compare with may call it by its earlier name.
    build_package = getattr(extra_builds, "build_package", None) or vars(extra_builds)["published"]
    try:
        build_package(recipe)
    except (StageError, UserError) as error:
        return str(error)
    return ""


def main() -> None:
    """Build every recipe that standard input lists."""
    # Whatever the checkout prints goes to the log; results alone go to the reader.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path.insert(0, str(Path.cwd()))
    has_function = Path("pipelines/builds/extra_builds.py").is_file()
    build = _by_function if has_function else _by_the_front_door
    for job, recipe in json.load(sys.stdin):
        begin = time.monotonic()
        failure = build(Path(recipe))
        seconds = round(time.monotonic() - begin, 2)
        row = {"job": job, "failure": failure, "seconds": seconds}
        print(json.dumps(row), file=results, flush=True)


if __name__ == "__main__":
    main()
