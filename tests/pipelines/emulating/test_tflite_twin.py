"""The TensorFlow Lite twin of a QDQ network computes what ONNX Runtime does."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from pipelines.benchmarks.qdq_pairs import NoTwinError
from pipelines.emulating import layer_kinds, tflite_split
from pipelines.emulating.tflite_twin import twin
from stages import importing
from stages.importing.zoo import build
from stages.options import ImportOptions, ZooOptions
from tests.stages.packaging.programs import pack
from tests.targets import AARCH64

Array = np.ndarray[Any, Any]

NETWORKS: dict[str, dict[str, Any]] = {
    "resnet8": {},
    "ds_cnn": {},
    "mobilenet_v1_025": {},
    "resnet18": {"image_size": 32},
    "inception_v2": {"image_size": 32},
}

LEVEL = 0.03125
"""A level of these networks' outputs."""


@cache
def source(name: str) -> bytes:
    return build(options=ZooOptions(name=name, format="qdq", **NETWORKS[name]))  # type: ignore[arg-type]


def litert(model: bytes, data: Array) -> Array:
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    ).Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(given["index"], np.ascontiguousarray(np.moveaxis(data, 1, -1)))
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(result["index"]))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_exact_twin_gives_the_runtimes_bits(name: str) -> None:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = ort.InferenceSession(source(name), providers=["CPUExecutionProvider"])
    (item,) = session.get_inputs()
    data = np.random.default_rng(0).random(item.shape, dtype=np.float32)
    (expected,) = session.run(None, {item.name: data})
    found = litert(twin(source(name), exact=True), data)
    # Both round sums to levels by rules of their own, which differ at ties.
    assert np.abs(found - expected).max() <= LEVEL
    assert np.count_nonzero(found != expected) <= 0.01 * expected.size
    assert np.ptp(expected) > 8 * LEVEL


def test_windows_are_padded_apart_only_where_asked() -> None:
    """ResNet-18's first convolution, pool and two more have uneven padding at a stride of 2."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    plain, exact = (tflite_split.split(twin(source("resnet18"), exact=x)) for x in (False, True))
    added = {part.layer.name for part in exact} - {part.layer.name for part in plain}
    assert len(exact) - len(plain) == len(added) > 2
    assert all(name.endswith(".pad") for name in added)


@pytest.mark.parametrize("name", ("resnet8", "ds_cnn"))
def test_layers_are_those_of_the_package_and_multiply_as_much(name: str) -> None:
    """Two readers of two files of a network agree on names, kinds and work."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    options = ImportOptions.model_validate({})
    packed = pack(importing.run(source=source(name), options=options), AARCH64)
    own = [layer for layer in layer_kinds.of_model(packed) if layer.macs]
    others = [part.layer for part in tflite_split.split(twin(source(name))) if part.layer.macs]
    assert own == others
    assert own[0].kind == layer_kinds.FIRST and own[-1].kind == layer_kinds.DENSE


def test_operators_of_equal_shapes_are_alike() -> None:
    """So that each is emulated once, alone, in a file that LiteRT runs."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    parts = tflite_split.split(twin(source("ds_cnn")))
    alike: dict[Any, list[str]] = {}
    for part in parts:
        alike.setdefault(part.same_as, []).append(part.layer.name)
    assert ["block1.depthwise", "block2.depthwise", "block3.depthwise", "block4.depthwise"] in list(
        alike.values()
    )
    conv = parts[1]
    (data,) = conv.inputs
    assert data.dtype == np.int8
    channels_first = np.moveaxis(data, -1, 1)
    assert litert(conv.source, channels_first).shape[0] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "resnet8", "format": "float"}, "'data' is not quantized"),
        ({"name": "resnet18", "image_size": 32}, "'input_quant' is qonnx.custom_op.general.Quant"),
    ],
)
def test_networks_without_a_twin(options: dict[str, Any], said: str) -> None:
    with pytest.raises(NoTwinError) as error:
        twin(build(options=ZooOptions.model_validate(options)))
    assert error.value.message.startswith(said)
