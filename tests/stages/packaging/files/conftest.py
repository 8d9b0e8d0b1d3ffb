"""A package in a folder, and its loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.stages.packaging.files.clients import imported
from tests.stages.packaging.support import (
    X86_64,
    package,
    write,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, package(X86_64))


@pytest.fixture
def toy(folder: Path) -> Any:
    return imported(folder / "toy.py")
