"""The single-operator TensorFlow Lite files of the Glow compiler's test suite, with their goldens.

A golden file is one zero byte and the tensor's values. The files are not part of the project:
BITKILN_REALDATA names the folder that holds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.dialect.calls import dtype_of, shape_of
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import outputs_of
from tests.stages.importing.tflite.cases import compiled_outputs, imported

Array = np.ndarray[Any, Any]

TOLERANCE = 1e-5
"""Of floats, relative to the largest: Glow's goldens are of another machine's float32."""

UNSUPPORTED = {"tflite_detection_post_processing_fast", "tflite_detection_post_processing_regular"}


@pytest.fixture
def folder() -> Path:
    found = os.environ.get("BITKILN_REALDATA")
    if not found:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    return Path(found) / "pytorch+glow/tests/models/tfliteModels"


def golden(path: Path, kind: Any) -> Array:
    raw = path.read_bytes()
    assert raw[0] == 0
    return np.frombuffer(raw[1:], dtype_of(kind)).reshape(shape_of(kind))


def verdicts(folder: Path) -> Iterator[tuple[str, str]]:
    """Each file's name, and "" where it passes, else why it does not."""
    for path in sorted(folder.glob("*.tflite")):
        try:
            yield path.stem, verdict(path)
        except StageError as error:
            yield path.stem, "refused: " + str(error).splitlines()[-1].strip()


def verdict(path: Path) -> str:
    model = imported(path.read_bytes())
    main = model.module["main"]
    inputs = main.params[: int(main.attrs["num_input"])]
    feeds = {str(p.name): golden(path.with_suffix(f".inp{i}"), p.ty) for i, p in enumerate(inputs)}
    expected = [
        golden(path.with_suffix(f".out{i}"), output.ty) for i, output in enumerate(outputs_of(main))
    ]
    found = list(interpret.run(model, feeds).values())
    for mine, theirs in zip(found, expected, strict=True):
        if not np.allclose(mine, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max()):
            return f"differs by up to {np.abs(mine.astype(float) - theirs).max()}"
    for mine, compiled in zip(found, compiled_outputs(model, feeds), strict=True):
        if not np.array_equal(mine, compiled):
            return "compiled code differs from NumPy"
    return ""


@pytest.mark.slow
def test_goldens_of_glow(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = dict(verdicts(folder))
    refused = {name: why for name, why in found.items() if why.startswith("refused")}
    wrong = {name: why for name, why in found.items() if why and name not in refused}
    passed = len(found) - len(refused) - len(wrong)
    with capsys.disabled():
        print(f"\nglow: {passed} passed / {len(found) - len(refused)} supported / {len(found)}")
        for name, why in refused.items():
            print(f"  {name}: {why}")
    assert not wrong
    assert set(refused) == UNSUPPORTED
    assert passed == 92
