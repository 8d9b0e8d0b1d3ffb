"""The PyTorch twin of a QDQ network computes what ONNX Runtime and our own reference do."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from hw import host
from pipelines.benchmarks import engines
from pipelines.benchmarks.contestants import FAR_OFF
from pipelines.benchmarks.qdq_pairs import NoTwinError
from pipelines.benchmarks.variants import Variant
from stages import importing
from stages.graph import interpret
from stages.importing.sliding_windows import Windows
from stages.importing.zoo.filling import fill
from stages.importing.zoo.network import Network, NetworkBuilder
from stages.importing.zoo.onnx_writer import write
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]


def network() -> Network:
    """Every operator that a twin has, uneven pads, and grids that pools and sums change."""
    net = NetworkBuilder(16)
    x = net.conv("stem", "data", 12, 3, 2)
    branches = [
        net.conv("wide", net.depthwise("deep", x, 2, "relu6"), 8, activation="none"),
        net.max_pool("largest", x),
        net.conv("small", net.average_pool("mean", x), 8, 3, 2, padding="centred"),
    ]
    x = net.concat("joined", branches)
    x = net.add("sum", net.conv("left", x, 16), net.conv("right", x, 16, activation="none"), "relu")
    return net.finish(x, 10)


@cache
def source(dtype: str, quantized: bool = True) -> bytes:
    return write(fill(network(), 0, dtype), 1, quantized=quantized)


def by_torch(model: bytes, data: Array) -> Array:
    pytest.importorskip("torch", reason="torch is not installed")
    loaded = engines.ENGINES["torch"].load(Variant("int8", model, "onnx"), {"data": data}, 1)
    assert loaded.timed(1) > 0
    (found,) = loaded.outputs()
    return found


def by_runtime(model: bytes, data: Array) -> Array:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"data": data})
    return np.asarray(found)


def by_reference(model: bytes, data: Array) -> Array:
    made = importing.run(source=model, options=ImportOptions.model_validate({}))
    (found,) = interpret.run(made, {"data": data}).values()
    return found


@pytest.mark.parametrize("dtype", ("uint8", "int8"))
@pytest.mark.parametrize("other", (by_runtime, by_reference))
def test_the_twin_gives_the_bits_of_others(dtype: str, other: Any) -> None:
    data = np.random.default_rng(0).random((1, 3, 16, 16), dtype=np.float32)
    found, expected = by_torch(source(dtype), data), other(source(dtype), data)
    assert found.shape == expected.shape == (1, 10) and np.unique(expected).size > 5
    # Without VNNI sums of full 8-bit values saturate: a level or more is lost on the way.
    is_exact = "+avx512vnni" in host.detect().features
    assert np.abs(found - expected).max() <= (0 if is_exact else FAR_OFF * np.ptp(expected))


def test_what_is_timed_does_the_same_work_on_windows_one_pixel_off() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from pipelines.benchmarks import torch_twin

    plain, exact = (torch_twin.twin(source("uint8"), exact=each) for each in (False, True))
    assert (plain.is_exact, exact.is_exact) == (False, True)

    def called(module: Any) -> list[Any]:
        return [node.target for node in module.graph.nodes if node.op == "call_function"]

    pad = torch.nn.functional.pad
    assert called(exact.module).count(pad) == 2 and pad not in called(plain.module)
    assert called(plain.module) == [each for each in called(exact.module) if each is not pad]


def test_windows_over_the_end_are_those_of_ceil_mode() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from pipelines.benchmarks.torch_windows import rounded_up

    for extent in range(5, 12):
        for kernel, stride, pad in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 3, 1), (2, 3, 1)):
            windows = Windows((kernel, kernel), (stride, stride), (1, 1), (pad, pad, 9, 9))
            x = torch.zeros(1, 1, extent, 7)
            found = torch.nn.functional.max_pool2d(x, kernel, stride, pad, ceil_mode=True)
            assert rounded_up(windows, (extent, 7)) == tuple(found.shape[2:])


def test_a_network_without_a_twin_says_why() -> None:
    with pytest.raises(NoTwinError) as error:
        by_torch(source("uint8", quantized=False), np.zeros((1, 3, 16, 16), np.float32))
    assert error.value.message == "it has no PyTorch twin: 'data' is not quantized"
