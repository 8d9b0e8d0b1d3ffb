"""What tests of a package's files share."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(tool), reason=f"{tool} is not installed")


def imported(path: Path) -> ModuleType:
    """A loader, as `import` would give it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def begins(*outputs: np.ndarray) -> str:
    """What an example prints."""
    rows = [output.reshape(-1)[:10].tolist() for output in outputs]
    return "".join(f"out_{i}: {' '.join(map(str, row))}\n" for i, row in enumerate(rows))


def compiling(folder: Path, name: str) -> list[str]:
    """The first command that an example names, warnings refused, for `zig`."""
    text = (folder / name).read_text()
    (line, _) = re.findall(r"^[ /*]+(c(?:c|\+\+) .*)$", text, re.MULTILINE)
    return [*line.replace("'", "").split(), "-Wall", "-Wextra", "-Werror"]
