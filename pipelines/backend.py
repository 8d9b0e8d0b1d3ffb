"""hatchling, after a look at the system: without it pip tries every release of each dependency."""

from __future__ import annotations

import sys

from hatchling.build import *  # noqa: F403  # the hooks pip calls are hatchling's

from pipelines.supported import obstacle

if _sentence := obstacle():
    sys.exit(f"ERROR: {_sentence}")
