"""Real ONNX files with integers in them: ONNX Runtime's results, bit for bit.

The files are not part of the project: BITKILN_REALDATA names their folder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stages.graph import interpret
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.options import ImportOptions
from tests.stages.importing.graphs import real_data
from tests.stages.importing.onnx.integer_graphs import runtime
from tests.stages.importing.onnx.random_operators import has_vnni

Array = np.ndarray[Any, Any]
KWS = "tum-ei-eda+mlonmcu-models/micro_kws_m_quantized/micro_kws_m_static_"
FILES = {
    "qdq": 0.0,
    "qoperator": 0.0,
    "qoperator_emx123": 0.0,
    "qoperator_emx123_inferred": 0.0,
    "quantized_dequant": 1.0,
    "qoperator_emx": 1e-6,
    "qoperator_tvm": 1e-6,
}
"""Largest difference: none, but for those whose last operator is a float softmax, where it is some
units of float32's last place, and one whose layers are float until the last quantizer, a step."""
SAMPLES = 20


@pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
@pytest.mark.parametrize("name", FILES)
def test_keyword_spotting(name: str) -> None:
    source = real_data(f"{KWS}{name}.onnx").read_bytes()
    graph = read(source)
    model = import_graph(graph, ImportOptions()).required()
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(SAMPLES):
        inputs: dict[str, Array] = {}
        for item in graph.inputs:
            shape = [extent or 1 for extent in item.shape]
            if item.dtype == "float32":
                inputs[item.name] = (rng.normal(size=shape) * 60).astype(np.float32)
            else:
                inputs[item.name] = rng.integers(-128, 128, shape).astype(item.dtype)
        found = interpret.run(model, inputs).values()
        for value, expected in zip(found, runtime(source, inputs, fuse=True), strict=True):
            assert value.dtype == expected.dtype
            worst = max(worst, float(np.abs(value - expected.astype(np.float64)).max()))
    print(f"{name}: largest difference {worst} over {SAMPLES} inputs")
    assert worst <= FILES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet"])
def test_float_topologies(name: str) -> None:
    """Networks with constant weights, so that what is compared is shapes and operators."""
    source = real_data(f"onnx-wheel-light/{name}.onnx").read_bytes()
    graph = read(source)
    model = import_graph(graph, ImportOptions()).required()
    x = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    inputs = {graph.inputs[0].name: x}
    found = interpret.run(model, inputs).values()
    for value, expected in zip(found, runtime(source, inputs), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-6)
