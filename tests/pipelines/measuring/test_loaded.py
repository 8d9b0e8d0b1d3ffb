"""What counts as a layer's time, and from where its weights come meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.measuring.loaded import LoadedProgram
from tests.stages.packaging.programs import compile_program, pack
from tests.stages.packaging.test_plain import Net
from tests.stages.pipeline import algorithm
from tests.targets import SSE2, skip_unless_runnable

COUNT = 5


@pytest.mark.parametrize(("near", "passes"), [(1 << 30, 0), (0, COUNT)])
def test_a_layer_is_timed_with_what_transforms_its_data(near: int, passes: int) -> None:
    """And where its weights are larger than a cache, each time after all constants were read."""
    skip_unless_runnable(SSE2)
    net = Net((1, 9, 9, 8))
    first = net.conv(net.x, "first", 8, kernel=1)
    model = net.model(net.conv(first, "window", 8))
    program = compile_program(pack(model, SSE2, algorithm("winograd", "window")), SSE2)
    found = LoadedProgram(program, net.inputs(), near)
    called: list[str] = []
    by_symbol = {call.symbol: call.layer for call in program.calls}

    def kernel(call: Any) -> tuple[Any, list[Any]]:
        return lambda *_: called.append(by_symbol[call.symbol]), []

    reads: list[str] = []
    found.kernel = kernel  # type: ignore[method-assign]
    found._memory.pass_over_constants = lambda call: reads.append(call.layer)  # type: ignore[method-assign]
    assert found.seconds("window", COUNT) > 0
    assert called == ["window.tiles", "window"] * COUNT
    assert len(reads) == passes
    called.clear()
    found.seconds("first", COUNT)
    assert called == ["first"] * COUNT
