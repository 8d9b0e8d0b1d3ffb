"""A fused multiply-add would be noticed: tests of exactness are put to the test."""

from __future__ import annotations

import numpy as np

from stages.graph import interpret
from tests.stages.packaging.kernel_cases import CASES
from tests.stages.packaging.level_net import Case
from tests.stages.packaging.test_kernels import Array


def fused(x: Array, gain: Array, offset: Array) -> Array:
    """`x * gain + offset` rounded once, as a fused multiply-add rounds."""
    return (x.astype(np.float64) * gain + offset).astype(np.float32)


def per_channel(case: Case, name: str) -> Array:
    return case.model.params[name].reshape(1, -1, 1, 1)


def test_a_fused_multiply_add_would_be_noticed_in_a_float_output() -> None:
    case = CASES["float_output_chain"]()
    outputs = interpret.run(case.model, case.inputs())
    gain, offset = per_channel(case, "k"), per_channel(case, "b")
    assert np.array_equal(outputs["y0"] * gain + offset, outputs["y1"])
    assert np.mean(fused(outputs["y0"], gain, offset) != outputs["y1"]) > 0.05


def test_a_fused_multiply_add_would_be_noticed_in_a_requantization() -> None:
    case = CASES["requantize_at_ties"]()
    outputs = interpret.run(case.model, case.inputs())
    once = fused(outputs["y0"], per_channel(case, "gain"), per_channel(case, "offset"))
    assert np.sum(np.clip(np.rint(once), 0, 255) != outputs["y1"]) >= 10
