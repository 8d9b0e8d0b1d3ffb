"""Hands doit its tasks; everything a user got wrong on the command line ends here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from doit.exceptions import InvalidDodoFile

if sys.version_info < (3, 11):  # noqa: UP036  # a clone is run without installing it
    raise InvalidDodoFile(
        "bitkiln needs Python 3.11 or newer, and this is "
        + ".".join(map(str, sys.version_info[:2]))
        + "; make the virtual environment with another one"
    )
if sys.platform not in ("linux", "darwin"):
    raise InvalidDodoFile(f"bitkiln runs on Linux and macOS, not on {sys.platform}; try WSL")

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
