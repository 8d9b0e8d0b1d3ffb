"""Edges that are rare in networks, compiled: each of these was wrong once."""

from __future__ import annotations

import numpy as np
import pytest

from hw.profile import Hardware
from stages.kinds import Golden
from stages.options import LegalizeOptions
from stages.packaging.files.golden_file import read_golden, write_golden
from stages.packaging.program.kernel_program import TensorSpec
from tests.stages.networks import SourceNet
from tests.stages.packaging.programs import Executor, assert_exact
from tests.stages.pipeline import algorithm, random_inputs
from tests.stages.test_bitpacking import NETWORKS
from tests.targets import AARCH64, SSE2, skip_unless_runnable

WITHOUT_LAYERS = ("levels", "flattened_levels")
RUNS = [(name, "model") for name in NETWORKS]
RUNS += [(name, "mac8") for name in NETWORKS if name not in WITHOUT_LAYERS]


@pytest.mark.parametrize("hardware", [SSE2, pytest.param(AARCH64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "chosen"), RUNS)
def test_compiled(name: str, chosen: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, signed=True)
    model = net.model(NETWORKS[name](net, data))
    options = algorithm("mac8") if chosen == "mac8" else LegalizeOptions()
    assert_exact(model, random_inputs(model), hardware, options)


def test_a_zero_is_positive() -> None:
    """Float arithmetic rounds -0.2 to -0, which no integer is; golden vectors agree with that."""
    skip_unless_runnable(SSE2)
    net = SourceNet((1, 5, 6, 6))
    model = net.model(net.quant(net.x, "data", 2, 0.5, signed=True))
    inputs = {"x": np.full((1, 5, 6, 6), -0.1, np.float32)}
    _, program = assert_exact(model, inputs, SSE2)
    assert not np.signbit(Executor(program, SSE2).run(inputs, 1)["y0"]).any()
    spec = TensorSpec("y0", "float32", (1, 5, 6, 6))
    golden = Golden({}, {"y0": np.full((1, 1, 5, 6, 6), -0.0, np.float32)})
    assert not np.signbit(
        read_golden(write_golden(golden, [], [spec]), [], [spec]).outputs["y0"]
    ).any()
