"""What stays in float in networks with quantizers, compiled."""

from __future__ import annotations

import numpy as np
import pytest

from hw.profile import Hardware
from stages.graph import interpret
from tests.stages.packaging.programs import Executor, compile_program, pack
from tests.stages.pipeline import random_inputs
from tests.stages.test_float_fallback import STAYING
from tests.targets import AARCH64, AVX512VBMI, SSE2, skip_unless_runnable


@pytest.mark.parametrize(
    "hardware", [SSE2, AVX512VBMI, pytest.param(AARCH64, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", STAYING)
def test_compiled(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model = STAYING[name]()
    inputs = random_inputs(model)
    executor = Executor(compile_program(pack(model, hardware), hardware), hardware)
    for output, value in interpret.run(model, inputs).items():
        for tasks in (1, 2):
            found = executor.run(inputs, tasks)[output]
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-5, err_msg=output)
