"""Rows of the table: steps at integer outputs, differences at float ones, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pipelines.conformance import row_verdicts
from stages.kinds import Golden

Array = np.ndarray[Any, Any]
GIVEN = [{"x": np.array([index], np.int8)} for index in range(4)]


def golden(dtype: str) -> Golden:
    return row_verdicts.golden(GIVEN, [{"y": sample["x"].astype(dtype)} for sample in GIVEN])


def off(by: Any, dtype: str) -> row_verdicts.Run:
    def run(sample: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": (sample["x"] + (by if sample["x"][0] == 2 else 0)).astype(dtype)}

    return run


@pytest.mark.parametrize(
    ("dtype", "by", "status", "key", "worst"),
    [
        ("int8", 0, "exact", "steps", 0.0),
        ("int8", -1, "differs", "steps", 1.0),
        ("float32", 1e-5, "close", "difference", 1e-5),
        ("float32", 0.5, "differs", "difference", 0.5),
    ],
)
def test_outputs_are_compared(dtype: str, by: Any, status: str, key: str, worst: float) -> None:
    row = row_verdicts.compared(golden(dtype), off(by, dtype))
    assert (row["status"], row["values"], row["differing"]) == (status, 4, int(by != 0))
    assert row[key] == pytest.approx(worst, rel=0.05)


def test_another_type_or_shape_is_said() -> None:
    row = row_verdicts.compared(golden("int8"), off(0, "uint8"))
    assert row["status"] == "differs"
    assert row["why"] == "output 'y' is uint8[1], the framework's int8[1]"
    row = row_verdicts.compared(golden("int8"), lambda sample: {"y": np.zeros((1, 2), np.int8)})
    assert row["why"] == "output 'y' is int8[1, 2], the framework's int8[1]"
