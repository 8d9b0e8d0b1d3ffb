"""Results as they come: one JSON line a model file, so that an interrupted run goes on."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.paths import is_file, is_folder
from pipelines.recipe import model_files
from pipelines.store import atomic, keys
from stages import STAGES

TOOLS = ("apache-tvm", "numpy", "onnx", "tflite", "ai-edge-litert", "onnxruntime", "qonnx", "torch")


class ResultsFile:
    """A file of results, found again by all that could change them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, dict[str, Any]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self._known[entry["key"]] = entry["row"]
                except (ValueError, KeyError, TypeError):
                    continue  # the line that was being written when the run was ended

    def row(self, key: str) -> dict[str, Any] | None:
        """Return the result under a key."""
        return self._known.get(key)

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep a result at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_whole = not self.path.is_file() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with atomic.named(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(("" if is_whole else "\n") + json.dumps({"key": key, "row": row}) + "\n")
        self._known[key] = dict(row)


def key_of(path: Path, settings: Mapping[str, Any]) -> str:
    """Return what a model file's result is kept under: its bytes, the settings, code and tools.

    Raises UserError for a file that cannot be read.
    """
    found = {
        "files": [keys.digest(model_files.contents(part)) for part in model_files.parts(path)],
        "settings": dict(settings),
        "code": _code(settings["packages"]),
        "tools": {name: keys.tool_version(name) for name in TOOLS},
    }
    return keys.digest(keys.canonical(found))


@functools.cache
def _code(packages: bool) -> dict[str, str]:
    code = keys.code_ingredients("stages.importing")
    code |= keys.code_ingredients("pipelines.conformance.examiner", packages=("pipelines",))
    if packages:
        for stage in STAGES:
            code |= keys.code_ingredients(stage.entry.partition(":")[0])
    return code


def model_files_in(paths: Sequence[Path]) -> Iterable[Path]:
    """Yield the model files given, and those in folders given, in a fixed order, each once."""
    seen: set[Path] = set()
    for path in paths:
        inside = sorted(path.rglob("*")) if is_folder(path) else [path]
        for file in inside:
            is_wanted = file == path or model_files.is_accepted(file)
            if is_wanted and is_file(file) and file not in seen:
                seen.add(file)
                yield file
