"""Finds out about model files one by one: `python -m pipelines.conformance.examiner BYTES PIPE`.

BYTES is the most memory it takes. Each line of standard input is a request as JSON: file, samples,
pictures and packages. To the file descriptor PIPE goes a line for each step it begins, and one for
each result; whoever asked sees it die, and in which step.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TOLD = 8


def main(most_bytes: int, pipe: int) -> None:
    """Answer requests until there are no more."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as answers:

        def say(**line: object) -> None:
            answers.write(json.dumps(line) + "\n")

        for request in sys.stdin:
            asked = json.loads(request)
            say(row=_row(asked, lambda step: say(step=step)))


def _row(asked: Mapping[str, Any], begin: Callable[[str], None]) -> dict[str, Any]:
    from pipelines.conformance import examination

    shown = [Path(name) for name in asked["pictures"]]
    try:
        return examination.examine_file(
            Path(asked["file"]), asked["samples"], shown, asked["packages"], begin
        )
    except Exception as error:
        # A fault of bitkiln, and the very thing this table is to show: the next file goes on.
        trace = traceback.format_exc().strip().splitlines()[-_TOLD:]
        return {
            "status": "crashed",
            "why": f"{type(error).__name__}: {error}"[:500],
            "trace": trace,
        }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
