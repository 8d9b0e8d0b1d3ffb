"""Where things lie: the code, which is only read, and the work folder, which is written.

A work folder holds recipes, a boards file and artifacts. It is the folder whose `dodo.py` doit was
started with, where doit goes before it reads that file. A clone of bitkiln has no such file: there
the clone is the work folder, too.
"""

from __future__ import annotations

import os
from pathlib import Path

CODE = Path(__file__).resolve().parent.parent
"""The root of the clone, or the folder that bitkiln was installed into."""
DODO = "dodo.py"


def _work() -> Path:
    here = Path.cwd()
    return here if (here / DODO).is_file() else CODE


WORK = _work()
ARTIFACTS = WORK / "artifacts"
BOARDS = WORK / "boards.yaml"
"""The boards file that is read where no other one is named."""
CACHE = WORK / "cache.yaml"
"""The cache file that is read where no other one is named."""
CACHE_VARIABLE = "BITKILN_CACHE"
RECIPES = WORK / "recipes"
SHIPPED = CODE / "recipes"
"""The recipes that come with bitkiln."""


def is_own() -> bool:
    """Whether the work folder is a user's own, and not the clone."""
    return WORK != CODE


def recipe_folders() -> tuple[Path, ...]:
    """Return where recipes are looked for by name: the work folder's before those shipped."""
    return tuple(dict.fromkeys((RECIPES, SHIPPED)))


def has_cache_file() -> bool:
    """Whether a shared store is set: that costs no import."""
    return bool(os.environ.get(CACHE_VARIABLE)) or CACHE.is_file()
