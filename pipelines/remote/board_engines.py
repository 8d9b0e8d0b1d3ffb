"""Engines of others on a board, where its own Python has them installed."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.remote.deployment import BoardError, in_folder
from pipelines.remote.dialogue import Dialogue, is_time
from pipelines.remote.transport import FOLDER, Transport, script

Array = np.ndarray[Any, Any]
TITLES = {"onnxruntime": "ONNX Runtime", "litert": "LiteRT"}
FORMATS = {"onnxruntime": "onnx", "litert": "tflite"}
"""What kind of file each reads."""
_MODULES = {"onnxruntime": "onnxruntime", "litert": "ai_edge_litert"}
_LOAD_SECONDS = 300.0
_NUMBERS = itertools.count()
_ASK = """command -v python3 >/dev/null || exit 0
for module in %s; do
    python3 -c "import importlib.util, sys, numpy
sys.exit(importlib.util.find_spec(sys.argv[1]) is None)" $module 2>/dev/null && echo $module
done
exit 0
"""


def installed(to: Transport) -> list[str]:
    """Return the engines that a board's Python has, by the names that `peers=` takes."""
    told = script(to, _ASK % " ".join(_MODULES.values())).split()
    return [name for name, module in _MODULES.items() if module in told]


class BoardEngine:
    """An engine on a board with a model and inputs, ready to be timed; `close` ends it."""

    def __init__(
        self, to: Transport, name: str, model: bytes, inputs: Mapping[str, Array], threads: int
    ) -> None:
        self.to = to
        # Of its own, as an engine may read its model for as long as it runs.
        own = f"{os.getpid()}-{next(_NUMBERS)}"
        self._names = [f"{kind}-{own}" for kind in ("engine", "model", "inputs")]
        with as_file(files("pipelines.remote") / "engine_program.py") as program:
            self._copy(program.read_bytes(), model, inputs)
        words = ["python3", *(f"./{each}" for each in self._names), str(threads)]
        words.insert(2, name)
        self._dialogue = Dialogue(to.board.name, in_folder(to, words))
        try:
            said = self._dialogue.answer(_LOAD_SECONDS)
            version, outputs = said.get("version"), said.get("outputs")
            if not isinstance(version, str) or not isinstance(outputs, list):
                raise self._dialogue.garbage(said)
            self.title = f"{TITLES[name]} {version[:20]}"
            self.outputs: list[Array] = [np.asarray(each, np.float64) for each in outputs]
        except (BoardError, ValueError, TypeError):
            self.close()
            raise

    def seconds(self, count: int) -> list[float]:
        """Return the seconds of so many inferences."""
        said = self._dialogue.ask(str(count), seconds=_LOAD_SECONDS)
        found = said.get("seconds")
        if not isinstance(found, list) or len(found) != count or not all(map(is_time, found)):
            raise self._dialogue.garbage(said)
        return [float(each) for each in found]

    def close(self) -> None:
        """End it, and remove what it needed."""
        self._dialogue.close()
        script(self.to, f"cd {FOLDER} && rm -f {' '.join(self._names)}\n")

    def _copy(self, program: bytes, model: bytes, inputs: Mapping[str, Array]) -> None:
        with tempfile.TemporaryDirectory(prefix="bitkiln-engine-") as folder:
            contents = (program, model, None)
            for name, data in zip(self._names, contents, strict=True):
                file = Path(folder) / name
                if data is None:
                    with file.open("wb") as opened:
                        numbered = {str(n): array for n, array in enumerate(inputs.values())}
                        np.savez(opened, **numbered)  # type: ignore[arg-type]
                else:
                    file.write_bytes(data)
                self.to.copy(file, f"{FOLDER}/{name}")
