"""Compares generated text with files in the repository.

With BITKILN_UPDATE_GOLDEN=1 the files are rewritten instead.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """Assert that `text` equals the golden file."""
    path = FOLDER / name
    if os.environ.get("BITKILN_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
