"""Models compiled as plain Relax, to compare with what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.kinds import Model
from tests.stages.dialect import test_legalize

UNOPTIMIZED = {"kind": "llvm", "opt-level": 0}
"""What an importer chose stands in the Relax, whatever LLVM makes of that; optimizing takes half of
the time. `test_legalize` compiles every operator as LLVM would have it by itself."""


def in_relax(model: Model, inputs: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The single output of a compiled model."""
    return test_legalize.in_relax(model, inputs, UNOPTIMIZED)
