"""Hands doit its tasks; everything a user got wrong on the command line ends here."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import Any

from doit.exceptions import InvalidDodoFile

from pipelines import supported

if _obstacle := supported.obstacle():
    raise InvalidDodoFile(_obstacle)

try:
    from pipelines import command_line, exit_status, help
    from pipelines.errors import UserError
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] in ("pipelines", "stages", "hw"):
        raise
    raise InvalidDodoFile(
        f"the Python package '{missing.name}' is not installed here; run: pip install -e ."
    ) from None

# Where a folder's settings do not name our loader, which asks this sooner.
if (_page := help.asked(sys.argv[1:])) is not None:
    print(_page)
    sys.exit(exit_status.DONE)

try:
    _session = command_line.open_session(sys.argv[1:])
    _tasks = list(_session.tasks())
except UserError as error:
    raise InvalidDodoFile(str(error)) from None
except Exception:
    # doit would end as it does for a user's mistake.
    print(f"{traceback.format_exc()}ERROR: {exit_status.SENTENCE}", file=sys.stderr)
    sys.exit(exit_status.FAULT)

DOIT_CONFIG = _session.config


def task_all() -> Iterator[dict[str, Any]]:
    """Yield every task."""
    yield from _tasks
