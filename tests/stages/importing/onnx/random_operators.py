"""Random operators on integers, for comparison with ONNX Runtime on x86 with VNNI."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from tests.stages.importing.onnx.integer_graphs import Array, random

SEEDS = st.integers(0, 2**32 - 1)
BYTES = ("uint8", "int8")
PAIRS = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))


def has_vnni() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and cpuinfo.exists() and "vnni" in cpuinfo.read_text()


class Draw:
    """Parameters of random operators."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def scale(self, low: float = 0.001, high: float = 0.1, shape: Sequence[int] = ()) -> Array:
        """Scales, half the time round ones, whose results often lie just between two integers."""
        if self.rng.integers(2) and not shape:
            steps = np.array([1, 2, 3, 5, 6, 7, 8, 9]) / 10
            round_one = low + (high - low) * self.rng.choice(steps)
            return np.asarray(round(round_one, 3 if high > 0.01 else 6), np.float32)
        return np.asarray(self.rng.uniform(low, high, tuple(shape)), np.float32)

    def values(self, dtype: str, shape: Sequence[int] = ()) -> Array:
        return random(self.rng, dtype, shape)

    def bias(self, shape: Sequence[int]) -> Array:
        return self.rng.integers(-5000, 5000, tuple(shape)).astype(np.int32)


def node(op: str, inputs: str, domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), ["y"], domain=domain, **attributes)
