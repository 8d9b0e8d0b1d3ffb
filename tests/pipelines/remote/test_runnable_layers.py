"""What a layer is when it runs alone: its calls, its tensors, and from where its weights come."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.remote.runnable_layers import runnable_layers
from pipelines.remote.runner_session import Session
from pipelines.tuning.trial_libraries import KernelLibrary
from tests.pipelines.remote.fakes import fake
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import compile_program, pack
from tests.stages.pipeline import algorithm
from tests.targets import SSE2, skip_unless_runnable


@pytest.mark.parametrize("near", [1 << 30, 0])
def test_a_layer_is_timed_with_what_transforms_its_data(near: int, tmp_path: Path) -> None:
    """And where its weights are larger than a cache, after as many bytes as all constants have."""
    net = Net((1, 9, 9, 8))
    first = net.conv(net.x, "first", 8, kernel=1)
    model = pack(net.model(net.conv(first, "window", 8)), SSE2, algorithm("winograd", "window"))
    program = compile_program(model, SSE2)
    found = runnable_layers(program, model, net.inputs(), near, ["first", "window"])
    layers = {name: [each.call.layer for each in side.calls] for name, side in found.items()}
    assert layers == {"first": ["first"], "window": ["window.tiles", "window"]}
    constants = sum(array.nbytes for array in program.constants.values())
    assert found["window"].far_bytes == (0 if near else constants)
    window = found["window"].calls
    assert str(window[0].arguments[-1]).startswith("t ")
    assert [str(each) for each in window[1].arguments if each.kind == "x"] == ["x 0"]
    skip_unless_runnable(SSE2)
    kernels = {symbol: n for side in found.values() for symbol, n in side.kernels().items()}
    with Session(fake(tmp_path, "pi"), SSE2.architecture) as session:
        session.ready(pytest.fail)
        session.load(KernelLibrary(program.objects, kernels, SSE2))
        for side in found.values():
            session.put(side.blobs)
            for threads in (1, 2):
                session.send(side.define(0, threads, session.hello.tiles))
                assert session.ask("check 0") == {"checksums": side.checksums}
