"""What tests of the pipelines share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipelines.fake_clone import Clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Return a clone of the project with small stages of its own."""
    return Clone(tmp_path / "clone")


@pytest.fixture
def realdata() -> Path:
    folder = os.environ.get("BITKILN_REALDATA")
    if not folder:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    return Path(folder).resolve()
