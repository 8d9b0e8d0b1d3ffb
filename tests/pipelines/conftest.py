"""What tests of the pipelines share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from tests.pipelines.fake_clone import ROOT, Clone


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


@pytest.fixture
def alone(tmp_path: Path) -> Callable[[str], str]:
    """A copy of a recipe of another name, whose package no test beside this one replaces."""

    def copied(recipe: str) -> str:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
        path = tmp_path / f"{worker}_{tmp_path.name}.yaml"
        path.write_text(f"extends: {ROOT / 'recipes' / recipe}.yaml\n")
        return str(path)

    return copied


@pytest.fixture
def artifacts(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")
