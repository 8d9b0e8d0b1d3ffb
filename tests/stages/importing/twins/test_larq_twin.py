"""The Larq twin: what it computes, by our own importer and by Larq Compute Engine itself."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.benchmarks import larq_engine
from pipelines.benchmarks.engines import load
from pipelines.benchmarks.variants import Variant
from stages import importing
from stages.graph import interpret
from stages.importing import zoo
from stages.importing.onnx import oracle
from stages.importing.tflite.larq import unpacked
from stages.importing.twins import larq_twin
from stages.importing.twins.tflite_operators import packed
from stages.layer_options import Encoding, TensorQuantization
from stages.options import ImportOptions, ZooOptions

Array = np.ndarray[Any, Any]
SIZE = 17
"""Of odd extents SAME pads a window of three alike on both sides, as ONNX does."""


def network(encoding: Encoding = "bipolar", size: int = SIZE) -> bytes:
    bits = TensorQuantization(bits=1, encoding=encoding)
    options = ZooOptions(
        name="residual_block", format="qonnx", activations=bits, weights=bits, image_size=size
    )
    return zoo.build(options=options)


def image(size: int = SIZE) -> Array:
    return np.random.default_rng(1).random((1, 3, size, size), dtype=np.float32)


def imported_outputs(source: bytes, x: Array) -> Array:
    model = importing.run(source=source, options=ImportOptions())
    (found,) = interpret.run(model, {"data": x}).values()
    return found


def without_wide_quantizers(source: bytes) -> bytes:
    """The same network, float32 but for signs."""
    model = onnx.load_from_string(source)
    weights = {item.name for item in model.graph.initializer}
    renamed: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
        if node.op_type == "Quant" and node.input[0] not in weights:
            renamed[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return bytes(model.SerializeToString())


def test_a_twin_computes_the_network_without_its_wide_quantizers() -> None:
    source = network()
    found = imported_outputs(larq_twin.twin(source), image())
    narrow = without_wide_quantizers(source)
    (wanted,) = oracle.evaluate(source=narrow, inputs={"data": image()}).values()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [SIZE, 16])
def test_larq_itself_agrees(size: int) -> None:
    python = os.environ.get("BITKILN_LARQ")
    if not python:
        pytest.skip("BITKILN_LARQ names no Python that has larq-compute-engine")
    source = larq_twin.twin(network(size=size))
    variant = Variant("bipolar", source, "larq")
    expected = imported_outputs(source, image(size))
    for engine in larq_engine.engines(python):
        loaded = load(engine, variant, {"data": image(size)}, 1)
        (found,) = loaded.outputs()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert loaded.timed(2) > 0


@given(st.integers(1, 70), st.integers(0, 1 << 30))
def test_signs_are_unpacked_to_what_they_were_packed_from(channels: int, seed: int) -> None:
    negative = np.random.default_rng(seed).integers(0, 2, (2, 3, channels)) == 1
    words = packed(negative)
    assert words.shape == (2, 3, -(-channels // 32))
    np.testing.assert_array_equal(unpacked(words, channels), ~negative)


def test_a_network_without_bipolar_layers_has_no_twin() -> None:
    with pytest.raises(larq_twin.NoTwinError, match=r"no convolution is of bipolar operands"):
        larq_twin.twin(network("unipolar"))
