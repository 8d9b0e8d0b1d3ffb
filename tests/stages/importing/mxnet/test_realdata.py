"""Real MXNet models: BMXNet's binary digits, and GluonCV's quantized MobileNet and SSD symbols.

The files are not part of the project: BITKILN_REALDATA names their folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import mxnet
from stages.options import ImportOptions
from tests.stages.importing.mxnet.test_reading import saved

Array = np.ndarray[Any, Any]
BMXNET = "hpi-xnor+BMXNet/smd_hpi/binary_models/binarized_mnist_{}bit"
GLUON = "dmlc+gluon-cv/gluoncv/model_zoo/quantized"
LAST = "quantized_sg_mkldnn_conv_bn_relu_26"


@pytest.fixture
def realdata() -> Path:
    folder = os.environ.get("BITKILN_REALDATA")
    if not folder:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    return Path(folder).resolve()


def test_bmxnets_digits_are_recognized_from_words_of_both_sizes(realdata: Path) -> None:
    digits = np.load(realdata / "data/mnist_test_2000.npz")
    images = digits["x"][:200].reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255)
    answers = []
    for bits in (32, 64):
        path = str(realdata / BMXNET.format(bits))
        source = mxnet.bundle(
            Path(f"{path}-symbol.json").read_bytes(), Path(f"{path}-0001.params").read_bytes()
        )
        options = ImportOptions(inputs={"data": images.shape})
        found = interpret.run(mxnet.convert_file(source, options), {"data": images})
        answers.append(next(iter(found.values())))
        table = mxnet.describe_file(source, options)
        assert (table["format"], table["producer"]) == ("BMXNet", "MXNet 0.9.3")
        shapes = [layer["weight_shape"] for layer in table["layers"]]
        assert shapes == [[64, 1, 5, 5], [64, 64, 5, 5], [1000, 1024], [10, 1000]]
        assert table["left_to_caller"] == [{"op": "SoftmaxOutput", "layer": "softmax"}]
    assert np.array_equal(answers[0], answers[1])
    assert np.mean(answers[0].argmax(1) == digits["y"][:200]) >= 0.93


def mobilenet_params(symbol: bytes) -> dict[str, Array]:
    """Seeded weights of the shapes that the symbol notes, normalized so that layers differ."""
    rng, params = np.random.default_rng(0), {}
    for node in json.loads(symbol)["nodes"]:
        if node["op"] == "null" and node["name"] != "data":
            name = node["name"]
            shape = tuple(int(n) for n in node["attrs"]["__shape__"].strip("(),").split(","))
            if "gamma" in name:
                value = rng.random(shape) * 0.5 + 0.75
            elif "running_var" in name:
                value = rng.random(shape) + 0.5
            elif "weight" in name:
                value = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])) * 30
            else:
                value = rng.standard_normal(shape) * 0.3
            params[name] = value.astype(np.float32)
    params["data"] = rng.standard_normal((1, 3, 224, 224)).astype(np.float32)
    return params


@pytest.mark.slow
def test_mobilenets_27_layers_are_mxnets(realdata: Path) -> None:
    """The digest is that of MXNet 1.9.1's own uint8 [1, 1024, 7, 7] before the last layer."""
    symbol = (realdata / GLUON / "mobilenet1.0_int8-symbol.json").read_bytes()
    params = mobilenet_params(symbol)
    data = params.pop("data")
    source = mxnet.bundle(symbol, saved(params, 2))
    model = mxnet.convert_file(source, ImportOptions(inputs={"data": data.shape}))
    seen: dict[str, Array] = {}
    interpret.run(model, {"data": data}, observe=seen.__setitem__)
    assert hashlib.sha256(seen[LAST].tobytes()).hexdigest() == DIGEST


DIGEST = "7f986294805af6cd25c4d6263d6ece03c5389d3faf684cddfdb6e7dff5e02f01"


def test_symbols_without_weights_are_described_and_refused(realdata: Path) -> None:
    for name, layers in (("mobilenet1.0", 28), ("ssd_512_mobilenet1.0_voc", 47)):
        symbol = (realdata / GLUON / f"{name}_int8-symbol.json").read_bytes()
        table = mxnet.describe_file(mxnet.bundle(symbol, None), ImportOptions())
        assert len(table["layers"]) == layers
        assert "parameters" in [item["op"] for item in table["unsupported"]]
        with pytest.raises(StageError, match=r"weights of the model are missing|_contrib_box_nms"):
            mxnet.convert_file(mxnet.bundle(symbol, None), ImportOptions())
