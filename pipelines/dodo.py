"""Hands doit its tasks; everything a user got wrong on the command line ends here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from doit.exceptions import InvalidDodoFile

from pipelines import supported

if _obstacle := supported.obstacle():
    raise InvalidDodoFile(_obstacle)

try:
    from pipelines import front
    from pipelines.errors import UserError
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] in ("pipelines", "stages", "hw"):
        raise
    raise InvalidDodoFile(
        f"the Python package '{missing.name}' is not installed here; run: pip install -e ."
    ) from None

try:
    _session = front.open_session(sys.argv[1:])
except UserError as error:
    raise InvalidDodoFile(str(error)) from None

DOIT_CONFIG = _session.config


def task_all() -> Iterator[dict[str, Any]]:
    """Yield every task."""
    yield from _session.tasks()
