"""The soaks, short: `python -m tests.soaks` does many more of each."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import soaks, warm

COUNT = int(os.environ.get("BITKILN_SOAKS", "20"))


@pytest.mark.slow
@pytest.mark.parametrize("name", soaks.SOAKS)
def test_soaks(name: str) -> None:
    """Each in a process of its own: importers get a limit of memory that stays."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soaks", str(COUNT), str(soaks.SEED), name],
        cwd=warm.ROOT,
        env=warm.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert f"{name}: {COUNT} in " in done.stdout
