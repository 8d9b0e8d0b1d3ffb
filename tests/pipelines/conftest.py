"""What tests of the pipelines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.fake_clone import Clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Return a clone of the project with small stages of its own."""
    return Clone(tmp_path / "clone")
