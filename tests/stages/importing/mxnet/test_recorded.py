"""Imported MXNet models give what MXNet 1.9.1 gave: `recorded.npz`, made by `record.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.importing import mxnet
from stages.options import ImportOptions
from stages.qnn import interpret

Array = np.ndarray[Any, Any]
RECORDED = np.load(Path(__file__).with_name("recorded.npz"))
CASES = sorted({name.rsplit("/", 1)[0] for name in RECORDED.files})


def converted(case: str) -> Any:
    symbol, params = (RECORDED[f"{case}/{part}"].tobytes() for part in ("symbol", "params"))
    shapes = {"data": RECORDED[f"{case}/data"].shape}
    return mxnet.convert_file(mxnet.bundle(symbol, params), ImportOptions(inputs=shapes))


def recorded_outputs(case: str) -> list[Array]:
    names = [name for name in RECORDED.files if name.startswith(f"{case}/output")]
    return [RECORDED[name] for name in sorted(names)]


@pytest.mark.parametrize("case", CASES)
def test_every_output_is_mxnets(case: str) -> None:
    model = converted(case)
    found = interpret.run(model, {"data": RECORDED[f"{case}/data"]})
    for value, expected in zip(found.values(), recorded_outputs(case), strict=True):
        assert value.dtype == expected.dtype
        assert np.array_equal(value.reshape(expected.shape), expected), np.abs(
            value.reshape(expected.shape).astype(float) - expected
        ).max()
