"""Whether bitkiln can run here at all; read by any Python 3, before anything is installed."""

from __future__ import annotations

import sys

OLDEST = (3, 11)
PLATFORMS = ("linux", "darwin")


def obstacle() -> str:
    """Return one sentence on why not, or nothing."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:2]))
        return (
            f"bitkiln needs Python 3.11 or newer, and this is {found}; "
            "make the virtual environment with another one"
        )
    if sys.platform not in PLATFORMS:
        return f"bitkiln runs on Linux and macOS, not on {sys.platform}; try WSL"
    if sys.maxsize < 2**32:
        return "bitkiln builds on 64-bit systems, and this is 32-bit; packages run on both"
    return ""
